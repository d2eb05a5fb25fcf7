/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's lock: one holder at a time, recursive, brief or kept, and no wake-up lost, with membarrier and
 * without it. Threads hold the lock for a moment or long enough that the others sleep; each adds to a sum that is not
 * atomic. A lost wake-up would leave a thread asleep for ever: then the test runs into its time limit.
 * Costs: 7 s
 */
#include <cmocka.h>

#include "alloc/core/allocator_lock.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#define THREADS 4
#define ROUNDS 20000U
#define LONG_EVERY 512U /* rounds: a hold that outlasts the spin of those who wait */
#define FENCED 1U       /* of lock.c: since lock_init */
#define FENCED_LATE 2U

struct shared {
    struct alloc_lock lock;
    uint64_t sum; /* guarded by the lock */
    uint64_t inside;
    uint32_t overlaps; /* somebody else was inside */
};

static void hold(struct shared *shared, unsigned round)
{
    const struct timespec moment = {0, 50000};
    shared->overlaps += shared->inside != 0;
    shared->inside = 1;
    shared->sum++;
    if (round % LONG_EVERY == 0) {
        nanosleep(&moment, NULL);
    }
    shared->inside = 0;
}

/* A brief hold, which some rounds keep after all, and take again. */
static void work_briefly(struct shared *shared, unsigned round)
{
    if (!lock_take_brief(&shared->lock) && !lock_wait_briefly(&shared->lock)) {
        shared->overlaps++; /* this thread does not hold it */
    }
    hold(shared, round);
    if (round % 2 == 0) {
        lock_end_brief(&shared->lock);
        return;
    }
    lock_keep(&shared->lock);
    if (lock_take_brief(&shared->lock) || lock_wait_briefly(&shared->lock)) {
        shared->overlaps++; /* it is taken, and by this thread */
    }
    lock_release(&shared->lock);
    lock_release(&shared->lock);
}

static void *work(void *context)
{
    struct shared *shared = context;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 3 == 1) {
            work_briefly(shared, round);
            continue;
        }
        lock_acquire(&shared->lock);
        if (round % 3 == 0) {
            lock_acquire(&shared->lock);
            hold(shared, round);
            lock_release(&shared->lock);
            shared->sum++; /* still held */
        } else {
            hold(shared, round);
        }
        lock_release(&shared->lock);
    }
    return NULL;
}

static void contend(struct shared *shared)
{
    const uint64_t again = (ROUNDS + 2) / 3;
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, shared), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(shared->sum, THREADS * (ROUNDS + again));
    assert_int_equal(shared->overlaps, 0);
    assert_int_equal(shared->lock.word, 0);
    assert_int_equal(shared->lock.waiters, shared->lock.fenced != 0);
    assert_int_equal(shared->lock.depth, 0);
    assert_null(shared->lock.owner);
}

/* With membarrier, without it, and where it went. */
TEST(test_one_holder)
{
    static struct shared shared[3] = {
        {.lock.fenced = 0},
        {.lock = {.fenced = FENCED, .waiters = 1}},
        {.lock = {.fenced = FENCED_LATE, .waiters = 1}},
    };
    lock_init(&shared[0].lock);
    for (size_t i = 0; i < 3; i++) {
        contend(&shared[i]);
    }
}

/* Strictly in turns: each turn is a sleep of one thread and a wake by the other, if both have a processor. */
struct turns {
    struct alloc_lock lock;
    unsigned turn; /* guarded */
};

struct player {
    struct turns *turns;
    unsigned number;
};

static void *play(void *context)
{
    const struct player *player = context;
    struct turns *turns = player->turns;
    for (unsigned played = 0; played < ROUNDS / 4;) {
        lock_acquire(&turns->lock);
        if (turns->turn % 2 == player->number) {
            turns->turn++;
            played++;
        }
        lock_release(&turns->lock);
        if (played % 64 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

TEST(test_turns)
{
    static struct turns turns;
    struct player players[2] = {{&turns, 0}, {&turns, 1}};
    lock_init(&turns.lock);
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, play, &players[1]), 0);
    play(&players[0]);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(turns.turn, 2 * (ROUNDS / 4));
}
