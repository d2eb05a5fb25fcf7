/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration strings of the allocator that are accepted: what each option sets, the fill rules of the
 * table of divisions, the order that options are read in, any locale, and the two environment variables. And mistakes
 * in them: each is refused with a message that says which option, what was found, where, and what would be right, and
 * leaves the configuration as it was.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/alloc.h"
#include "alloc/core/config_tokens.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

static struct varve_alloc_config parsed(const char *text)
{
    struct varve_alloc_config config;
    struct varve_message message = {""};
    memset(&config, 0xa5, sizeof(config));
    if (varve_alloc_config_parse(text, &config, &message) != VARVE_OK) {
        fail_msg("'%s' was refused: %s", text, message.text);
    }
    assert_string_equal(config.text, text);
    assert_int_equal(varve_alloc_config_check(&config, NULL), VARVE_OK);
    return config;
}

/* `text` is refused with exactly this reason, and the configuration keeps every byte. */
static void refused(const char *text, const char *reason)
{
    struct varve_alloc_config config, before;
    struct varve_message message = {""};
    memset(&config, 0x5a, sizeof(config));
    memcpy(&before, &config, sizeof(config));
    if (varve_alloc_config_parse(text, &config, &message) != VARVE_ERROR_INVALID) {
        fail_msg("'%s' was not refused", text);
    }
    assert_string_equal(message.text, reason);
    assert_memory_equal(&config, &before, sizeof(config));
    assert_int_equal(varve_alloc_config_parse(text, &config, NULL), VARVE_ERROR_INVALID);
}

static void assert_divisions(const char *text, const uint64_t expected[VARVE_ALLOC_DIVISIONS])
{
    struct varve_alloc_config config = parsed(text);
    for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        if (config.roundup_power2_divisions[i] != expected[i]) {
            fail_msg("'%s': entry %zu is %ju, not %ju", text, i, (uintmax_t)config.roundup_power2_divisions[i],
                     (uintmax_t)expected[i]);
        }
    }
}

/* ---- What is accepted ---- */

TEST(test_defaults)
{
    static const char *const nothing[] = {"", " \t\n"};
    for (size_t i = 0; i < 2; i++) {
        struct varve_alloc_config config = parsed(nothing[i]);
        assert_true(config.max_split_size == VARVE_ALLOC_UNLIMITED);
        assert_int_equal(config.max_non_split_rounding_size, 20 * MIB);
        assert_int_equal(config.large_segment_size, 20 * MIB);
        for (size_t j = 0; j < VARVE_ALLOC_DIVISIONS; j++) {
            assert_int_equal(config.roundup_power2_divisions[j], 0);
        }
        assert_true(config.garbage_collection_threshold == 0);
        assert_true(config.memory_fraction == 1);
        assert_false(config.expandable_segments);
        assert_false(config.release_lock_on_cudamalloc);
        assert_false(config.graph_capture_record_stream_reuse);
        assert_false(config.research_after_release);
    }
}

TEST(test_sizes)
{
    struct varve_alloc_config config = parsed("max_split_size_mb:64");
    assert_int_equal(config.max_split_size, 64 * MIB);
    assert_int_equal(config.max_non_split_rounding_size, 20 * MIB);
    assert_int_equal(parsed("max_split_size_mb:20").max_split_size, 20 * MIB);
    assert_int_equal(parsed("max_non_split_rounding_mb:128").max_non_split_rounding_size, 128 * MIB);

    /* Values beyond what bytes can say are cut, as PyTorch does; a sum with a request must not overflow. */
    config = parsed("max_split_size_mb:18446744073709551615,max_non_split_rounding_mb:18446744073709551615");
    assert_true(config.max_split_size == UINT64_MAX - (MIB - 1));
    assert_true(config.max_non_split_rounding_size == UINT64_C(1) << 60);
}

TEST(test_large_segments_are_read_first)
{
    struct varve_alloc_config config = parsed("large_segment_size_mb:11");
    assert_int_equal(config.large_segment_size, 11 * MIB);
    assert_int_equal(config.max_non_split_rounding_size, 11 * MIB);
    config = parsed("max_split_size_mb:12,large_segment_size_mb:12");
    assert_int_equal(config.max_split_size, 12 * MIB);
    config = parsed("max_non_split_rounding_mb:500,large_segment_size_mb:400");
    assert_int_equal(config.max_non_split_rounding_size, 500 * MIB);
    assert_int_equal(config.large_segment_size, 400 * MIB);
    /* The last one of several holds, for the limits too. */
    config = parsed("large_segment_size_mb:600,max_split_size_mb:30,large_segment_size_mb:30");
    assert_int_equal(config.large_segment_size, 30 * MIB);
    refused("max_split_size_mb:64,large_segment_size_mb:65",
            "option max_split_size_mb: expected a whole number of MiB, 65 (large_segment_size_mb) or more, "
            "at character 19, found \"64\"");
}

TEST(test_flags)
{
    struct varve_alloc_config config = parsed("expandable_segments:True");
    assert_true(config.expandable_segments && !config.release_lock_on_cudamalloc);
    config = parsed("release_lock_on_cudamalloc:True");
    assert_true(config.release_lock_on_cudamalloc && !config.expandable_segments);
    config = parsed("graph_capture_record_stream_reuse:True");
    assert_true(config.graph_capture_record_stream_reuse && !config.research_after_release);
    config = parsed("research_after_release:True");
    assert_true(config.research_after_release && !config.graph_capture_record_stream_reuse);
    assert_false(parsed("expandable_segments:True,expandable_segments:False").expandable_segments);
}

TEST(test_fractions)
{
    assert_true(parsed("garbage_collection_threshold:0.7").garbage_collection_threshold == 0.7);
    assert_true(parsed("garbage_collection_threshold:1e-3").garbage_collection_threshold == 1e-3);
    assert_true(parsed("per_process_memory_fraction:0").memory_fraction == 0);
    assert_true(parsed("per_process_memory_fraction:0.112").memory_fraction == 0.112);
    assert_true(parsed("per_process_memory_fraction:1.0").memory_fraction == 1);
}

TEST(test_white_space_and_commas)
{
    struct varve_alloc_config config = parsed(" max_split_size_mb : 6 4 ,\texpandable_ segments:\nTr ue , ");
    assert_int_equal(config.max_split_size, 64 * MIB);
    assert_true(config.expandable_segments);
    assert_true(parsed("expandable_segments:True,").expandable_segments);
}

TEST(test_host_options_are_dropped)
{
    struct varve_alloc_config defaults;
    varve_alloc_config_init(&defaults);
    struct varve_alloc_config config =
        parsed("pinned_use_cuda_host_register:True,pinned_num_register_threads:128,backend:native,"
               "pinned_reserve_segment_size_mb:2048,pinned_use_background_threads:False");
    memset(config.text, 0, sizeof(config.text));
    assert_int_equal(config.max_split_size, defaults.max_split_size);
    assert_int_equal(config.large_segment_size, defaults.large_segment_size);
    assert_false(config.expandable_segments || config.release_lock_on_cudamalloc);
    refused("pinned_num_register_threads:3", "option pinned_num_register_threads: expected a power of two, "
                                             "1 to 128, at character 29, found \"3\"");
    refused("pinned_num_register_threads:256", "option pinned_num_register_threads: expected a power of two, "
                                               "1 to 128, at character 29, found \"256\"");
    refused("pinned_reserve_segment_size_mb:0", "option pinned_reserve_segment_size_mb: expected a whole number "
                                                "of MiB, 1 or more, at character 32, found \"0\"");
    refused("pinned_use_background_threads:1",
            "option pinned_use_background_threads: expected True or False at character 31, found \"1\"");
}

/* ---- Divisions ---- */

TEST(test_divisions)
{
    assert_divisions("roundup_power2_divisions:8", (uint64_t[16]){8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8});
    assert_divisions("roundup_power2_divisions:1", (uint64_t[16]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    /* The first size is for all smaller ones, gaps stay 0, ">" begins behind the last. */
    assert_divisions("roundup_power2_divisions:[64:8,256:4,1024:4,>:1]",
                     (uint64_t[16]){8, 8, 8, 8, 8, 8, 8, 0, 4, 0, 4, 1, 1, 1, 1, 1});
    assert_divisions("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
                     (uint64_t[16]){1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8});
    assert_divisions("roundup_power2_divisions:[1:2]", (uint64_t[16]){2});
    assert_divisions("roundup_power2_divisions:[2:4]", (uint64_t[16]){4, 4});
    assert_divisions("roundup_power2_divisions:[1:0,2:16,]", (uint64_t[16]){0, 16});
    /* Without a size before it, ">" leaves entry 0 alone and is not the first size either. */
    assert_divisions("roundup_power2_divisions:[>:4]", (uint64_t[16]){0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4});
    assert_divisions("roundup_power2_divisions:[>:4,4:2]",
                     (uint64_t[16]){2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4});
    /* Sizes above the last interval count for it; ">" behind it sets nothing. */
    assert_divisions("roundup_power2_divisions:[32768:2,>:64]",
                     (uint64_t[16]){2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
    assert_divisions("roundup_power2_divisions:[512:1,9223372036854775808:2]",
                     (uint64_t[16]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 2});
    /* Sizes need no order: the last one listed is where ">" goes on from. */
    assert_divisions("roundup_power2_divisions:[8:2,2:4,>:16]",
                     (uint64_t[16]){2, 4, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16});
    assert_divisions("roundup_power2_divisions:[]", (uint64_t[16]){0});
    /* A second table goes over the first. */
    assert_divisions("roundup_power2_divisions:2,roundup_power2_divisions:[1:8]",
                     (uint64_t[16]){8, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
}

TEST(test_any_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"};
    for (size_t i = 0; i < 3; i++) {
        if (setlocale(LC_ALL, names[i]) == NULL) {
            continue;
        }
        assert_true(parsed("garbage_collection_threshold:0.7").garbage_collection_threshold == 0.7);
    }
    setlocale(LC_ALL, "C");
}

/* ---- Environment, check, distance ---- */

TEST(test_environment)
{
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    struct varve_alloc_config config;
    memset(&config, 0xa5, sizeof(config));
    struct varve_message message;
    assert_int_equal(varve_alloc_config_environment(&config, &message), VARVE_OK);
    assert_string_equal(config.text, "");
    assert_int_equal(config.large_segment_size, 20 * MIB);

    setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:40", 1);
    assert_int_equal(varve_alloc_config_environment(&config, &message), VARVE_OK);
    assert_int_equal(config.max_split_size, 40 * MIB);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:30", 1);
    assert_int_equal(varve_alloc_config_environment(&config, &message), VARVE_OK);
    assert_int_equal(config.max_split_size, 30 * MIB);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1);
    assert_int_equal(varve_alloc_config_environment(&config, &message), VARVE_OK);
    assert_true(config.max_split_size == VARVE_ALLOC_UNLIMITED);

    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    setenv("PYTORCH_ALLOC_CONF", "backend:mine", 1);
    assert_int_equal(varve_alloc_config_environment(&config, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "PYTORCH_ALLOC_CONF: option backend: expected native (others are not "
                                      "supported) at character 9, found \"mine\"");
    unsetenv("PYTORCH_ALLOC_CONF");
}

static void assert_wrong(struct varve_alloc_config config, const char *field)
{
    struct varve_message message = {""};
    assert_int_equal(varve_alloc_config_check(&config, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, field));
}

TEST(test_check)
{
    struct varve_alloc_config good, config;
    varve_alloc_config_init(&good);
    assert_int_equal(varve_alloc_config_check(&good, NULL), VARVE_OK);
    config = good, config.roundup_power2_divisions[15] = 3, assert_wrong(config, "roundup_power2_divisions");
    config = good, config.large_segment_size = 10 * MIB, assert_wrong(config, "large_segment_size");
    config = good, config.large_segment_size = UINT64_C(1) << 60, assert_wrong(config, "large_segment_size");
    config = good, config.max_split_size = 20 * MIB - 1, assert_wrong(config, "max_split_size");
    config = good, config.max_non_split_rounding_size = 0, assert_wrong(config, "max_non_split_rounding_size");
    config = good, config.garbage_collection_threshold = NAN, assert_wrong(config, "garbage_collection_threshold");
    config = good, config.garbage_collection_threshold = 1, assert_wrong(config, "garbage_collection_threshold");
    config = good, config.garbage_collection_threshold = -1, assert_wrong(config, "garbage_collection_threshold");
    config = good, config.memory_fraction = -1, assert_wrong(config, "memory_fraction");
    config = good, memset(config.text, 'x', sizeof(config.text)), assert_wrong(config, "text");
}

/* ---- mistakes ---- */

/* Each of the values is refused for the same reason: of an option, "…, at character N, found". */
static void refused_values(const char *option, const char *const *values, size_t count, const char *expected, int at)
{
    char text[64], reason[200];
    for (size_t i = 0; i < count; i++) {
        bool is_end = values[i][0] == '\0';
        snprintf(text, sizeof(text), "%s:%s", option, values[i]);
        snprintf(reason, sizeof(reason), "option %s: expected %s at character %d, found %s%s%s", option, expected, at,
                 is_end ? "" : "\"", is_end ? "the end" : values[i], is_end ? "" : "\"");
        refused(text, reason);
    }
}

#define REFUSED_VALUES(option, expected, at, ...)              \
    refused_values(option, (const char *const[]){__VA_ARGS__}, \
                   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *), expected, at)

TEST(test_wrong_divisions)
{
    REFUSED_VALUES("roundup_power2_divisions", "a power of two, or a table \"[size:divisions,...]\",", 26, "0", "3",
                   "a", "-8", "]");
    refused("roundup_power2_divisions:[3:4]",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 27, found \"3\"");
    refused("roundup_power2_divisions:[0:4]",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 27, found \"0\"");
    refused("roundup_power2_divisions:[1:4,>:5]",
            "option roundup_power2_divisions: expected a number of divisions, 0 or a power of two, "
            "at character 33, found \"5\"");
    refused("roundup_power2_divisions:[1,2:4]",
            "option roundup_power2_divisions: expected \":\" at character 28, found \",\"");
    refused("roundup_power2_divisions:[1:4:2:8]",
            "option roundup_power2_divisions: expected \",\" or \"]\" at character 30, found \":\"");
    refused("roundup_power2_divisions:[1:4",
            "option roundup_power2_divisions: expected \",\" or \"]\" at character 30, found the end");
    refused("roundup_power2_divisions:[1:4,",
            "option roundup_power2_divisions: expected a size in MiB that is a power of two, or \">\", "
            "at character 31, found the end");
    refused("roundup_power2_divisions:[1:4]expandable_segments:True",
            "option roundup_power2_divisions: expected \",\" or the end at character 31, "
            "found \"expandable_segments\"");
}

TEST(test_values_out_of_range)
{
    REFUSED_VALUES("max_split_size_mb", "a whole number of MiB, 20 (large_segment_size_mb) or more,", 19, "19", "0",
                   "-64", "+64", "64MB", "64.5", "", "True", "18446744073709551616", "36893488147419103296");
    refused("max_non_split_rounding_mb:5", "option max_non_split_rounding_mb: expected a whole number of MiB, 20 "
                                           "(large_segment_size_mb) or more, at character 27, found \"5\"");
    refused("expandable_segments:True, large_segment_size_mb : 10",
            "option large_segment_size_mb: expected a whole number of MiB, 11 to 1099511627775, at character 51, "
            "found \"10\"");
    refused("large_segment_size_mb:1099511627776", "option large_segment_size_mb: expected a whole number of MiB, "
                                                   "11 to 1099511627775, at character 23, found "
                                                   "\"1099511627776\"");
}

TEST(test_reals_and_flags)
{
    REFUSED_VALUES("garbage_collection_threshold", "a number above 0 and below 1", 30, "0", "1", "1.5", "-0.5", "nan",
                   "inf", "0.5x", "half", "1e-999");
    refused("garbage_collection_threshold:0,5", "unknown option \"5\" at character 32; the nearest one is backend");
    REFUSED_VALUES("per_process_memory_fraction", "a number from 0 to 1", 29, "1.01", "-0.1", "nan", "1e400", "50%");
    /* spelt as in Python */
    REFUSED_VALUES("expandable_segments", "True or False", 21, "true", "FALSE", "1", "yes", "Truee", "[", ":");
}

TEST(test_backends)
{
    refused("backend:cudaMallocAsync",
            "option backend: expected native (the driver's own pools are the policy cuda-async) "
            "at character 9, found \"cudaMallocAsync\"");
    refused("backend:Native",
            "option backend: expected native (others are not supported) at character 9, found \"Native\"");
}

TEST(test_syntax)
{
    refused(",expandable_segments:True", "expected the name of an option at character 1, found \",\"");
    refused("expandable_segments:True,,", "expected the name of an option at character 26, found \",\"");
    refused("expandable_segments", "option expandable_segments: expected \":\" and a value at character 20, "
                                   "found the end");
    refused("expandable_segments,True",
            "option expandable_segments: expected \":\" and a value at character 20, found \",\"");
    refused("expandable_segments:True:False",
            "option expandable_segments: expected \",\" or the end at character 25, found \":\"");
    refused("expandable_segments:True max_split_size_mb:64",
            "option expandable_segments: expected \",\" or the end at character 43, found \":\"");
}

TEST(test_unknown_names)
{
    refused("max_split_size:64",
            "unknown option \"max_split_size\" at character 1; the nearest one is max_split_size_mb");
    refused("expandable_segments:True, garbage_colection_treshold:0.8",
            "unknown option \"garbage_colection_treshold\" at character 27; the nearest one is "
            "garbage_collection_threshold");
    refused("expandable:True", "unknown option \"expandable\" at character 1; the nearest one is expandable_segments");
    refused("max_split_size_mb=64", "unknown option \"max_split_size_mb=64\" at character 1; the nearest one is "
                                    "max_split_size_mb, and \":\" is written before a value");
    refused("release_lock_on_hipmalloc:True", "option release_lock_on_hipmalloc at character 1 is the name for AMD "
                                              "devices; here it is release_lock_on_cudamalloc");
    refused("throw_on_cudamalloc_oom:True", "option throw_on_cudamalloc_oom at character 1 came after PyTorch 2.11, "
                                            "whose rules hold here; remove it");
}

TEST(test_long_and_hostile_strings)
{
    static char text[5000];
    struct varve_message message = {""};
    memset(text, 'x', sizeof(text) - 1);
    refused(text, "an option string has at most 1023 characters; this one has 4999");
    text[1023] = '\0';
    struct varve_alloc_config config;
    assert_int_equal(varve_alloc_config_parse(text, &config, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "unknown option \"xxxxx"));
    assert_non_null(strstr(message.text, "xxx\"... at character 1; "));

    memset(text, '[', 1023);
    refused(text, "expected the name of an option at character 1, found \"[\"");
    refused("back\033[2Jend:native", "unknown option \"back?\" at character 1; the nearest one is backend");

    /* As many tokens as fit. */
    size_t length = (size_t)snprintf(text, sizeof(text), "roundup_power2_divisions:[");
    while (length < 1018) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "2:1,");
    }
    snprintf(text + length, sizeof(text) - length, "]");
    assert_int_equal(parsed(text).roundup_power2_divisions[1], 1);
}
