/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments: where memory is mapped, how much, what stays when the device fails half way, and what
 * is unmapped. Large pools grow in units of 20 MiB, small ones of 2; the device has 200 MiB, so a reservation
 * has 240.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#define EXPANDABLE                                                            \
    {                                                                         \
        .sim.capacity_bytes = 200 * MIB, .config = "expandable_segments:True" \
    }
/* 5 used, 50 free, 5 used: of the units only the second is free as a whole. */
#define HOLE "a=5M b=50M c=5M -b | "
/* The third unit of four can't be had, or mapped: nothing of the call remains. */
#define NOTHING_REMAINS "X70M <> used=0 reserved=0 70M used=80M"

static const struct rig_case growth[] = {
    {"the first growth is created and mapped by unit, made accessible at once", EXPANDABLE,
     "a=30M <segment_map 40M; split 30M left 10M; alloc new_segment 30M> a{a30M -10M} "
     "reserve=1 create=2 map=2 access=1 used=40M"},
    {"what is free at the end is filled up first", EXPANDABLE,
     "a=30M | 15M>a+30M <segment_map 20M; merge previous 30M absorbed 10M; split 15M left 15M; "
     "alloc new_segment 15M> 5M create=3 reserve=1"},
    {"small pools grow by 2 MiB: of one unit 1 MiB - 512 were left", EXPANDABLE,
     "a=512 reserved=2M a{a512 -2096640} 1M 1M a{a512 a1M a1M -2096640}"},
    {"in large pools too every remainder is kept, and never counted as a split or a segment", EXPANDABLE,
     "a=20M-512 a{a20971008 -512} splits=0 segments=0 reserved=20M allocs=1"},
    {"the limit is tested with the segment that there would be without expandable ones",
     {.sim.capacity_bytes = 200 * MIB, .config = "expandable_segments:True", .limit = 30 * MIB},
     "a=25M reserved=40M -a empty limit=21M 512 x2M"},
    {"a block in the middle is taken rather than the one that could grow, if the search meets it next", EXPANDABLE,
     "a=12M b=18M -a 8M>a -a 12M>a 8M>b+18M"},
    {"of equal blocks in the middle the lowest is taken", EXPANDABLE, "a=8M 2M c=8M 2M -a -c 8M>a"},
    {"more than all addresses of a segment is an error, and nothing stays mapped", EXPANDABLE,
     "a=5M x500M x576460752303423488 used=20M a{a5M -15M}"},
};
TEST_PLAYS(test_growth, growth)

static const struct rig_case unmapping[] = {
    {"unmapping leaves the edges: two ranges now", EXPANDABLE,
     HOLE "empty <segment_unmap empty_cache 20M; empty_cache 20M segments 1> a{a5M -15M} a+40M{-15M a5M} "
          "reserved=40M used=40M frees=1 empty <empty_cache 0M segments 0>"},
    {"too large for the hole: behind everything", EXPANDABLE,
     HOLE "empty 51M>a+60M a{a5M -15M} a+40M{-15M a5M a51M -9M}"},
    {"all is unmapped, and the addresses are given back too", EXPANDABLE,
     "a=30M -a b=512 -b | empty <segment_unmap empty_cache 40M; segment_unmap empty_cache 2M; "
     "empty_cache 42M segments 2> used=0 30M!a reserve=3"},
    {"less than a unit is free: nothing happens at all", EXPANDABLE,
     "5M | empty <empty_cache 0M segments 0> frees=0 unmap=0"},
    {"a retry unmaps", EXPANDABLE,
     "a=150M@3 -a | 100M <segment_unmap retry 160M; segment_map 100M; "
     "oom_retry release_cached 100M freed 160M served; alloc after_retry 100M> retries=1"},
};
TEST_PLAYS(test_unmapping, unmapping)

/* Free memory on both sides of the hole counts for a request, at the lowest place. */
TEST_WITH(test_hole_is_filled, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options)EXPANDABLE);
    play(rig, HOLE "empty | 40M>a+5M <segment_map 20M; merge previous 35M absorbed 15M; "
                   "merge next 50M absorbed 15M; split 40M left 10M; alloc new_segment 40M>");
    uint64_t base, bytes;
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, rig->named[0], &base, &bytes), VARVE_OK);
    assert_int_equal(base, rig->named[0]);
    assert_int_equal(bytes, 60 * MIB);
}

/* One reservation for each pool and stream. */
TEST_WITH(test_a_segment_per_stream_and_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options)EXPANDABLE);
    play(rig, "a=512 b=512@3 c=2M reserve=3 reserved=24M");
    assert_true(rig->named[1] - rig->named[0] >= 226 * MIB && rig->named[2] - rig->named[1] >= 226 * MIB);
}

/* ---- a device in trouble ---- */

static const struct rig_case trouble[] = {
    {"the third unit of four stays mapped, and the fourth with it: they are in use as before, and go the next time",
     EXPANDABLE,
     "a=80M -a | fail:unmap:3 empty! <segment_unmap empty_cache 40M; empty_cache 40M segments 1> "
     "reserved=40M used=40M b=40M>a+40M -b 80M>a -a empty used=0"},
    {"a unit can't be created", EXPANDABLE, "fail:create:3 " NOTHING_REMAINS},
    {"a unit can't be mapped", EXPANDABLE, "fail:map:3 " NOTHING_REMAINS},
    {"units can't be made accessible", EXPANDABLE, "fail:access:1 " NOTHING_REMAINS},
    {"addresses can't be reserved", EXPANDABLE, "fail:reserve:1 " NOTHING_REMAINS},
    {"a lack of memory sends the request through its chain, and the second attempt succeeds", EXPANDABLE,
     "lack:create:2 40M <segment_map 40M; oom_retry release_cached 40M freed 0M served; alloc after_retry 40M> "
     "release=1"},
    {"two holes to fill, the second one fails: the first stays mapped, and free", EXPANDABLE,
     HOLE "empty -c | fail:create:2 X60M <segment_map 20M; merge previous 35M absorbed 15M; "
          "merge next 55M absorbed 20M> a{a5M -55M} 60M>a+5M"},
};
TEST_PLAYS(test_trouble, trouble)

/* ---- pools, peers and settings ---- */

static const struct rig_case settings[] = {
    {"once segments are ordinary ones, free memory of expandable ones serves nobody: the larger block does",
     {.limit = 0},
     "b=50M expand=1 a=30M -a a{-40M} -b expand=0 38M>b 20M!a"},
    {"a peer gets access to what is mapped, and to what will be", EXPANDABLE,
     "30M access=1 peer=1 access=3 30M access=5"},
};
TEST_PLAYS(test_settings, settings)

static struct varve_device_reservation seen_place;

static int place_spy(void *context, uint64_t bytes, uint64_t stream, const struct varve_device_reservation *place,
                     uint64_t *addr_out)
{
    (void)stream;
    seen_place = *place;
    *addr_out = *(uint64_t *)context;
    *(uint64_t *)context += bytes;
    return 0;
}

/* A scripted device learns whose addresses they are. */
TEST_WITH(test_private_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t next = UINT64_C(1) << 40;
    rig_open(rig, &(struct rig_options){
                      .sim = {.capacity_bytes = 200 * MIB, .reservation_address = place_spy, .address_context = &next},
                      .config = "expandable_segments:True"});
    play(rig, "[4 a=512@9");
    assert_int_equal(rig->named[0], UINT64_C(1) << 40);
    assert_int_equal(seen_place.stream, 9);
    assert_true(seen_place.pool_id[0] == 0 && seen_place.pool_id[1] == 4 && seen_place.is_small);
    play(rig, "-a ]4 ;4 empty used=0");
}
