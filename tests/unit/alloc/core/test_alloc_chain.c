/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain that a request goes through when its pool has nothing, stage by stage on made-up addresses: what
 * each stage is allowed to do, what it records, and what comes next. The numbers are small enough to follow:
 * sizes of 20 MiB and more are blocks with a segment of their own.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* ---- without the chain ---- */

TEST_WITH(test_first_block_and_hit, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    addr = take(rig, 100);
    expect(rig, "segment_alloc new_segment 2M\n"
                "split 512 left 2096640\n"
                "alloc new_segment 512\n");
    give(rig, addr);
    expect(rig, "free_requested 512\n"
                "free_completed 512\n"
                "merge next 2M absorbed 2096640\n");
    assert_int_equal(take(rig, 512), addr);
    expect(rig, "split 512 left 2096640\n"
                "alloc cache 512\n");
    assert_int_equal(stats_of(rig).num_device_alloc, 1);
}

/* Numbers of the device's order have no gaps, and an allocation's id comes back with its free. */
TEST_WITH(test_numbers_of_records, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr, other;

    rig_open(rig, &(struct rig_options){.sim.index = 3});
    addr = take(rig, 100);
    other = take_on(rig, 30 * MIB, 77);
    give(rig, addr);
    for (size_t i = 1; i < rig->count; i++) {
        assert_int_equal(varve_record_dev_seq(&rig->records[i]), varve_record_dev_seq(&rig->records[i - 1]) + 1);
        assert_int_equal(rig->records[i].device, 3);
    }
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_ALLOC, 0)), 1);
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_ALLOC, 1)), 2);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->addr, other);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->requested, 30 * MIB);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->arg >> 32, 2 * MIB / 512);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->pool, 1);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->pool, 0);
    assert_int_equal(varve_record_stream(nth_record(rig, VARVE_KIND_ALLOC, 0)), 0);
    assert_int_equal(varve_record_stream(nth_record(rig, VARVE_KIND_ALLOC, 1)), 1);
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_FREE_REQUESTED, 0)), 1);
    assert_int_equal(varve_record_id(nth_record(rig, VARVE_KIND_FREE_COMPLETED, 0)), 1);
}

/* The field for the size of the free block has 32 bits, for units of 512 bytes: it holds 2 TiB less one unit,
 * and its largest value means that or more. */
TEST_WITH(test_sizes_beyond_the_field, rig_setup, rig_teardown)
{
    const uint64_t tib = MIB << 20;
    const uint64_t bytes[] = {2 * tib - 2 * MIB, 2 * tib, 2 * tib + 2 * MIB, 5 * tib, 64 * tib};
    const uint64_t units[] = {(2 * tib - 2 * MIB) / 512, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.sim.total_bytes = 256 * tib});
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
        const struct varve_record *record;

        forget(rig);
        give(rig, take(rig, bytes[i]));
        empty_cache(rig);
        record = nth_record(rig, VARVE_KIND_ALLOC, 0);
        assert_int_equal(record->size, bytes[i]);
        assert_int_equal(record->arg >> 32, units[i]);
        assert_int_equal(record->arg & UINT32_MAX, i + 1); /* the segment's number */
    }
}

/* ---- callbacks ---- */

struct giver {
    struct rig *rig;
    uint64_t addr, next; /* freed by the next calls, if they are not 0 */
    bool answer;
    unsigned calls;
    struct varve_alloc_miss miss; /* the last one */
};

static uint64_t giver_call(void *context, const struct varve_alloc_miss *miss)
{
    struct giver *giver = context;

    giver->calls++;
    giver->miss = *miss;
    if (giver->addr != 0) {
        give(giver->rig, giver->addr);
        giver->addr = giver->next;
        giver->next = 0;
    }
    return giver->answer;
}

TEST_WITH(test_callback_serves, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig, .answer = true}, second = {.rig = rig};
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB});
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, giver_call, &giver), VARVE_OK);
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, giver_call, &second), VARVE_OK);
    addr = take(rig, 40 * MIB);
    assert_int_equal(giver.calls, 1); /* on every miss of the pool */
    giver.addr = addr;
    forget(rig);
    assert_int_equal(take(rig, 30 * MIB), addr);
    expect(rig, "free_requested 40M\n"
                "free_completed 40M\n"
                "oom_retry callbacks 30M freed 40M served\n"
                "split 30M left 10M\n"
                "alloc after_callbacks 30M\n");
    assert_int_equal(second.calls, 2); /* all of them, whatever the first one says */
    assert_int_equal(second.miss.requested, 30 * MIB);
    assert_int_equal(second.miss.rounded, 30 * MIB);
    assert_int_equal(second.miss.excess, 0);
    assert_false(second.miss.is_small);
    take(rig, 10 * MIB);
    assert_int_equal(giver.calls, 2); /* a hit asks nobody */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_SEGMENT_ALLOC), 1);
}

/* Without a word that it freed something there is no second search, although the block is there. */
TEST_WITH(test_callback_that_denies, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig, .answer = false};
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    addr = take(rig, 40 * MIB);
    varve_alloc_add_miss_callback(rig->alloc, giver_call, &giver);
    giver.addr = addr;
    forget(rig);
    assert_int_not_equal(take(rig, 40 * MIB), addr);
    expect(rig, "free_requested 40M\n"
                "free_completed 40M\n"
                "oom_retry callbacks 40M freed 40M\n"
                "segment_alloc new_segment 40M\n"
                "alloc new_segment 40M\n");
}

static uint64_t callback_none(void *context, const struct varve_alloc_miss *miss)
{
    (void)context;
    (void)miss;
    return 0;
}

TEST_WITH(test_callbacks_are_limited, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    int error = VARVE_OK;
    unsigned count = 0;

    rig_open(rig, &(struct rig_options){.limit = 0});
    while (error == VARVE_OK && count < 1000) {
        error = varve_alloc_add_miss_callback(rig->alloc, callback_none, NULL);
        count += error == VARVE_OK;
    }
    assert_int_equal(error, VARVE_ERROR_FULL);
    assert_true(count >= 1);
    take(rig, 100);
}

/* ---- the limit ---- */

TEST_WITH(test_limit_is_inclusive, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t addr;

    rig_open(rig, &(struct rig_options){.limit = 42 * MIB});
    take(rig, 20 * MIB);
    addr = take(rig, 20 * MIB);
    take(rig, 512); /* 2 MiB: total + segment == limit */
    refused(rig, 2 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_SEGMENT_ALLOC), 3); /* the device is not asked */
    give(rig, addr);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 42 * MIB - 1), VARVE_OK);
    refused(rig, 20 * MIB + 1, VARVE_ERROR_NO_MEMORY);
}

/* One byte less than total + segment: refused, also where a wrapped sum would fit. */
TEST_WITH(test_limit_is_strict_above, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB - 1});
    take(rig, 20 * MIB);
    refused(rig, 20 * MIB, VARVE_ERROR_NO_MEMORY);
    refused(rig, (UINT64_C(1) << 60) - 1, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 40 * MIB), VARVE_OK);
    take(rig, 20 * MIB);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 0), VARVE_OK);
    take(rig, 20 * MIB);
}

TEST_WITH(test_limit_of_fraction, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB, .config = "per_process_memory_fraction:0.4"});
    take(rig, 20 * MIB);
    take(rig, 20 * MIB);
    refused(rig, 512, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 0.42), VARVE_OK);
    assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), 0.42, 1e-9);
    take(rig, 512);
    refused(rig, 2 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 1), VARVE_OK);
    take(rig, 20 * MIB);
}

/* ---- the whole chain ---- */

/* X 40 MiB used, A 22 and B 24 MiB free, a free small segment; A is above the mean age. */
static void chain_prepare(struct rig *rig, struct giver *giver)
{
    uint64_t a, b, c;

    rig_open(rig, &(struct rig_options){.limit = 100 * MIB,
                                        .config = "max_split_size_mb:20,garbage_collection_threshold:0.8"});
    take(rig, 40 * MIB);
    a = take(rig, 22 * MIB);
    c = take(rig, 512);
    give(rig, a);
    b = take(rig, 24 * MIB);
    give(rig, b);
    give(rig, c);
    *giver = (struct giver){.rig = rig, .answer = true};
    varve_alloc_add_miss_callback(rig->alloc, giver_call, giver);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 88 * MIB);
    forget(rig);
}

TEST_WITH(test_whole_chain_serves_at_its_end, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver;

    chain_prepare(rig, &giver);
    take(rig, 60 * MIB);
    expect(rig, "oom_retry callbacks 60M freed 0M\n"
                "segment_free gc 22M\n"
                "oom_retry gc 60M freed 22M\n"
                "segment_free release_available 24M\n" /* too little, and gone */
                "oom_retry release_available 60M freed 24M\n"
                "segment_free retry 2M\n"
                "segment_alloc after_retry 60M\n"
                "oom_retry release_cached 60M freed 2M served\n"
                "alloc after_retry 60M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
    assert_int_equal(stats_of(rig).num_ooms, 0);
    assert_int_equal(stats_of(rig).num_sync_all_streams, 1);
    assert_int_equal(stats_of(rig).num_device_free, 3);
}

TEST_WITH(test_whole_chain_fails, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver;

    chain_prepare(rig, &giver);
    refused(rig, 61 * MIB, VARVE_ERROR_NO_MEMORY);
    expect(rig, "oom_retry callbacks 62M freed 0M\n"
                "segment_free gc 22M\n"
                "oom_retry gc 62M freed 22M\n"
                "segment_free release_available 24M\n"
                "oom_retry release_available 62M freed 24M\n"
                "segment_free retry 2M\n"
                "oom_retry release_cached 62M freed 2M\n"
                "oom 61M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 1); /* counted although it failed */
    assert_int_equal(stats_of(rig).num_ooms, 1);
}

TEST_WITH(test_chain_ends_after_gc, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver;

    chain_prepare(rig, &giver);
    take(rig, 30 * MIB);
    expect(rig, "oom_retry callbacks 30M freed 0M\n"
                "segment_free gc 22M\n"
                "segment_alloc after_gc 30M\n"
                "oom_retry gc 30M freed 22M served\n"
                "alloc after_gc 30M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 0);
}

TEST_WITH(test_chain_ends_after_release_available, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.limit = 100 * MIB, .config = "max_split_size_mb:20"});
    take(rig, 40 * MIB);
    a = take(rig, 60 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 30 * MIB); /* too small for the block of 60 MiB */
    expect(rig, "segment_free release_available 60M\n"
                "segment_alloc after_release 30M\n"
                "oom_retry release_available 30M freed 60M served\n"
                "alloc after_release 30M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 0);
}

/* ---- freed in the last stage ---- */

/* A segment of 9 + 9 + 2 MiB whose first block becomes free only when all streams are waited for. */
static void pending_prepare(struct rig *rig, bool has_research)
{
    uint64_t a;

    rig_open(rig,
             &(struct rig_options){.limit = 20 * MIB, .sim.events_are_scripted = true, .has_research = has_research});
    a = take(rig, 9 * MIB);
    take(rig, 9 * MIB);
    use_on(rig, a, 7);
    give(rig, a);
    forget(rig);
}

TEST_WITH(test_freed_at_last_is_not_searched, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    pending_prepare(rig, false);
    refused(rig, 9 * MIB, VARVE_ERROR_NO_MEMORY);
    expect(rig, "free_completed 9M\n"
                "oom_retry release_cached 20M freed 0M\n"
                "oom 9M\n");
    take(rig, 9 * MIB); /* the next request has it */
    expect(rig, "alloc cache 9M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
}

TEST_WITH(test_freed_at_last_is_searched_on_demand, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    pending_prepare(rig, true);
    take(rig, 9 * MIB);
    expect(rig, "free_completed 9M\n"
                "oom_retry release_cached 20M freed 0M served\n"
                "alloc after_retry 9M\n");
    assert_int_equal(stats_of(rig).num_ooms, 0);
}

/* ---- a device in trouble ---- */

TEST_WITH(test_device_out_of_memory, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 50 * MIB});
    a = take(rig, 30 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 40 * MIB);
    expect(rig, "segment_free retry 30M\n"
                "segment_alloc after_retry 40M\n"
                "oom_retry release_cached 40M freed 30M served\n"
                "alloc after_retry 40M\n");
}

/* Anything but a lack of memory ends the request at once, and nothing is given back. */
TEST_WITH(test_fatal_error_ends_the_chain, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;
    char *before, *after;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    a = take(rig, 30 * MIB);
    give(rig, a);
    before = layout_of(rig);
    forget(rig);
    assert_int_equal(varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_ALLOC, 1, 1, VARVE_ERROR_IO), 0);
    refused(rig, 40 * MIB, VARVE_ERROR_IO);
    assert_non_null(strstr(rig->message.text, "was to fail")); /* the device's own words */
    expect(rig, "");
    after = layout_of(rig);
    assert_string_equal(after, before);
    free(before);
    free(after);
    assert_int_equal(stats_of(rig).num_ooms, 0);
    assert_int_equal(stats_of(rig).num_alloc_retries, 0);
    take(rig, 40 * MIB);
}

/* The first attempt is an OOM of the device, the second one fatal. */
TEST_WITH(test_fatal_error_of_the_retry, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_ALLOC, 1, 1, VARVE_ERROR_NO_MEMORY);
    varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_ALLOC, 2, 1, VARVE_ERROR_IO);
    refused(rig, 40 * MIB, VARVE_ERROR_IO);
    expect(rig, "oom_retry release_cached 40M freed 0M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
    assert_int_equal(stats_of(rig).num_ooms, 0);
}

/* ---- the limit of allocated bytes ---- */

TEST_WITH(test_limit_of_allocated_bytes, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig, .answer = true};
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 400 * MIB});
    a = take(rig, 40 * MIB);
    b = take(rig, 30 * MIB);
    assert_int_equal(varve_alloc_set_allocated_limit(rig->alloc, 90 * MIB), VARVE_OK);
    take(rig, 20 * MIB);
    refused(rig, 512, VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(rig->message.text, "the limit of allocated bytes is reached"));
    varve_alloc_add_miss_callback(rig->alloc, giver_call, &giver);
    giver.addr = b;
    assert_int_equal(take(rig, 30 * MIB), b);
    assert_int_equal(giver.calls, 1);
    assert_int_equal(giver.miss.excess, 30 * MIB);
    assert_int_equal(giver.miss.rounded, 30 * MIB);
    giver.answer = false;
    refused(rig, 512, VARVE_ERROR_NO_MEMORY);
    give(rig, a);
    take(rig, 512);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 50 * MIB + 512);
    assert_int_equal(varve_alloc_set_allocated_limit(rig->alloc, 0), VARVE_OK);
    take(rig, 200 * MIB);
}

/* The block that the request would get is larger than the request, and so is its segment: neither may exceed the
 * limit, and what the device gave for it serves a later request. */
TEST_WITH(test_limit_counts_whole_blocks, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t segment;

    rig_open(rig, &(struct rig_options){.limit = 0});
    varve_alloc_set_allocated_limit(rig->alloc, 11 * MIB + MIB / 2);
    refused(rig, 11 * MIB + 512, VARVE_ERROR_NO_MEMORY); /* of a segment of 12 MiB, uncut */
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 0);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 12 * MIB);
    segment = calls_of(rig, VARVE_DEVICE_SEGMENT_ALLOC);
    varve_alloc_set_allocated_limit(rig->alloc, 12 * MIB);
    take(rig, 11 * MIB + 512);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 12 * MIB);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_SEGMENT_ALLOC), segment);
}

/* Callbacks that free one block at a time are called until the request fits. */
TEST_WITH(test_limit_calls_until_it_fits, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig, .answer = true};
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take(rig, 10 * MIB);
    b = take(rig, 10 * MIB);
    varve_alloc_set_allocated_limit(rig->alloc, 20 * MIB);
    varve_alloc_add_miss_callback(rig->alloc, giver_call, &giver);
    giver.addr = a;
    giver.next = b;
    take(rig, 14 * MIB);
    assert_int_equal(giver.calls, 2 + 1); /* and once for the pool, which has no block of that size */
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 14 * MIB);
}

/* ---- the last resort ---- */

static uint64_t resort_call(void *context, const struct varve_alloc_miss *miss)
{
    struct giver *giver = context;
    bool is_more = giver->addr != 0;

    giver_call(giver, miss);
    return is_more ? 20 * MIB : 0;
}

/* Called once all else has failed, until what it has freed serves, whether from the pool or by way of the device. */
TEST_WITH(test_last_resort_serves, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig};
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    a = take(rig, 20 * MIB);
    b = take(rig, 20 * MIB);
    varve_alloc_add_last_resort(rig->alloc, resort_call, &giver);
    take(rig, 20 * MIB);
    assert_int_equal(giver.calls, 0);
    forget(rig);
    giver.addr = a;
    giver.next = b;
    take(rig, 40 * MIB);
    assert_int_equal(giver.calls, 2);
    expect(rig, "oom_retry release_cached 40M freed 0M\n"
                "free_requested 20M\n"
                "free_completed 20M\n"
                "segment_free retry 20M\n"
                "oom_retry release_cached 40M freed 20M\n"
                "oom_retry last_resort 40M freed 20M\n"
                "free_requested 20M\n"
                "free_completed 20M\n"
                "segment_free retry 20M\n"
                "segment_alloc after_retry 40M\n"
                "oom_retry release_cached 40M freed 20M served\n"
                "oom_retry last_resort 40M freed 20M served\n"
                "alloc after_retry 40M\n");
}

/* It gives up: so does the request, with the accounting. */
TEST_WITH(test_last_resort_gives_up, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct giver giver = {.rig = rig};

    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    take(rig, 20 * MIB);
    giver.addr = take(rig, 20 * MIB);
    varve_alloc_add_last_resort(rig->alloc, resort_call, &giver);
    refused(rig, 60 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(giver.calls, 2);
    assert_non_null(strstr(rig->message.text, "after the callbacks for the last resort"));
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 20 * MIB);
    varve_alloc_remove_callbacks(rig->alloc, &giver);
    refused(rig, 60 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(giver.calls, 2);
}
