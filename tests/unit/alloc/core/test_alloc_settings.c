/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be changed or asked while an allocator runs: the fraction and the limit, in both directions and at
 * their ends, what cache_info says, and peers.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

static const struct rig_case limits[] = {
    {"a fraction of the device",
     {.sim.capacity_bytes = 100 * MIB, .config = "per_process_memory_fraction:0.4"},
     "20M 20M x512 percent=42 512 x2M percent=100 20M"},
    {"a limit of nothing is a limit",
     {.config = "per_process_memory_fraction:0.0"},
     "x512 percent=50 512 limit=1 512 x3M percent=100 3M"}, /* of what is there */
    {"a limit below what is reserved: nothing is taken away, nothing new is given until enough has gone; the cache is "
     "not under the limit",
     {.limit = 200 * MIB},
     "a=60M b=50M limit=80M x20M reserved=110M -b 49M>b -a 30M>a x40M limit=0 400M"},
};
TEST_PLAYS(test_limits, limits)

/* As small as it likes: it is a limit all the same. */
TEST_WITH(test_fraction_of_nothing, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.config = "per_process_memory_fraction:0.0"});
    assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), 0, 0);
    assert_int_equal(varve_alloc_set_memory_fraction(rig->alloc, 1e-15), VARVE_OK);
    play(rig, "x3M");
}

TEST_WITH(test_rounded_size, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    bool is_small = false;
    rig_open(rig, &(struct rig_options){.limit = 0});
    assert_int_equal(varve_alloc_rounded_size(rig->alloc, 0, NULL), 0);
    assert_int_equal(varve_alloc_rounded_size(rig->alloc, UINT64_C(1) << 60, NULL), 0);
    assert_int_equal(varve_alloc_rounded_size(rig->alloc, MIB - 1, &is_small), MIB);
    assert_true(is_small);
    assert_int_equal(varve_alloc_rounded_size(rig->alloc, MIB + 1, &is_small), MIB + 512);
    assert_false(is_small);
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
    uint64_t largest = 1;
    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 100 * MIB});
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 100 * MIB);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
    uint64_t addr = take_on(rig, 70 * MIB, 8);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 30 * MIB);
    give(rig, addr); /* of any pool and stream */
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_OK);
    assert_int_equal(largest, 70 * MIB);
    rig_hook(rig, NULL, NULL);
    rig->ops.memory_info = no_memory_info;
    assert_int_equal(varve_alloc_cache_info(rig->alloc, &largest), VARVE_ERROR_IO);
    assert_int_equal(largest, 0);
}

/* ---- peers ---- */

#define PEERS 255 /* as many as a device can name */

TEST_WITH(test_peers, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
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
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, -1), VARVE_ERROR_INVALID);
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, PEERS + 1), VARVE_ERROR_INVALID);
    uint64_t before = calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS);
    take(rig, 20 * MIB); /* one unit more: for the device itself and for each peer */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS) - before, 1 + PEERS);
}
