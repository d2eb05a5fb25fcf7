/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to the allocator in the middle of a request: callbacks and observers that allocate, free,
 * empty the cache or drop the very pool that is asked, and other threads that do so while
 * release_lock_on_cudamalloc leaves the lock open. The device's operations are hooked, so that each case
 * happens at a known moment and needs no second thread. test_alloc_chaos.c does the same at random.
 * Runs threads: one, in the middle of a request.
 * Costs: 1 s
 */
#include "support/alloc/rig.h"

#define OPEN_LOCK "release_lock_on_cudamalloc:True"
/* The pool of the request goes. The request has been promised a place in it, so it stays until the block has gone. */
#define POOL_GOES "[7 in{]7 ;7 empty} a=3M a#7 segments=1 gone=9 -a empty reserved=0 gone=7"

static const struct rig_case cases[] = {
    {"what a callback frees it takes itself: the second search finds only what is left",
     {.limit = 60 * MIB},
     "a=40M | miss=1 in{-a t=24M>a} 16M>a+24M <free_requested 40M; free_completed 40M; split 24M left 16M; "
     "alloc cache 24M; oom_retry callbacks 16M freed 16M served; alloc after_callbacks 16M>"},
    {"the cache is emptied between the free and the second search: the memory comes from the device",
     {.limit = 60 * MIB},
     "a=40M | miss=1 in{-a empty} 50M <free_requested 40M; free_completed 40M; segment_free empty_cache 40M; "
     "empty_cache 40M segments 1; oom_retry callbacks 50M freed 40M; segment_alloc new_segment 50M; "
     "alloc new_segment 50M>"},
    {"a request of the callback fails with the whole chain of its own, in the middle of the outer one",
     {.limit = 60 * MIB},
     "a=40M miss=1 in{x100M} -a 50M ooms=1 retries=1 segments=1 called=2"},
    {"a callback drops the pool", {.limit = 60 * MIB}, "miss=1 " POOL_GOES " called=1"},
    {"another thread drops the pool", {.config = OPEN_LOCK}, "device " POOL_GOES},
    {"a pool that fails its request is not kept by "
     "it",
     {.limit = 10 * MIB},
     "miss=1 [7 in{]7 ;7 empty} x30M empty "
     "gone=7"},
    {"another thread begins a capture: the pool was chosen before; but step (d) is not for the time of a capture",
     {.sim.capacity_bytes = 60 * MIB, .config = OPEN_LOCK},
     "a=40M -a | device in{[7} x50M <oom 50M> ]7 50M"},
    {"an observer allocates and frees: the failed request stays failed, as its message was; what the observer did "
     "holds",
     {.limit = 60 * MIB},
     "a=40M observe in{-a empty t=8M x60M} x50M says{52428800 bytes} observed=2 ooms=2 allocated=8M -t 50M"},
    {"the wait of step (d) fails, and the event is not lost",
     {.sim = {.capacity_bytes = 60 * MIB, .events_are_scripted = true}},
     "a=40M a~3 -a device nowait=1 X50M says{failed to wait for freed blocks: } empty! nowait=0 50M"},
};
TEST_PLAYS(test_reentry, cases)

/* ---- the allocator's table of blocks ---- */

#define MAP_ROOM 2048U /* blocks in use before it first doubles */

static void take_many(struct rig *rig, unsigned count)
{
    uint64_t addr;
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(varve_alloc_raw_alloc(rig->alloc, 512, &addr, NULL), VARVE_OK);
    }
}

/* The last free place goes to a request of the callback. */
TEST_WITH(test_callback_takes_the_last_place, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    rig_open(rig, &(struct rig_options){.limit = 0});
    take_many(rig, MAP_ROOM - 1);
    play(rig, "miss=1 in{t=512} a=30M called=1 -a -t");
    rig->count = rig->mark = 0; /* more than a rig keeps */
}

static unsigned calls;

static void others_take(void *context)
{
    take_many(context, 3 * MAP_ROOM);
    calls++;
}

/* Others use up every descriptor and place that the waiting request had reserved, while the lock is open. */
TEST_WITH(test_others_use_up_reserves, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    calls = 0;
    rig_open(rig, &(struct rig_options){.config = OPEN_LOCK});
    rig_hook(rig, others_take, rig);
    take(rig, 3 * MIB);
    assert_int_equal(calls, 1);
    assert_int_equal(stats_of(rig).allocation[0].current, 3 * MAP_ROOM + 1);
    rig->count = rig->mark = 0;
}

/* ---- another thread ---- */

static void another_thread_allocates(void *context)
{
    calls += rig_serves_another_thread(context);
}

/* The lock is open while the device is asked, or this would never end. */
TEST_WITH(test_another_thread_allocates, rig_setup, rig_teardown)
{
    struct rig *rig = *state;
    calls = 0;
    rig_open(rig, &(struct rig_options){.config = OPEN_LOCK});
    play(rig, "a=512 -a");
    rig_hook(rig, another_thread_allocates, rig);
    play(rig, "30M");
    assert_int_equal(calls, 1);
}
