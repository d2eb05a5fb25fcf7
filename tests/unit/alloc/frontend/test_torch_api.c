/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python shim asks: figures are those of the allocator itself, a device that nobody has used has
 * zeros and stays closed, limits and settings take effect on open devices, and observers hear of failures in
 * PyTorch's terms, with no lock held.
 * Costs: 1 s
 */
#include "support/alloc/torch_words.h"

#include <stdio.h>

#define TEXT 16384U

static int prepare(void **state)
{
    (void)state;
    return torch_prepare("max_split_size_mb:40,roundup_power2_divisions:4");
}

static void write_figure(void *context, const char *key, int64_t value)
{
    char *text = context;
    size_t length = strlen(text);
    snprintf(text + length, TEXT - length, "%s=%lld\n", key, (long long)value);
}

static void stats_text(int device, char text[TEXT])
{
    text[0] = '\0';
    assert_int_equal(varve_torch_stats(device, write_figure, text), VARVE_OK);
}

TEST_DEVICE(test_figures, &torch_kind)
{
    static char reported[TEXT], own[TEXT];
    stats_text(0, reported);
    assert_false(varve_torch_is_open(0));
    assert_non_null(strstr(reported, "max_split_size=41943040\n"));
    assert_non_null(strstr(reported, "allocation.all.current=0\n"));
    device_words(play, "a=take:3M:0 b=take:70M:0 give:a:0");
    stats_text(0, reported);
    own[0] = '\0';
    struct varve_alloc_stats stats;
    assert_int_equal(varve_alloc_get_device_stats(registry_find(0)->alloc, &stats), VARVE_OK);
    varve_alloc_stats_each(&stats, write_figure, own);
    assert_string_equal(reported, own);
    assert_non_null(strstr(reported, "allocation.all.allocated=2\n"));
    assert_non_null(strstr(reported, "num_device_alloc=2\n"));
    /* rounded to a quarter of a power of two */
    device_words(play, "allocated:0?80M allocated_peak:0?83M reserved:0?100M reserved_peak:0?100M give:b:0");
    assert_int_equal(varve_torch_reset_peak_stats(0), VARVE_OK);
    device_words(play, "allocated_peak:0?0");
    assert_int_equal(varve_torch_reset_accumulated_stats(0), VARVE_OK);
    stats_text(0, reported);
    assert_non_null(strstr(reported, "num_device_alloc=0\n"));
    device_words(play, "allocated:-1!invalid");
    assert_int_equal(varve_torch_stats(64, write_figure, reported), VARVE_ERROR_INVALID);
    assert_non_null(strstr(varve_torch_message(), "device 64"));
}

/* method: the one that takes the place of PyTorch's own: its only way to fail is to change nothing. What it is asked
 * with is the least that it gives; 0 asks for the device's free memory too. */
static const struct device_case cache_info[] = {
    PLAY("the largest block that might be had",
         "empty:0 method:0:0?1G serve:640M:0 method:0:0?640M empty:0 method:0:1?1 serve:28M:0 method:0:1?28M "
         "method:-1:0?0"),
};
TEST_DEVICE_PLAYS(test_cache_info_method, &torch_kind, cache_info)

TEST_DEVICE(test_fraction, &torch_kind)
{
    varve_torch_empty_cache(0, 0, 0);
    assert_true(varve_torch_get_memory_fraction(1) == 1.0);
    assert_false(varve_torch_is_open(1));
    varve_torch_memory_fraction(0.25, 0);
    assert_true(varve_torch_get_memory_fraction(0) == 0.25);
    device_words(play, "take:300M:0!memory");
    assert_int_equal(varve_torch_set_memory_fraction(0, 0), VARVE_ERROR_INVALID);
    assert_non_null(strstr(varve_torch_message(), "fraction"));
    assert_int_equal(varve_torch_set_memory_fraction(0, 1.5), VARVE_ERROR_INVALID);
    assert_int_equal(varve_torch_set_memory_fraction(0, 1), VARVE_OK);
    device_words(play, "a=take:300M:0 largest:0?1G-320M give:a:0 largest:0?1G-320M");
}

TEST_DEVICE(test_settings, &torch_kind)
{
    struct varve_torch_settings settings;
    assert_int_equal(varve_torch_get_settings(&settings), VARVE_OK);
    assert_string_equal(settings.text, "max_split_size_mb:40,roundup_power2_divisions:4");
    assert_string_equal(settings.policy, "pytorch");
    assert_string_equal(settings.device, "sim");
    assert_int_equal(settings.max_split_size, 40 * MIB);
    assert_int_equal(settings.roundup_power2_divisions[3], 4);
    assert_int_equal(settings.expandable_segments, 0);

    assert_int_equal(varve_torch_set_settings("expandable_segments:Yes"), VARVE_ERROR_INVALID);
    assert_non_null(strstr(varve_torch_message(), "expandable_segments"));
    assert_int_equal(varve_torch_set_settings("graph_capture_record_stream_reuse:True"), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(varve_torch_get_settings(&settings), VARVE_OK);
    assert_int_equal(settings.graph_capture_record_stream_reuse, 0);

    /* an open device takes the change with its next request, whatever it has by then */
    device_words(play, "a=take:300M:0");
    assert_int_equal(varve_torch_set_settings("expandable_segments:True"), VARVE_OK);
    assert_int_equal(varve_torch_get_settings(&settings), VARVE_OK);
    assert_int_equal(settings.expandable_segments, 1);
    assert_true(settings.max_split_size == UINT64_MAX);
    device_words(play, "give:a:0 empty:0 serve:21M:0 serve:41M:0");
    assert_int_equal(varve_torch_set_settings(""), VARVE_OK);
    device_words(play, "serve:41M:0 empty:0");
}

/* ---- observers ---- */

static struct {
    unsigned calls;
    int device;
    uint64_t alloc, total, free;
} heard;

/* It allocates, as observers may: the lock must be open. */
static void observe(void *context, int device, uint64_t alloc_bytes, uint64_t total, uint64_t free_bytes)
{
    *(unsigned *)context += 1;
    heard.calls++;
    heard.device = device;
    heard.alloc = alloc_bytes;
    heard.total = total;
    heard.free = free_bytes;
    give(take(512, device, 0), device);
}

TEST(test_observers)
{
    unsigned contexts[9] = {0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(varve_torch_add_oom_observer(observe, &contexts[i]), VARVE_OK);
    }
    assert_int_equal(varve_torch_add_oom_observer(observe, &contexts[8]), VARVE_ERROR_FULL);
    for (int i = 1; i < 8; i++) {
        assert_int_equal(varve_torch_remove_oom_observer(observe, &contexts[i]), VARVE_OK);
    }
    assert_int_equal(varve_torch_remove_oom_observer(observe, &contexts[3]), VARVE_ERROR_NOT_FOUND);
    varve_torch_empty_cache(-1, 0, 0);
    struct varve_message message;
    uint64_t addr;
    assert_int_equal(torch_allocate(1025 * MIB, 2, 0, &addr, &message), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(heard.calls, 1);
    assert_int_equal(contexts[0], 1);
    assert_int_equal(heard.device, 2);
    assert_int_equal(heard.alloc, 1026 * MIB); /* as a segment: a multiple of 2 MiB */
    assert_int_equal(heard.total, 1024 * MIB);
    assert_int_equal(heard.free, 1024 * MIB);
    assert_int_equal(varve_torch_set_memory_fraction(2, 0.5), VARVE_OK);
    assert_int_equal(torch_allocate(600 * MIB, 2, 0, &addr, &message), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(heard.total, 512 * MIB); /* the limit, where there is one */
    assert_int_equal(varve_torch_remove_oom_observer(observe, &contexts[0]), VARVE_OK);
    assert_int_equal(torch_allocate(600 * MIB, 2, 0, &addr, &message), VARVE_ERROR_NO_MEMORY);
    assert_int_equal(heard.calls, 2);
}

TEST_FILE(prepare, NULL)
