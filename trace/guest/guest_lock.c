/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A futex lock, and stages. A lock that a stopped thread holds can be given up on (recorder_lock_soon), a stage too:
 * the program must not hang on us.
 */
#include "trace/guest/guest_lock.h"
#include "base/syscall.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <time.h>

#define LOCK_TURNS 10U
#define LOCK_TURN_NS 100000000L
#define STAGE_TURNS 10U
#define STAGE_TURN_NS 10000000L

/* Source: U. Drepper, Futexes Are Tricky (2011), the second mutex there. */
enum lock_state { LOCK_FREE = 0, LOCK_HELD = 1, LOCK_AWAITED = 2 };

void recorder_lock(uint32_t *lock)
{
    uint32_t expected = LOCK_FREE;
    if (__atomic_compare_exchange_n(lock, &expected, LOCK_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return;
    }
    while (__atomic_exchange_n(lock, LOCK_AWAITED, __ATOMIC_ACQUIRE) != LOCK_FREE) {
        recorder_sys_futex(lock, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, NULL);
    }
}

bool recorder_lock_soon(uint32_t *lock)
{
    const struct timespec turn = {0, LOCK_TURN_NS};
    uint32_t expected = LOCK_FREE;
    if (__atomic_compare_exchange_n(lock, &expected, LOCK_HELD, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return true;
    }
    for (unsigned i = 0; i < LOCK_TURNS; i++) {
        if (__atomic_exchange_n(lock, LOCK_AWAITED, __ATOMIC_ACQUIRE) == LOCK_FREE) {
            return true;
        }
        recorder_sys_futex(lock, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, &turn);
    }
    return false;
}

void recorder_unlock(uint32_t *lock)
{
    if (__atomic_exchange_n(lock, LOCK_FREE, __ATOMIC_RELEASE) == LOCK_AWAITED) {
        recorder_sys_futex(lock, FUTEX_WAKE_PRIVATE, 1, NULL);
    }
}

bool recorder_lock_soon_blocked(uint32_t *lock, struct recorder_signals *saved)
{
    recorder_signals_block(saved);
    if (recorder_lock_soon(lock)) {
        return true;
    }
    recorder_signals_restore(saved);
    return false;
}

void recorder_unlock_blocked(uint32_t *lock, const struct recorder_signals *saved)
{
    recorder_unlock(lock);
    recorder_signals_restore(saved);
}

void recorder_stage_wait(const uint32_t *stage, uint32_t wanted)
{
    const struct timespec turn = {0, STAGE_TURN_NS};
    uint32_t now = __atomic_load_n(stage, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < STAGE_TURNS && now < wanted; i++) {
        recorder_sys_futex(stage, FUTEX_WAIT_PRIVATE, now, &turn);
        now = __atomic_load_n(stage, __ATOMIC_ACQUIRE);
    }
}

void recorder_stage_set(uint32_t *stage, uint32_t value)
{
    __atomic_store_n(stage, value, __ATOMIC_RELEASE);
    recorder_sys_futex(stage, FUTEX_WAKE_PRIVATE, INT_MAX, NULL);
}
