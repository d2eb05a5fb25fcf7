/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools: which requests they get, what leaves them and when, in which order their memory goes back,
 * and their two properties. While requests go to one, the allocator waits for no stream and gives nothing of
 * the default pool back.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

/* A free large and a free small segment in a pool. */
#define FILL(pool, mib) "[" #pool " a=" #mib "M b=512 -a -b ]" #pool " "

static const struct rig_case requests[] = {
    {"the newest one gets them, and one may end that is not the newest",
     {.limit = 0},
     "[1 [2 a=30M a#2 ]1 a=30M a#2 ]2 [2 [1 a=30M a#1 ]1 ]2 a=30M a#0"},
    {"a filter of streams, for small and large blocks, until requests no longer go to the pool",
     {.limit = 0},
     "[1@4 a=30M@4 a#1 pool=2 b=30M@5 b#0 pool=0 c=512@4 c#1 pool=3 ]1 a=30M@4 a#0"},
    {"a block goes back to the pool that it is from, whenever it is freed, and serves only there",
     {.limit = 0},
     "b=30M [1 a=30M -b ]1 -a 30M>b 30M!a [2 30M!a ]2 [1 30M>a ]1"},
};
TEST_PLAYS(test_requests, requests)

TEST_WITH(test_wrong_calls, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    const struct varve_pool_id none = {0, 0}, one = {0, 1};
    int error = VARVE_OK;
    rig_open(rig, &(struct rig_options){.limit = 0});
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, none, NULL, NULL), VARVE_ERROR_INVALID);
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, one), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_alloc_set_use_on_oom(rig->alloc, one, true), VARVE_ERROR_NOT_FOUND);
    play(rig, "[1");
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, one, NULL, NULL), VARVE_ERROR_BUSY);
    play(rig, "]1 ;1");
    assert_int_equal(varve_alloc_release_pool(rig->alloc, one), VARVE_ERROR_INVALID);
    for (uint64_t i = 2; error == VARVE_OK && i < 1000; i++) {
        error = varve_alloc_begin_allocate_to_pool(rig->alloc, (struct varve_pool_id){0, i}, NULL, NULL);
    }
    assert_int_equal(error, VARVE_ERROR_FULL);
    take(rig, 512);
}

/* ---- how their memory goes back ---- */

static const struct rig_case release[] = {
    {"the default pool first, large before small; then released pools as they were given up, small before large",
     {.limit = 0},
     FILL(1, 30) FILL(2, 32) "a=34M b=512 -b -a ;2 ;1 | empty <segment_free empty_cache 34M; "
                             "segment_free empty_cache 2M; segment_free pool_destroyed 2M; "
                             "segment_free pool_destroyed 32M; segment_free pool_destroyed 2M; "
                             "segment_free pool_destroyed 30M; empty_cache 102M segments 6> gone=1 gone=2"},
    {"pools with a reference stay: a second one, or one that was taken up again",
     {.limit = 0},
     FILL(1, 30) FILL(1, 30) ";1 empty reserved=32M ;1 [1 ]1 empty reserved=32M ;1 empty reserved=0"},
    {"a released pool with a block in use lives until that block is freed, and what is free goes before",
     {.limit = 0},
     "[1 a=30M b=32M ]1 ;1 -b empty reserved=30M a#1 -a | empty "
     "<segment_free pool_destroyed 30M; empty_cache 30M segments 1>"},
    {"the last reference went while requests still go to the pool",
     {.limit = 0},
     "[1 ;1 empty a=30M a#1 -a empty 512 ]1 empty"},
    {"in a capture, empty_cache leaves the default pool alone, but not released pools, and waits for nobody",
     {.limit = 0},
     "a=34M -a " FILL(1, 30) ";1 [2 | empty <segment_free pool_destroyed 2M; segment_free pool_destroyed 30M; "
                             "empty_cache 32M segments 2> syncs=0 ]2 empty reserved=0"},
    {"the last stage of the chain is not for captures",
     {.limit = 40 * MIB},
     "a=34M -a [1 | x30M <oom 30M> retries=0 ]1 36M retries=1"},
    {"released pools help the last stage too",
     {.limit = 40 * MIB},
     FILL(1, 30) ";1 | 36M <segment_free pool_destroyed 2M; segment_free pool_destroyed 30M; "
                 "segment_alloc after_retry 36M; oom_retry release_cached 36M freed 32M served; "
                 "alloc after_retry 36M>"},
};
TEST_PLAYS(test_release, release)

/* ---- properties ---- */

/* Whatever the policy is. */
TEST_WITH(test_no_split, rig_setup, rig_teardown)
{
    for (size_t i = 0; varve_alloc_policies()[i] != NULL; i++) {
        struct rig *rig = *state;
        rig_open(rig, &(struct rig_options){.policy = varve_alloc_policies()[i]});
        play(rig, "[1 nosplit=1 a=2M a{a20M} -a 3M>a a{a20M}");
        if (i == 0) { /* PyTorch's: other pools go on */
            play(rig, "b=512 b{a2M} ]1 2M splits=1");
        }
        rig_close(rig);
        memset(rig, 0, sizeof(*rig));
    }
}

static const struct rig_case lending[] = {
    {"free blocks of a pool serve a default request that would fail, before oversize blocks go, and come back to it",
     {.limit = 100 * MIB, .config = "max_split_size_mb:20"},
     "[1 lend=1 a=40M -a ]1 b=60M -b | 30M>a <alloc cache 40M> pool=2"},
    {"a part of one",
     {.limit = 60 * MIB},
     "[1 lend=1 a=30M -a ]1 20M allocs=2 | 16M>a <split 16M left 14M; alloc cache 16M> a#1 -a [1 30M>a ]1 pool=2"},
    {"only to the default pool, only on the same stream, only what that pool has free",
     {.limit = 40 * MIB},
     "[1 lend=1 a=30M ]1 x28M -a x28M@3 [2 x28M ]2 x32M 28M>a pool=2"},
    {"what expandable segments of the pool have is not lent",
     {.limit = 40 * MIB, .config = "expandable_segments:True"},
     "[1 a=30M -a ]1 lend=1 x20M"},
    {"it is a stage, which may be the last one that was tried",
     {.limit = 40 * MIB},
     "[1@5 x50M says{after a new segment;} lend=1 x50M says{after the pools for use on OOM;} ]1"},
};
TEST_PLAYS(test_use_on_oom, lending)

/* ---- how long they live: until they have neither references nor segments, of whatever kind ---- */

static const struct rig_case lives[] = {
    {"two requests that each mapped memory, one block that is unmapped: nothing is left",
     {.config = "expandable_segments:True"},
     "[1 a=30M b=30M ]1 ;1 -a empty there=1 -b empty gone=1"},
    {"one pool alone is emptied; what waits in the same queue, before it, is not; pool 1 has a reference at first, and "
     "pool 2 is held again at the end",
     {.sim.events_are_scripted = true},
     "a=5M -a [2 a=24M -a ]2 ;2 [1 a=30M b=512 -b ]1 b=26M a~5 b~5 -b -a | clear=1 <empty_cache 0M segments 0> syncs=0 "
     ";1 [2 busy=1 ]2 | clear=1 <free_completed 30M; segment_free pool_destroyed 2M; segment_free pool_destroyed 30M; "
     "empty_cache 32M segments 2> syncs=1 reserved=70M gone=1 clear=0 reserved=24M"},
};
TEST_PLAYS(test_lives, lives)

/* More than the field of a record can number: the last ones share a number. */
TEST_WITH(test_pools_without_end, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.limit = 0});
    for (uint64_t i = 2; i < 33001; i++) {
        struct varve_pool_id id = {i, 0};
        assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, id, NULL, NULL), VARVE_OK);
        assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, id), VARVE_OK);
        assert_int_equal(varve_alloc_release_pool(rig->alloc, id), VARVE_OK);
        assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_OK);
    }
    rig->count = rig->mark = 0;
    play(rig, "[1 512 3M ]1");
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 0)->pool, 65535);
    assert_int_equal(nth_record(rig, VARVE_KIND_ALLOC, 1)->pool, 65534);
}

/* A pool with an ordinary segment, of a state that began so, and expandable ones of which more pieces are
 * unmapped than were mapped. */
TEST_WITH(test_pool_of_both_kinds, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct varve_segment_info segment = {
        .addr = UINT64_C(0x7f0000000000), .bytes = 30 * MIB, .pool = {0, 1}, .block_count = 1};
    struct varve_block_info block = {
        .addr = segment.addr, .bytes = 30 * MIB, .requested = 29 * MIB, .state = VARVE_BLOCK_ACTIVE_ALLOCATED};
    struct varve_alloc_snapshot snapshot = {&segment, &block, 1, 1};
    rig_open(rig, &(struct rig_options){.config = "expandable_segments:True", .sim.first_addr = segment.addr});
    assert_int_equal(varve_alloc_restore(rig->alloc, &snapshot, &rig->message), VARVE_OK);
    rig->named['z' - 'a'] = segment.addr;
    play(rig, "[1@0 a=100M -a a=20M b=20M c=20M d=20M e=20M ]1 ;1 ;1 -a -c -e empty -z empty there=1 "
              "-b -d empty gone=1");
}
