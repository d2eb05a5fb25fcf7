/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long private pools live: they go when they have neither references nor segments, of whatever kind, and
 * not before; one pool can be emptied by itself; ids may be used and dropped without end.
 * Costs: 1 s
 */
#include "support/alloc/hooks.h"

static const struct varve_pool_id one = {1, 0}, two = {2, 0};

static void begin(struct rig *rig, struct varve_pool_id id)
{
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, id, NULL, NULL), VARVE_OK);
}

static void end(struct rig *rig, struct varve_pool_id id)
{
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, id), VARVE_OK);
}

static void end_and_release(struct rig *rig, struct varve_pool_id id)
{
    end(rig, id);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, id), VARVE_OK);
}

static bool is_there(struct rig *rig, struct varve_pool_id id)
{
    return varve_alloc_empty_pool(rig->alloc, id) != VARVE_ERROR_NOT_FOUND;
}

/* More than the field of a record can number: the last ones share a number. */
TEST_WITH(test_pools_without_end, rig_setup, rig_teardown)
{
    struct rig *rig = *state;

    rig_open(rig, &(struct rig_options){.limit = 0});
    for (uint64_t i = 1; i < 33000; i++) {
        struct varve_pool_id id = {i, 0};
        begin(rig, id);
        end_and_release(rig, id);
        assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_OK);
    }
    rig->count = rig->mark = 0;
    begin(rig, one);
    take(rig, 512);
    take(rig, 3 * MIB);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->pool, 65535);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->pool, 65534);
    end(rig, one);
}

/* Two requests that each mapped memory, one block that is unmapped: nothing is left. */
TEST_WITH(test_expandable_pool_goes, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t a, b;

    rig_open(rig, &(struct rig_options){.config = "expandable_segments:True"});
    begin(rig, one);
    a = take(rig, 30 * MIB);
    b = take(rig, 30 * MIB);
    end_and_release(rig, one);
    give(rig, a);
    empty_cache(rig);
    assert_true(is_there(rig, one));
    give(rig, b);
    empty_cache(rig);
    assert_false(is_there(rig, one));
}

static bool take_place(void *context, uint64_t stream)
{
    return *(uint64_t *)context == stream;
}

/* A pool with an ordinary segment, of a state that began so, and expandable ones of which more pieces are
 * unmapped than were mapped. */
TEST_WITH(test_pool_of_both_kinds, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_segment_info segment = {
        .addr = UINT64_C(0x7f0000000000), .bytes = 30 * MIB, .pool = one, .block_count = 1};
    struct varve_block_info block = {
        .addr = segment.addr, .bytes = 30 * MIB, .requested = 29 * MIB, .state = VARVE_BLOCK_ACTIVE_ALLOCATED};
    struct varve_alloc_snapshot snapshot = {&segment, &block, 1, 1};
    uint64_t stream = 0, pieces[5];

    rig_open(rig, &(struct rig_options){.config = "expandable_segments:True", .sim.first_addr = segment.addr});
    assert_int_equal(varve_alloc_restore(rig->alloc, &snapshot, &rig->message), VARVE_OK);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, one, take_place, &stream), VARVE_OK);
    give(rig, take(rig, 100 * MIB));
    for (unsigned i = 0; i < 5; i++) {
        pieces[i] = take(rig, 20 * MIB);
    }
    end_and_release(rig, one);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_OK);
    for (unsigned i = 0; i < 5; i += 2) {
        give(rig, pieces[i]);
    }
    empty_cache(rig);
    give(rig, segment.addr);
    empty_cache(rig);
    assert_true(is_there(rig, one));
    give(rig, pieces[1]);
    give(rig, pieces[3]);
    empty_cache(rig);
    assert_false(is_there(rig, one));
}

/* ---- one pool alone ---- */

TEST_WITH(test_empty_one_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t waiting, other;

    rig_open(rig, &(struct rig_options){.sim.events_are_scripted = true});
    give(rig, take(rig, 5 * MIB));
    begin(rig, two);
    give(rig, take(rig, 24 * MIB));
    end_and_release(rig, two);
    begin(rig, one);
    waiting = take(rig, 30 * MIB);
    give(rig, take(rig, 512));
    end(rig, one);
    other = take(rig, 26 * MIB);
    use_on(rig, waiting, 5);
    use_on(rig, other, 5);
    give(rig, other); /* in the same queue, before it */
    give(rig, waiting);
    forget(rig);
    assert_int_equal(varve_alloc_empty_pool(rig->alloc, one), VARVE_OK); /* it has a reference */
    expect(rig, "empty_cache 0M segments 0\n");
    assert_int_equal(stats_of(rig).num_sync_all_streams, 0);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_OK);
    begin(rig, two);
    assert_int_equal(varve_alloc_empty_pool(rig->alloc, one), VARVE_ERROR_BUSY);
    end(rig, two);
    forget(rig);
    assert_int_equal(varve_alloc_empty_pool(rig->alloc, one), VARVE_OK);
    expect(rig, "free_completed 30M\n"
                "segment_free pool_destroyed 2M\n"
                "segment_free pool_destroyed 30M\n"
                "empty_cache 32M segments 2\n");
    rig_check(rig);
    assert_int_equal(stats_of(rig).num_sync_all_streams, 1);
    assert_int_equal(varve_alloc_empty_pool(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), (20 + 24 + 26) * MIB);
    assert_int_equal(varve_alloc_empty_pool(rig->alloc, (struct varve_pool_id){0, 0}), VARVE_OK);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 24 * MIB); /* pool two is held again */
}

/* ---- properties ---- */

/* Whatever the policy is. */
TEST_WITH(test_no_split_for_all_policies, rig_setup, rig_teardown)
{
    for (size_t i = 0; varve_alloc_policies()[i] != NULL; i++) {
        struct rig *rig = *state;
        uint64_t addr;

        rig_open(rig, &(struct rig_options){.policy = varve_alloc_policies()[i]});
        begin(rig, one);
        assert_int_equal(varve_alloc_set_no_split(rig->alloc, one), VARVE_OK);
        addr = take(rig, 2 * MIB);
        expect_segment(rig, addr, "a20M");
        give(rig, addr);
        assert_int_equal(take(rig, 3 * MIB), addr);
        expect_segment(rig, addr, "a20M");
        rig_close(rig);
    }
}

/* The last stage that was tried is that of the lenders. */
TEST_WITH(test_mempool_fallback_is_a_stage, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    uint64_t captured = 5;

    rig_open(rig, &(struct rig_options){.limit = 40 * MIB});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, two, take_place, &captured), VARVE_OK);
    refused(rig, 50 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(rig->message.text, "after a new segment;"));
    assert_int_equal(varve_alloc_set_use_on_oom(rig->alloc, two), VARVE_OK);
    refused(rig, 50 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(rig->message.text, "after the pools for use on OOM;"));
    end(rig, two);
}
