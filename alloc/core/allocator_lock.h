/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recursive lock, inline when it is free: one atomic instruction to take it, a plain store to give it back. A pair
 * of calls of the C library's mutex costs as much as the rest of a cached allocation. Waiters sleep in the kernel, and
 * pay for the plain store by a membarrier; allocator_lock.c has the proof that no wake-up is lost.
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_LOCK_H
#define VARVE_ALLOC_CORE_ALLOCATOR_LOCK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: free, and nobody waits. */
struct alloc_lock {
    uint32_t word;     /* 1: held. A futex */
    uint32_t depth;    /* of the holder, beyond the first time */
    const void *owner; /* an address that only the holding thread has; NULL: nobody, or a brief hold */
    uint32_t waiters;  /* threads that sleep or are about to; one more while `fenced` */
    uint32_t fenced;   /* not 0: there is no membarrier, and every release is a full barrier */
};

/// Before a second thread knows the lock: ask the kernel for what the plain store rests on.
void lock_init(struct alloc_lock *lock);

/* allocator_lock.c: the slow halves */
void lock_wait(struct alloc_lock *lock);
void lock_wake(struct alloc_lock *lock);

extern __thread char lock_mark __attribute__((tls_model("initial-exec")));

/// An address that no other living thread has.
static inline const void *lock_self(void)
{
    return &lock_mark;
}

/// Take the lock if it is free, for a hold during which nothing may call back: nobody knows whose it is.
static inline bool lock_take_brief(struct alloc_lock *lock)
{
    uint32_t unheld = 0;

    return __builtin_expect(
        __atomic_compare_exchange_n(&lock->word, &unheld, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 1);
}

/// A brief hold becomes an ordinary one.
static inline void lock_keep(struct alloc_lock *lock)
{
    __atomic_store_n(&lock->owner, lock_self(), __ATOMIC_RELAXED);
}

/// Whose the hold is, NULL while it is brief; and to become that again.
static inline const void *lock_owner(const struct alloc_lock *lock)
{
    return __atomic_load_n(&lock->owner, __ATOMIC_RELAXED);
}

static inline void lock_disown(struct alloc_lock *lock, const void *owner)
{
    __atomic_store_n(&lock->owner, owner, __ATOMIC_RELAXED);
}

/// Wait for a lock that could not be taken. True: the hold is brief. False: this thread has it already, and keeps it.
static inline bool lock_wait_briefly(struct alloc_lock *lock)
{
    lock_wait(lock);
    return lock->depth == 0;
}

static inline void lock_acquire(struct alloc_lock *lock)
{
    if (!lock_take_brief(lock)) {
        lock_wait(lock);
    }
    lock_keep(lock);
}

/// The end of a brief hold, or of the outermost other one.
static inline void lock_end_brief(struct alloc_lock *lock)
{
    __atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
    /* for the compiler; between processors, the barrier is the waiter's */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(__atomic_load_n(&lock->waiters, __ATOMIC_RELAXED) != 0, 0)) {
        lock_wake(lock);
    }
}

static inline void lock_release(struct alloc_lock *lock)
{
    assert(lock != NULL && __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == lock_self());
    if (__builtin_expect(lock->depth > 0, 0)) {
        lock->depth--;
        return;
    }
    __atomic_store_n(&lock->owner, NULL, __ATOMIC_RELAXED);
    lock_end_brief(lock);
}

#endif
