/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the allocator in the middle of a request: callbacks and observers that allocate, free,
 * empty the cache or drop the very pool that is asked, and other threads that do so while
 * release_lock_on_cudamalloc leaves the lock open. The device's operations are hooked, so that each case
 * happens at a known moment and needs no second thread. test_alloc_chaos.c does the same at random.
 * Costs: 1 s
 */
#include "support/alloc/hooks.h"

#include <pthread.h>

/* ---- callbacks ---- */

#define MAP_ROOM 2048U /* blocks in use before the allocator's table of them first doubles */

struct actor {
    struct rig *rig;
    uint64_t addr;  /* to give, 0: none */
    uint64_t bytes; /* to take then, 0: none */
    uint64_t taken;
    unsigned calls;
    bool empties;
};

static uint64_t act(void *context, const struct varve_alloc_miss *miss)
{
    struct actor *actor = context;
    (void)miss;
    if (actor->calls++ > 0) {
        return 0;
    }
    if (actor->addr != 0) {
        give(actor->rig, actor->addr);
    }
    if (actor->empties) {
        empty_cache(actor->rig);
    }
    if (actor->bytes != 0) {
        actor->taken = take(actor->rig, actor->bytes);
    }
    return 1;
}

/* The last free place of the table of blocks goes to a request of the callback. */
TEST_WITH(test_callback_takes_the_last_place, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig, .bytes = 512};
    rig_open(rig, &(struct rig_options){.limit = 0});
    uint64_t addr;
    for (unsigned i = 0; i + 1 < MAP_ROOM; i++) {
        assert_int_equal(varve_alloc_raw_alloc(rig->alloc, 512, &addr, NULL), VARVE_OK);
    }
    rig_check(rig);
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, act, &actor), VARVE_OK);
    addr = take(rig, 30 * MIB);
    assert_int_not_equal(actor.taken, 0);
    give(rig, addr);
    give(rig, actor.taken);
    rig->count = rig->mark = 0; /* more than a rig keeps */
}

/* Under a limit of 60 MiB, 40 of which are the block a and known to the actor. */
static void actor_open(struct rig *rig, struct actor *actor,
                       uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss))
{
    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    play(rig, "a=40M |");
    actor->addr = rig->named[0];
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, callback, actor), VARVE_OK);
}

/* What the callback frees it takes itself: the second search finds only what is left. */
TEST_WITH(test_callback_takes_what_it_frees, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig, .bytes = 24 * MIB};
    actor_open(rig, &actor, act);
    play(rig, "16M>a+24M <free_requested 40M; free_completed 40M; split 24M left 16M; alloc cache 24M; "
              "oom_retry callbacks 16M freed 16M served; alloc after_callbacks 16M>");
    assert_int_equal(actor.taken, actor.addr);
}

/* The cache is emptied between the free and the second search: the memory comes from the device. */
TEST_WITH(test_callback_empties_the_cache, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig, .empties = true};
    actor_open(rig, &actor, act);
    play(rig, "50M <free_requested 40M; free_completed 40M; segment_free empty_cache 40M; "
              "empty_cache 40M segments 1; oom_retry callbacks 50M freed 40M; segment_alloc new_segment 50M; "
              "alloc new_segment 50M>");
}

/* A request of the callback fails with the whole chain of its own, in the middle of the outer one. */
static uint64_t fail_inside(void *context, const struct varve_alloc_miss *miss)
{
    struct actor *actor = context;
    (void)miss;
    if (actor->calls++ == 0) {
        refused(actor->rig, 100 * MIB, VARVE_ERROR_NO_MEMORY);
    }
    return 1;
}

TEST_WITH(test_callback_runs_out_of_memory, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    actor_open(rig, &actor, fail_inside);
    play(rig, "-a 50M ooms=1 retries=1 segments=1");
    assert_int_equal(actor.calls, 2);
}

/* ---- the pool of the request goes ---- */

static const struct varve_pool_id graph = {4, 0};

static uint64_t drop_pool_once(void *context, const struct varve_alloc_miss *miss)
{
    struct actor *actor = context;
    (void)miss;
    if (actor->calls++ == 0) {
        assert_int_equal(varve_alloc_end_allocate_to_pool(actor->rig->alloc, graph), VARVE_OK);
        assert_int_equal(varve_alloc_release_pool(actor->rig->alloc, graph), VARVE_OK);
        empty_cache(actor->rig);
    }
    return 1;
}

static void drop_pool_hook(void *context)
{
    drop_pool_once(context, NULL);
}

/* The request has been promised a place in the pool, so the pool stays until the block has gone as well. */
static void pool_goes(struct rig *rig, struct actor *actor)
{
    actor->rig = rig;
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, graph, NULL, NULL), VARVE_OK);
    uint64_t addr = take(rig, 3 * MIB);
    assert_int_equal(actor->calls > 0, true);
    struct varve_alloc_snapshot snapshot;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    assert_int_equal(snapshot.segment_count, 1);
    assert_int_equal(snapshot.segments[0].pool.capture, graph.capture);
    varve_alloc_snapshot_free(&snapshot);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, (struct varve_pool_id){9, 9}), VARVE_ERROR_NOT_FOUND);
    give(rig, addr);
    empty_cache(rig);
    assert_int_equal(varve_alloc_memory_reserved(rig->alloc), 0);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, graph), VARVE_ERROR_NOT_FOUND);
    rig_close(rig);
}

TEST_WITH(test_callback_drops_the_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.calls = 0};
    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    actor.rig = rig;
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, drop_pool_once, &actor), VARVE_OK);
    pool_goes(rig, &actor);
}

TEST_WITH(test_another_thread_drops_the_pool, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.calls = 0};
    rig_open(rig, &(struct rig_options){.config = "release_lock_on_cudamalloc:True"});
    hook(rig, drop_pool_hook, &actor);
    pool_goes(rig, &actor);
}

/* A pool that fails its request is not kept by it. */
TEST_WITH(test_dropped_pool_without_memory, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    rig_open(rig, &(struct rig_options){.limit = 10 * MIB});
    assert_int_equal(varve_alloc_add_miss_callback(rig->alloc, drop_pool_once, &actor), VARVE_OK);
    assert_int_equal(varve_alloc_begin_allocate_to_pool(rig->alloc, graph, NULL, NULL), VARVE_OK);
    refused(rig, 30 * MIB, VARVE_ERROR_NO_MEMORY);
    empty_cache(rig);
    assert_int_equal(varve_alloc_set_no_split(rig->alloc, graph), VARVE_ERROR_NOT_FOUND);
}

/* ---- others act while the lock is open ---- */

static void others_take(void *context)
{
    struct actor *actor = context;
    uint64_t addr;
    for (unsigned i = 0; i < 3 * MAP_ROOM; i++) {
        assert_int_equal(varve_alloc_raw_alloc(actor->rig->alloc, 512, &addr, NULL), VARVE_OK);
    }
    actor->calls++;
}

/* They use up every descriptor and place that the waiting request had reserved. */
TEST_WITH(test_others_use_up_reserves, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    rig_open(rig, &(struct rig_options){.config = "release_lock_on_cudamalloc:True"});
    hook(rig, others_take, &actor);
    take(rig, 3 * MIB);
    assert_int_equal(actor.calls, 1);
    assert_int_equal(stats_of(rig).allocation[0].current, 3 * MAP_ROOM + 1);
    rig->count = rig->mark = 0;
}

static void *take_and_give(void *context)
{
    struct rig *rig = context;
    uint64_t addr = 0;
    return varve_alloc_raw_alloc(rig->alloc, 512, &addr, NULL) == VARVE_OK &&
                   varve_alloc_raw_delete(rig->alloc, addr, NULL) == VARVE_OK
               ? NULL
               : rig;
}

static void another_thread_allocates(void *context)
{
    struct actor *actor = context;
    pthread_t thread;
    void *result = actor;
    assert_int_equal(pthread_create(&thread, NULL, take_and_give, actor->rig), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    actor->calls++;
}

/* The lock is open while the device is asked, or this would never end. */
TEST_WITH(test_another_thread_allocates, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    rig_open(rig, &(struct rig_options){.config = "release_lock_on_cudamalloc:True"});
    play(rig, "a=512 -a");
    hook(rig, another_thread_allocates, &actor);
    play(rig, "30M");
    assert_int_equal(actor.calls, 1);
}

static void others_begin_a_capture(void *context)
{
    struct actor *actor = context;
    if (actor->calls++ == 0) {
        assert_int_equal(varve_alloc_begin_allocate_to_pool(actor->rig->alloc, graph, NULL, NULL), VARVE_OK);
    }
}

/* The pool was chosen before; but step (d) is not for the time of a capture. */
TEST_WITH(test_others_begin_a_capture, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    rig_open(rig, &(struct rig_options){.sim.capacity_bytes = 60 * MIB, .config = "release_lock_on_cudamalloc:True"});
    play(rig, "a=40M -a |");
    hook(rig, others_begin_a_capture, &actor);
    play(rig, "x50M <oom 50M>");
    hooks.on_segment_alloc = NULL;
    assert_int_equal(varve_alloc_end_allocate_to_pool(rig->alloc, graph), VARVE_OK);
    take(rig, 50 * MIB);
}

/* ---- observers ---- */

static void observer_acts(void *context, const struct varve_alloc_oom *oom)
{
    struct actor *actor = context;
    (void)oom;
    if (actor->calls++ == 0) {
        give(actor->rig, actor->addr);
        empty_cache(actor->rig);
        actor->taken = take(actor->rig, 8 * MIB);
        refused(actor->rig, 60 * MIB, VARVE_ERROR_NO_MEMORY);
    }
}

/* The failed request stays failed, as its message was; what the observer did holds. */
TEST_WITH(test_observer_allocates_and_frees, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    struct actor actor = {.rig = rig};
    rig_open(rig, &(struct rig_options){.limit = 60 * MIB});
    actor.addr = take(rig, 40 * MIB);
    assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, observer_acts, &actor), VARVE_OK);
    refused(rig, 50 * MIB, VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(rig->message.text, "52428800 bytes"));
    assert_int_equal(actor.calls, 2);
    assert_int_equal(stats_of(rig).num_ooms, 2);
    assert_int_equal(varve_alloc_memory_allocated(rig->alloc), 8 * MIB);
    give(rig, actor.taken);
    take(rig, 50 * MIB);
}

/* ---- the wait of step (d) fails ---- */

TEST_WITH(test_wait_of_the_retry_fails, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.sim = {.capacity_bytes = 60 * MIB, .events_are_scripted = true}});
    play(rig, "a=40M a~3 -a");
    hook(rig, NULL, NULL);
    hooks.synchronize_error = VARVE_ERROR_IO;
    play(rig, "X50M");
    assert_non_null(strstr(rig->message.text, "failed to wait for freed blocks: "));
    play(rig, "empty!");
    hooks.synchronize_error = 0;
    take(rig, 50 * MIB); /* the event was not lost */
}
