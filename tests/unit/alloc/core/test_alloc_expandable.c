/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expandable segments: where memory is mapped, how much, what stays when the device fails half way, and what
 * is unmapped. Large pools grow in units of 20 MiB, small ones of 2; the device has 200 MiB, so a reservation
 * has 240.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

static void expandable_open(struct rig *rig, uint64_t limit)
{
    rig_open(rig, &(struct rig_options){
                      .sim.capacity_bytes = 200 * MIB, .config = "expandable_segments:True", .limit = limit});
}

TEST_WITH(test_first_growth, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 30 * MIB);
    expect(rig, "segment_map 40M\n"
                "split 30M left 10M\n"
                "alloc new_segment 30M\n");
    expect_segment(rig, a, "a30M -10M");
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_RESERVE), 1);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_CREATE), 2); /* by unit */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_MAP), 2);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS), 1); /* at once */
    assert_int_equal(varve_sim_used(rig->device), 40 * MIB);
}

/* What is free at the end is filled up first. */
TEST_WITH(test_growth_goes_on, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 30 * MIB);
    forget(rig);
    assert_int_equal(take(rig, 15 * MIB), a + 30 * MIB);
    expect(rig, "segment_map 20M\n"
                "merge previous 30M absorbed 10M\n"
                "split 15M left 15M\n"
                "alloc new_segment 15M\n");
    take(rig, 5 * MIB); /* a hit */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_CREATE), 3);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_RESERVE), 1);
}

/* One reservation for each pool and stream; small pools grow by 2 MiB. */
TEST_WITH(test_a_segment_per_stream_and_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    expandable_open(rig, 0);
    a = take(rig, 512);
    b = take_on(rig, 512, 3);
    c = take(rig, 2 * MIB);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_RESERVE), 3);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 24 * MIB);
    assert_true(b - a >= 226 * MIB && c - b >= 226 * MIB);
    expect_segment(rig, a, "a512 -2096640");
    take(rig, 1 * MIB);
    take(rig, 1 * MIB); /* 1 MiB - 512 are left: one more unit */
    expect_segment(rig, a, "a512 a1M a1M -2096640");
}

/* In large pools too every remainder is kept. */
TEST_WITH(test_any_remainder_is_kept, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 20 * MIB - 512);
    expect_segment(rig, a, "a20971008 -512");
    assert_int_equal(stats_of(rig).inactive_split[0].current, 0); /* never counted here */
    assert_int_equal(stats_of(rig).segment[0].current, 0);
    assert_int_equal(stats_of(rig).reserved_bytes[0].current, 20 * MIB);
    assert_int_equal(stats_of(rig).num_device_alloc, 1);
}

/* The limit is tested with the segment that there would be without expandable ones. */
TEST_WITH(test_limit_knows_no_units, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 30 * MIB);
    a = take(rig, 25 * MIB); /* a segment of 26 MiB would do: 40 are mapped */
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 40 * MIB);
    give(rig, a);
    empty_cache(rig);
    assert_int_equal(varve_alloc_set_memory_limit(rig->alloc, 21 * MIB), VARVE_OK);
    take(rig, 512);
    refused(rig, 2 * MIB, VARVE_ERROR_NO_MEMORY); /* 2 + 20 */
}

/* A block in the middle is taken rather than the one that could grow, if the search meets it next. */
TEST_WITH(test_least_growth, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    expandable_open(rig, 0);
    a = take(rig, 12 * MIB);
    b = take(rig, 18 * MIB); /* 10 MiB are left at the end */
    give(rig, a);
    assert_int_equal(take(rig, 8 * MIB), a);
    give(rig, a);
    assert_int_equal(take(rig, 12 * MIB), a);
    assert_int_equal(take(rig, 8 * MIB), b + 18 * MIB);
}

/* ---- unmapping ---- */

/* 5 used, 50 free, 5 used: of the units only the second is free as a whole. */
static uint64_t hole_prepare(struct rig *rig)
{
    uint64_t a, b;

    expandable_open(rig, 0);
    a = take(rig, 5 * MIB);
    b = take(rig, 50 * MIB);
    take(rig, 5 * MIB);
    give(rig, b);
    forget(rig);
    return a;
}

TEST_WITH(test_unmapping_leaves_the_edges, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a = hole_prepare(rig);

    empty_cache(rig);
    expect(rig, "segment_unmap empty_cache 20M\n"
                "empty_cache 20M segments 1\n");
    expect_segment(rig, a, "a5M -15M"); /* two ranges now */
    expect_segment(rig, a + 40 * MIB, "-15M a5M");
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 40 * MIB);
    assert_int_equal(varve_sim_used(rig->device), 40 * MIB);
    assert_int_equal(stats_of(rig).num_device_free, 1);
    empty_cache(rig);
    expect(rig, "empty_cache 0M segments 0\n");
}

/* Free memory on both sides of the hole counts for a request, at the lowest place. */
TEST_WITH(test_hole_is_filled, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a = hole_prepare(rig), base, bytes;

    empty_cache(rig);
    forget(rig);
    assert_int_equal(take(rig, 40 * MIB), a + 5 * MIB);
    expect(rig, "segment_map 20M\n"
                "merge previous 35M absorbed 15M\n"
                "merge next 50M absorbed 15M\n"
                "split 40M left 10M\n"
                "alloc new_segment 40M\n");
    assert_int_equal(varve_alloc_get_base_allocation(rig->alloc, a, &base, &bytes), VARVE_OK);
    assert_int_equal(base, a);
    assert_int_equal(bytes, 60 * MIB);
}

/* Too large for the hole: behind everything. */
TEST_WITH(test_hole_is_too_small, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a = hole_prepare(rig);

    empty_cache(rig);
    assert_int_equal(take(rig, 51 * MIB), a + 60 * MIB);
    expect_segment(rig, a, "a5M -15M");
    expect_segment(rig, a + 40 * MIB, "-15M a5M a51M -9M");
}

TEST_WITH(test_all_is_unmapped, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 30 * MIB);
    give(rig, a);
    give(rig, take(rig, 512));
    forget(rig);
    empty_cache(rig);
    expect(rig, "segment_unmap empty_cache 40M\n"
                "segment_unmap empty_cache 2M\n"
                "empty_cache 42M segments 2\n");
    assert_int_equal(varve_sim_used(rig->device), 0);
    assert_int_not_equal(take(rig, 30 * MIB), a); /* the addresses were given back too */
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_RESERVE), 3);
}

/* Less than a unit is free: nothing happens at all. */
TEST_WITH(test_no_whole_unit, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    expandable_open(rig, 0);
    take(rig, 5 * MIB);
    forget(rig);
    empty_cache(rig);
    expect(rig, "empty_cache 0M segments 0\n");
    assert_int_equal(stats_of(rig).num_device_free, 0);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_UNMAP), 0);
}

TEST_WITH(test_retry_unmaps, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take_on(rig, 150 * MIB, 3);
    give(rig, a);
    forget(rig);
    take(rig, 100 * MIB);
    expect(rig, "segment_unmap retry 160M\n"
                "segment_map 100M\n"
                "oom_retry release_cached 100M freed 160M served\n"
                "alloc after_retry 100M\n");
    assert_int_equal(stats_of(rig).num_alloc_retries, 1);
}

/* ---- a device in trouble ---- */

/* The third unit of four stays mapped, and the fourth with it: they are in use as before, and go the next time. */
TEST_WITH(test_device_keeps_units, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 80 * MIB);
    give(rig, a);
    forget(rig);
    varve_sim_fail(rig->device, VARVE_DEVICE_VMM_UNMAP, 3, 1, VARVE_ERROR_IO);
    assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_ERROR_IO);
    rig_check(rig);
    expect(rig, "segment_unmap empty_cache 40M\n"
                "empty_cache 40M segments 1\n");
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 40 * MIB);
    assert_int_equal(varve_sim_used(rig->device), 40 * MIB);
    assert_int_equal(take(rig, 40 * MIB), a + 40 * MIB);
    give(rig, a + 40 * MIB);
    assert_int_equal(take(rig, 80 * MIB), a); /* the two are mapped again */
    give(rig, a);
    empty_cache(rig);
    assert_int_equal(varve_sim_used(rig->device), 0);
}

/* The third unit of four can't be had, or mapped: nothing of the call remains. */
static void unit_fails(struct rig *rig, enum varve_device_call call, uint64_t nth)
{
    expandable_open(rig, 0);
    varve_sim_fail(rig->device, call, nth, 1, VARVE_ERROR_IO);
    refused(rig, 70 * MIB, VARVE_ERROR_IO);
    expect(rig, "");
    assert_int_equal(varve_sim_used(rig->device), 0);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
    take(rig, 70 * MIB);
    assert_int_equal(varve_sim_used(rig->device), 80 * MIB);
    rig_close(rig);
}

TEST_WITH(test_create_fails, rig_setup, rig_teardown)
{
    unit_fails(*state, VARVE_DEVICE_VMM_CREATE, 3);
}

TEST_WITH(test_map_fails, rig_setup, rig_teardown)
{
    unit_fails(*state, VARVE_DEVICE_VMM_MAP, 3);
}

TEST_WITH(test_access_fails, rig_setup, rig_teardown)
{
    unit_fails(*state, VARVE_DEVICE_VMM_SET_ACCESS, 1);
}

TEST_WITH(test_reserve_fails, rig_setup, rig_teardown)
{
    unit_fails(*state, VARVE_DEVICE_VMM_RESERVE, 1);
}

/* A lack of memory sends the request through its chain, and the second attempt succeeds. */
TEST_WITH(test_create_lacks_memory_once, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    expandable_open(rig, 0);
    varve_sim_fail(rig->device, VARVE_DEVICE_VMM_CREATE, 2, 1, VARVE_ERROR_NO_MEMORY);
    take(rig, 40 * MIB);
    expect(rig, "segment_map 40M\n"
                "oom_retry release_cached 40M freed 0M served\n"
                "alloc after_retry 40M\n");
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_RELEASE), 1);
}

/* Two holes to fill, the second one fails: the first stays mapped, and free. */
TEST_WITH(test_what_was_mapped_stays, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b, c;

    expandable_open(rig, 0);
    a = take(rig, 5 * MIB);
    b = take(rig, 50 * MIB);
    c = take(rig, 5 * MIB);
    give(rig, b);
    empty_cache(rig);
    give(rig, c);
    forget(rig);
    varve_sim_fail(rig->device, VARVE_DEVICE_VMM_CREATE, 2, 1, VARVE_ERROR_IO);
    refused(rig, 60 * MIB, VARVE_ERROR_IO);
    expect(rig, "segment_map 20M\n"
                "merge previous 35M absorbed 15M\n"
                "merge next 55M absorbed 20M\n");
    expect_segment(rig, a, "a5M -55M");
    assert_int_equal(take(rig, 60 * MIB), a + 5 * MIB);
}

/* More than all addresses of a segment: an error, and nothing stays mapped. */
TEST_WITH(test_larger_than_a_segment, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a;

    expandable_open(rig, 0);
    a = take(rig, 5 * MIB);
    refused(rig, 500 * MIB, VARVE_ERROR_NO_MEMORY);
    refused(rig, UINT64_C(1) << 59, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(varve_sim_used(rig->device), 20 * MIB);
    expect_segment(rig, a, "a5M -15M");
}

/* ---- pools and peers ---- */

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
    const struct varve_pool_id pool = {3, 4};
    uint64_t next = UINT64_C(1) << 40, a;

    rig_open(rig, &(struct rig_options){
                      .sim = {.capacity_bytes = 200 * MIB, .reservation_address = place_spy, .address_context = &next},
                      .config = "expandable_segments:True"});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, pool, NULL, NULL), VARVE_OK);
    a = take_on(rig, 512, 9);
    assert_int_equal(a, UINT64_C(1) << 40);
    assert_int_equal(seen_place.stream, 9);
    assert_int_equal(seen_place.pool_id[0], 3);
    assert_int_equal(seen_place.pool_id[1], 4);
    assert_true(seen_place.is_small);
    give(rig, a);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, pool), VARVE_OK);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, pool), VARVE_OK);
    empty_cache(rig);
    assert_int_equal(varve_sim_used(rig->device), 0);
}

/* A peer gets access to what is mapped, and to what will be. */
TEST_WITH(test_peers, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    expandable_open(rig, 0);
    take(rig, 30 * MIB);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS), 1);
    assert_int_equal(varve_alloc_enable_peer(rig->alloc, 1), VARVE_OK);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS), 3);
    take(rig, 30 * MIB);
    assert_int_equal(calls_of(rig, VARVE_DEVICE_VMM_SET_ACCESS), 5);
    assert_true(varve_alloc_enable_peer(rig->alloc, 0) < 0); /* itself */
    assert_true(varve_alloc_enable_peer(rig->alloc, -1) < 0);
}
