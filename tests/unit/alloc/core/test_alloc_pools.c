/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools: which requests they get, what leaves them and when, in which order their memory goes back,
 * and their two properties. While requests go to one, the allocator waits for no stream and gives nothing of
 * the default pool back.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

static const struct varve_pool_id one = {0, 1}, two = {5, 0};

static void begin(struct rig *rig, struct varve_pool_id id)
{
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, id, NULL, NULL), VARVE_OK);
    rig_check(rig);
}

static void end(struct rig *rig, struct varve_pool_id id)
{
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, id), VARVE_OK);
    rig_check(rig);
}

static void release(struct rig *rig, struct varve_pool_id id)
{
    assert_int_equal(varve_alloc_release_pool(rig->alloc, id), VARVE_OK);
    rig_check(rig);
}

/* The pool that the snapshot has for the segment that begins at `addr`. */
static struct varve_pool_id pool_at(struct rig *rig, uint64_t addr)
{
    struct varve_alloc_snapshot snapshot;
    struct varve_pool_id id = {99, 99};

    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        if (snapshot.segments[i].addr == addr) {
            id = snapshot.segments[i].pool;
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return id;
}

/* ---- which requests a pool gets ---- */

static bool is_stream(void *context, uint64_t stream)
{
    return *(const uint64_t *)context == stream;
}

TEST_WITH(test_filters, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t four = 4, a, b, c;

    rig_open(rig, &(struct rig_options){.limit = 0});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, one, is_stream, &four), VARVE_OK);
    a = take_on(rig, 30 * MIB, 4);
    b = take_on(rig, 30 * MIB, 5);
    c = take_on(rig, 512, 4);
    assert_int_equal(pool_at(rig, a).user, 1);
    assert_int_equal(pool_at(rig, b).user, 0);
    assert_int_equal(pool_at(rig, c).user, 1);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->pool, 2);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->pool, 0);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 2)->pool, 3);
    end(rig, one);
    assert_int_equal(pool_at(rig, take_on(rig, 30 * MIB, 4)).user, 0);
}

TEST_WITH(test_newest_comes_first, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 0});
    begin(rig, one);
    begin(rig, two);
    assert_int_equal(pool_at(rig, take(rig, 30 * MIB)).capture, 5);
    end(rig, one); /* also when it is not the newest */
    assert_int_equal(pool_at(rig, take(rig, 30 * MIB)).capture, 5);
    end(rig, two);
    begin(rig, two);
    begin(rig, one);
    assert_int_equal(pool_at(rig, take(rig, 30 * MIB)).user, 1);
    end(rig, one);
    end(rig, two);
    assert_int_equal(pool_at(rig, take(rig, 30 * MIB)).capture, 0);
}

/* A block goes back to the pool that it is from, whenever it is freed, and serves only there. */
TEST_WITH(test_blocks_stay_in_their_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    b = take(rig, 30 * MIB);
    begin(rig, one);
    a = take(rig, 30 * MIB);
    give(rig, b);
    end(rig, one);
    give(rig, a);
    assert_int_equal(take(rig, 30 * MIB), b);
    assert_int_not_equal(take(rig, 30 * MIB), a);
    begin(rig, two);
    assert_int_not_equal(take(rig, 30 * MIB), a);
    end(rig, two);
    begin(rig, one);
    assert_int_equal(take(rig, 30 * MIB), a);
    end(rig, one);
}

TEST_WITH(test_wrong_calls, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    const struct varve_pool_id none = {0, 0};
    int error = VARVE_OK;

    rig_open(rig, &(struct rig_options){.limit = 0});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, none, NULL, NULL), VARVE_ERROR_INVALID);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_set_use_on_oom(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    begin(rig, one);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, one, NULL, NULL), VARVE_ERROR_BUSY);
    end(rig, one);
    release(rig, one);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_ERROR_INVALID);
    for (uint64_t i = 2; error == VARVE_OK && i < 1000; i++) {
        error = varve_alloc_begin_allocate_to_pool(rig->alloc, (struct varve_pool_id){0, i}, NULL, NULL);
    }
    assert_int_equal(error, VARVE_ERROR_FULL);
    take(rig, 512);
}

/* ---- how their memory goes back ---- */

/* A free small and a free large segment. */
static void fill_pool(struct rig *rig, struct varve_pool_id id, uint64_t large)
{
    uint64_t a, b;

    begin(rig, id);
    a = take(rig, large);
    b = take(rig, 512);
    give(rig, a);
    give(rig, b);
    end(rig, id);
}

/* The default pool first, large before small; then released pools, small before large. */
TEST_WITH(test_order_of_release, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.limit = 0});
    fill_pool(rig, one, 30 * MIB);
    fill_pool(rig, two, 32 * MIB);
    a = take(rig, 34 * MIB);
    give(rig, take(rig, 512));
    give(rig, a);
    release(rig, two);
    release(rig, one); /* in the order in which they were given up */
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free empty_cache 34M\n"
                "segment_free empty_cache 2M\n"
                "segment_free pool_destroyed 2M\n"
                "segment_free pool_destroyed 32M\n"
                "segment_free pool_destroyed 2M\n"
                "segment_free pool_destroyed 30M\n"
                "empty_cache 102M segments 6\n");
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, one), VARVE_ERROR_NOT_FOUND); /* it is gone */
}

TEST_WITH(test_referenced_pools_stay, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 0});
    fill_pool(rig, one, 30 * MIB);
    fill_pool(rig, one, 30 * MIB); /* a second reference */
    release(rig, one);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 32 * MIB);
    release(rig, one);
    begin(rig, one); /* taken up again */
    end(rig, one);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 32 * MIB);
    release(rig, one);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
}

/* A released pool with a block in use lives until that block is freed, and what is free goes before. */
TEST_WITH(test_released_pool_in_use, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    begin(rig, one);
    a = take(rig, 30 * MIB);
    b = take(rig, 32 * MIB);
    end(rig, one);
    release(rig, one);
    give(rig, b);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 30 * MIB);
    assert_int_equal(pool_at(rig, a).user, 1);
    give(rig, a);
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free pool_destroyed 30M\n"
                "empty_cache 30M segments 1\n");
}

/* The last reference went while requests still go to the pool. */
TEST_WITH(test_released_pool_under_capture, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.limit = 0});
    begin(rig, one);
    release(rig, one);
    empty_cache(rig);
    a = take(rig, 30 * MIB);
    assert_int_equal(pool_at(rig, a).user, 1);
    give(rig, a);
    empty_cache(rig);
    take(rig, 512);
    end(rig, one);
    empty_cache(rig);
}

/* In a capture, empty_cache leaves the default pool alone, but not released pools. */
TEST_WITH(test_empty_cache_in_a_capture, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 0});
    give(rig, take(rig, 34 * MIB));
    fill_pool(rig, one, 30 * MIB);
    release(rig, one);
    begin(rig, two);
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_free pool_destroyed 2M\n"
                "segment_free pool_destroyed 30M\n"
                "empty_cache 32M segments 2\n");
    assert_int_equal(stats_of(rig).num_sync_all_streams, 0);
    end(rig, two);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
}

/* The last stage of the chain is not for captures. */
TEST_WITH(test_no_retry_in_a_capture, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB});
    give(rig, take(rig, 34 * MIB));
    begin(rig, one);
    forget(rig);
    refused(rig, 30 * MIB, VARVE_ERROR_NO_MEMORY);
    expect(rig, "oom 30M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 0);
    end(rig, one);
    take(rig, 36 * MIB);
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
}

/* Released pools help the last stage too. */
TEST_WITH(test_retry_takes_released_pools, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB});
    fill_pool(rig, one, 30 * MIB);
    release(rig, one);
    forget(rig);
    take(rig, 36 * MIB);
    expect(rig, "segment_free pool_destroyed 2M\n"
                "segment_free pool_destroyed 30M\n"
                "segment_alloc after_retry 36M\n"
                "oom_retry release_cached 36M freed 32M served\n"
                "alloc after_retry 36M\n");
}

/* ---- properties ---- */

TEST_WITH(test_no_split, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 0});
    begin(rig, one);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, one), VARVE_OK);
    a = take(rig, 2 * MIB);
    b = take(rig, 512);
    expect_segment(rig, a, "a20M");
    expect_segment(rig, b, "a2M");
    end(rig, one);
    take(rig, 2 * MIB); /* other pools go on */
    assert_int_equal(stats_of(rig).inactive_split[0].current, 1);
}

/* Free blocks of a pool serve a default request that would fail; they come back to it. */
TEST_WITH(test_use_on_oom, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, served;

    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    begin(rig, one);
    assert_int_equal(varve_alloc_set_use_on_oom(rig->alloc, one), VARVE_OK);
    a = take(rig, 30 * MIB);
    give(rig, a);
    end(rig, one);
    take(rig, 20 * MIB); /* there is memory: no pool serves */
    assert_int_equal(stats_of(rig).num_device_alloc, 2);
    forget(rig);
    served = take(rig, 16 * MIB);
    assert_int_equal(served, a);
    expect(rig, "split 16M left 14M\n"
                "alloc cache 16M\n");
    assert_int_equal(rig->records[rig->count - 1].pool, 2);
    assert_int_equal(pool_at(rig, a).user, 1);
    give(rig, served);
    begin(rig, one);
    assert_int_equal(take(rig, 30 * MIB), a);
    end(rig, one);
}

/* Only to the default pool, only on the same stream, only what that pool has free. */
TEST_WITH(test_use_on_oom_has_bounds, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB});
    begin(rig, one);
    assert_int_equal(varve_alloc_set_use_on_oom(rig->alloc, one), VARVE_OK);
    a = take(rig, 30 * MIB);
    end(rig, one);
    refused(rig, 28 * MIB, VARVE_ERROR_NO_MEMORY);
    give(rig, a);
    refused_on(rig, 28 * MIB, 3, VARVE_ERROR_NO_MEMORY);
    begin(rig, two);
    refused(rig, 28 * MIB, VARVE_ERROR_NO_MEMORY);
    end(rig, two);
    refused(rig, 32 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(take(rig, 28 * MIB), a);
}
