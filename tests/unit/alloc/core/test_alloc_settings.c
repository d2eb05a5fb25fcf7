/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be changed or asked while an allocator runs: the fraction and the limit, in both directions and at
 * their ends, what cache_info says, and peers.
 * Costs: 1 s
 */
#include "support/alloc/hooks.h"

/* A limit of nothing is a limit. */
TEST_WITH(test_fraction_of_nothing, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.config = "per_process_memory_fraction:0.0"});
    refused(rig, 512, VARVE_ERROR_NO_MEMORY);
    assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), 0, 0);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 0.5), VARVE_OK);
    take(rig, 512);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 1e-15), VARVE_OK);
    assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), 1e-15, 0);
    take(rig, 512); /* of what is there */
    refused(rig, 3 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 1), VARVE_OK);
    take(rig, 3 * MIB);
}

/* Below what is reserved: nothing is taken away, nothing new is given until enough has gone. */
TEST_WITH(test_limit_below_what_is_reserved, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.limit = 200 * MIB});
    a = take(rig, 60 * MIB);
    b = take(rig, 50 * MIB);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 80 * MIB), VARVE_OK);
    refused(rig, 20 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 110 * MIB);
    give(rig, b);
    assert_int_equal(take(rig, 49 * MIB), b); /* the cache is not under the limit */
    give(rig, a);
    assert_int_equal(take(rig, 30 * MIB), a);
    refused(rig, 40 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 0), VARVE_OK);
    take(rig, 400 * MIB);
}

/* Garbage collection begins with the first limit; ages count from then on. */
TEST_WITH(test_limit_switches_gc_on, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.config = "garbage_collection_threshold:0.5"});
    a = take(rig, 30 * MIB);
    b = take(rig, 34 * MIB);
    give(rig, a);
    give(rig, b);
    forget(rig);
    give(rig, take(rig, 36 * MIB));
    assert_int_equal(stats_of(rig).num_device_free, 0);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 150 * MIB), VARVE_OK);
    give(rig, take(rig, 28 * MIB)); /* a hit, which makes that one young */
    forget(rig);
    take(rig, 40 * MIB);
    expect(rig, "segment_free gc 34M\n"
                "segment_free gc 36M\n"
                "segment_alloc after_gc 40M\n"
                "oom_retry gc 40M freed 70M served\n"
                "alloc after_gc 40M\n");
}

/* ---- cache_info ---- */

static int no_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    (void)device;
    (void)free_out;
    (void)total_out;
    return VARVE_ERROR_IO;
}

TEST_WITH(test_cache_info, rig_setup, rig_teardown)
{
    const struct varve_pool_id pool = {1, 0};
    struct rig *rig = *state;
    uint64_t largest = 1, addr;

    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 100 * MIB);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
    addr = take_on(rig, 70 * MIB, 8);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 30 * MIB);
    give(rig, addr); /* of any pool and stream */
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 70 * MIB);
    hook(rig, NULL, NULL);
    hooks.ops.memory_info = no_memory_info;
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_ERROR_IO);
    assert_int_equal(largest, 0);
}

/* ---- peers ---- */

#define PEERS 255 /* as many as a device can name */

TEST_WITH(test_peers, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t before;

    rig_open(rig, &(struct rig_options){.config = "expandable_segments:True"});
    take(rig, 3 * MIB);
    varve_sim_fail(rig->device, VARVE_DEVICE_VMM_SET_ACCESS, 1, 1, VARVE_ERROR_IO);
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, 1), VARVE_ERROR_IO);
    for (int round = 0; round < 2; round++) { /* those that have access keep it */
        for (int peer = 1; peer <= PEERS; peer++) {
            if (varve_alloc_enable_peer(rig->alloc, peer) != VARVE_OK) {
                fail_msg("peer %d got no access", peer);
            }
        }
    }
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, 0), VARVE_ERROR_INVALID); /* itself */
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, PEERS + 1), VARVE_ERROR_INVALID);
    before = calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS);
    take(rig, 20 * MIB); /* one unit more: for the device itself and for each peer */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS) - before, 1 + PEERS);
}
