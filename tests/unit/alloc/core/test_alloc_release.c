/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes back to the device, in which order, and what stays: garbage collection with its ages, the release
 * of oversize blocks, and the release of everything. Several of these rules can't be learned from recorded
 * traces (a block of exactly the mean age, blocks that went in vain), so they are pinned here.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* ---- garbage collection ---- */

/* The limit is 200 MiB and the collector begins above 100. */
static void gc_open(struct rig *rig)
{
    rig_open(rig, &(struct rig_options){.limit = 200 * MIB, .config = "garbage_collection_threshold:0.5"});
}

/* One search of the large pool, one more year of age for what is free in it. The block stays. */
static void gc_age(struct rig *rig)
{
    take(rig, 10 * MIB);
}

/* Two blocks of one age: both are exactly at the mean. */
TEST_WITH(test_gc_takes_the_mean_age, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    gc_open(rig);
    a = take(rig, 60 * MIB);
    b = take(rig, 50 * MIB);
    give(rig, a);
    give(rig, b);
    forget(rig);
    take(rig, 70 * MIB);
    expect(rig, "segment_free gc 50M\n" /* by size; not stopping when the target of 10 MiB is reached */
                "segment_free gc 60M\n"
                "segment_alloc after_gc 70M\n"
                "oom_retry gc 70M freed 110M served\n"
                "alloc after_gc 70M\n");
}

/* Free blocks of 30, 32 and 34 MiB with ages 3, 2 and 1 at the next search; 180 MiB are reserved. */
static void gc_three_ages(struct rig *rig)
{
    uint64_t a, b, c;

    rig_open(rig, &(struct rig_options){.config = "garbage_collection_threshold:0.5", .limit = 400 * MIB});
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    c = take(rig, 34 * MIB);
    give(rig, a);
    take(rig, 40 * MIB);
    give(rig, b);
    take(rig, 44 * MIB);
    give(rig, c);
    forget(rig);
}

/* The mean is exactly the age of the middle one, which goes; the youngest stays. */
TEST_WITH(test_gc_takes_the_middle_one, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    gc_three_ages(rig);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 358 * MIB), VARVE_OK);
    forget(rig);
    take(rig, 60 * MIB); /* 1 MiB is the target */
    expect(rig, "segment_free gc 30M\n"
                "segment_free gc 32M\n"
                "segment_alloc after_gc 60M\n"
                "oom_retry gc 60M freed 62M served\n"
                "alloc after_gc 60M\n");
}

/* 80 MiB are the target: a second pass, of what is left, takes the third. */
TEST_WITH(test_gc_passes_again, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    gc_three_ages(rig);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 200 * MIB), VARVE_OK);
    forget(rig);
    take(rig, 100 * MIB);
    expect(rig, "segment_free gc 30M\n"
                "segment_free gc 32M\n"
                "segment_free gc 34M\n"
                "segment_alloc after_gc 100M\n"
                "oom_retry gc 100M freed 96M served\n"
                "alloc after_gc 100M\n");
}

TEST_WITH(test_gc_leaves_the_young, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    gc_open(rig);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    c = take(rig, 34 * MIB);
    give(rig, a);
    gc_age(rig); /* splits a: it is no whole segment any more */
    give(rig, b);
    take(rig, 40 * MIB);
    give(rig, c);
    forget(rig);
    take(rig, 60 * MIB);
    expect(rig, "segment_free gc 32M\n" /* ages 2 and 1; the remainder of 20 MiB does not count */
                "segment_free gc 34M\n" /* 36 MiB were the target */
                "segment_alloc after_gc 60M\n"
                "oom_retry gc 60M freed 66M served\n"
                "alloc after_gc 60M\n");
}

/* A block that was used and freed again is young again. */
TEST_WITH(test_gc_ages_begin_with_each_free, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    gc_open(rig);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    give(rig, a);
    give(rig, b);
    take(rig, 40 * MIB);
    assert_int_equal(take(rig, 30 * MIB), a);
    give(rig, a);
    forget(rig);
    take(rig, 60 * MIB);
    expect(rig, "segment_free gc 32M\n"
                "segment_alloc after_gc 60M\n"
                "oom_retry gc 60M freed 32M served\n"
                "alloc after_gc 60M\n");
}

TEST_WITH(test_gc_only_above_its_threshold, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    gc_open(rig);
    a = take(rig, 40 * MIB);
    take(rig, 60 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 50 * MIB); /* 100 MiB are reserved: not above */
    expect(rig, "segment_alloc new_segment 50M\n"
                "alloc new_segment 50M\n");
    take(rig, 44 * MIB);
    expect(rig, "segment_free gc 40M\n"
                "segment_alloc after_gc 44M\n"
                "oom_retry gc 44M freed 40M served\n"
                "alloc after_gc 44M\n");
}

/* It ran and found nothing: the new segment is no merit of its. Small blocks are never collected. */
TEST_WITH(test_gc_without_garbage, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    gc_open(rig);
    take(rig, 110 * MIB);
    a = take(rig, 512);
    give(rig, a);
    forget(rig);
    take(rig, 20 * MIB);
    expect(rig, "segment_alloc new_segment 20M\n"
                "oom_retry gc 20M freed 0M served\n"
                "alloc new_segment 20M\n");
}

TEST_WITH(test_gc_needs_a_limit, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB, .config = "garbage_collection_threshold:0.1"});
    a = take(rig, 40 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 50 * MIB);
    expect(rig, "segment_alloc new_segment 50M\n"
                "alloc new_segment 50M\n");
}

/* ---- release of oversize blocks ---- */

static void oversize_open(struct rig *rig, uint64_t limit)
{
    rig_open(rig, &(struct rig_options){.limit = limit, .config = "max_split_size_mb:20"});
}

/* Whole segments of these sizes in MiB, free, their addresses rising; 0 ends the list. */
static void hoard(struct rig *rig, uint64_t stream, const uint64_t *sizes)
{
    uint64_t addrs[8];
    size_t count = 0;

    for (; sizes[count] != 0; count++) {
        addrs[count] = take_on(rig, sizes[count] * MIB, stream);
    }
    for (size_t i = 0; i < count; i++) {
        give(rig, addrs[i]);
    }
}

TEST_WITH(test_available_takes_the_smallest_that_does, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    oversize_open(rig, 200 * MIB);
    hoard(rig, 0, (uint64_t[]){70, 24, 60, 0});
    take_on(rig, 40 * MIB, 5);
    forget(rig);
    take(rig, 30 * MIB);
    expect(rig, "segment_free release_available 60M\n"
                "segment_alloc after_release 30M\n"
                "oom_retry release_available 30M freed 60M served\n"
                "alloc after_release 30M\n");
}

/* Enough of the largest ones, exactly enough here. */
TEST_WITH(test_available_takes_several, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    oversize_open(rig, 100 * MIB);
    hoard(rig, 0, (uint64_t[]){24, 22, 26, 0});
    take_on(rig, 22 * MIB, 5);
    forget(rig);
    take(rig, 50 * MIB);
    expect(rig, "segment_free release_available 26M\n"
                "segment_free release_available 24M\n"
                "segment_alloc after_release 50M\n"
                "oom_retry release_available 50M freed 50M served\n"
                "alloc after_release 50M\n");
}

/* A request below max_split_size needs as much as an oversize one. */
TEST_WITH(test_available_for_a_smaller_request, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    oversize_open(rig, 60 * MIB);
    hoard(rig, 0, (uint64_t[]){22, 30, 0});
    take_on(rig, 4 * KIB, 5);
    forget(rig);
    take(rig, 12 * MIB);
    expect(rig, "segment_free release_available 22M\n"
                "segment_alloc after_release 12M\n"
                "oom_retry release_available 12M freed 22M served\n"
                "alloc after_release 12M\n");
}

/* Smaller blocks, and those of other streams, stay for the last stage. */
TEST_WITH(test_available_finds_none, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    oversize_open(rig, 100 * MIB);
    hoard(rig, 5, (uint64_t[]){60, 0});
    a = take(rig, 12 * MIB);
    give(rig, a);
    forget(rig);
    take(rig, 30 * MIB);
    expect(rig, "oom_retry release_available 30M freed 0M\n"
                "segment_free retry 12M\n"
                "segment_free retry 60M\n"
                "segment_alloc after_retry 30M\n"
                "oom_retry release_cached 30M freed 72M served\n"
                "alloc after_retry 30M\n");
}

/* What went before the stage gave up stays gone. */
TEST_WITH(test_available_in_vain, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    oversize_open(rig, 100 * MIB);
    take_on(rig, 40 * MIB, 5);
    hoard(rig, 0, (uint64_t[]){22, 24, 0});
    forget(rig);
    refused(rig, 80 * MIB, VARVE_ERROR_NO_MEMORY);
    expect(rig, "segment_free release_available 24M\n"
                "segment_free release_available 22M\n"
                "oom_retry release_available 80M freed 46M\n"
                "oom_retry release_cached 80M freed 0M\n"
                "oom 80M\n");
    assert_int_equal(stats_of(rig).oversize_segments.current, 1);
    assert_int_equal(stats_of(rig).oversize_segments.freed, 2);
}

/* ---- release of everything ---- */

/* Large before small; by stream, then size, then address; what is in use stays. */
TEST_WITH(test_empty_cache_order, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t small, large;

    rig_open(rig, &(struct rig_options){.limit = 0});
    hoard(rig, 9, (uint64_t[]){30, 0});
    hoard(rig, 2, (uint64_t[]){34, 0});
    hoard(rig, 0, (uint64_t[]){40, 32, 32, 0});
    small = take_on(rig, 512, 3);
    large = take(rig, 1 * MIB);
    take_on(rig, 512, 4);
    take(rig, 33 * MIB); /* a piece of the block of 40 */
    give(rig, small);
    give(rig, large);
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free empty_cache 32M\n"
                "segment_free empty_cache 32M\n"
                "segment_free empty_cache 34M\n"
                "segment_free empty_cache 30M\n"
                "segment_free empty_cache 2M\n"
                "segment_free empty_cache 2M\n"
                "empty_cache 132M segments 6\n");
    assert_true(rig->records[rig->mark - 7].addr < rig->records[rig->mark - 6].addr);
    assert_int_equal(stats_of(rig).num_sync_all_streams, 1);
    assert_int_equal(stats_of(rig).num_device_free, 6);
    empty_cache(rig);
    expect(rig, "empty_cache 0M segments 0\n");
}

TEST_WITH(test_empty_cache_leaves_pieces, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    a = take(rig, 8 * MIB);
    b = take(rig, 8 * MIB);
    give(rig, a);
    forget(rig);
    empty_cache(rig);
    expect(rig, "empty_cache 0M segments 0\n");
    expect_segment(rig, a, "-8M a8M -4M");
    give(rig, b);
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free empty_cache 20M\n"
                "empty_cache 20M segments 1\n");
}

/* It waits for streams, and what becomes free by that goes as well. */
TEST_WITH(test_empty_cache_waits, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    a = take(rig, 30 * MIB);
    use_on(rig, a, 7);
    use_on(rig, a, 8);
    give(rig, a);
    forget(rig);
    empty_cache(rig);
    expect(rig, "free_completed 30M\n"
                "segment_free empty_cache 30M\n"
                "empty_cache 30M segments 1\n");
}

/* ---- a device that does not take memory back ---- */

/* What it keeps stays in the cache, counted, and can be used and given back later. */
TEST_WITH(test_device_keeps_a_segment, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    rig_open(rig, &(struct rig_options){0});
    a = take(rig, 30 * MIB);
    b = take(rig, 40 * MIB);
    c = take(rig, 50 * MIB);
    give(rig, a);
    give(rig, b);
    give(rig, c);
    forget(rig);
    varve_sim_fail(rig->device, VARVE_DEVICE_SEGMENT_FREE, 2, 1, VARVE_ERROR_IO);
    assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_ERROR_IO);
    rig_check(rig);
    expect(rig, "segment_free empty_cache 30M\n"
                "segment_free empty_cache 40M\n"
                "segment_alloc new_segment 40M\n"
                "segment_free empty_cache 50M\n"
                "empty_cache 80M segments 2\n");
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 40 * MIB);
    assert_int_equal(varve_sim_used(rig->device), 40 * MIB);
    assert_int_equal(take(rig, 40 * MIB), b);
    give(rig, b);
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free empty_cache 40M\n"
                "empty_cache 40M segments 1\n");
    assert_int_equal(varve_sim_used(rig->device), 0);
}
