/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * A recursive lock whose uncontended path is two atomic instructions, inline: a pair of calls of the C
 * library's mutex costs as much as the rest of a cached allocation. Waiters sleep in the kernel. After "mutex
 * 2" of U. Drepper, Futexes Are Tricky (2011): 0 free, 1 held, 2 held and somebody may wait.
 */
#ifndef VARVE_ALLOC_CORE_STATE_LOCK_H
#define VARVE_ALLOC_CORE_STATE_LOCK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alloc_lock {
    uint32_t word;
    uint32_t depth;    /* of the holder */
    const void *owner; /* an address that only the holding thread has; NULL: nobody */
};

/* lock.c: the slow halves */
void lock_wait(struct alloc_lock *lock);
void lock_wake(struct alloc_lock *lock);

extern __thread char lock_mark __attribute__((tls_model("initial-exec")));

/// An address that no other living thread has.
static inline const void *lock_self(void)
{
    return &lock_mark;
}

static inline void lock_acquire(struct alloc_lock *lock)
{
    const void *self = lock_self();
    uint32_t unheld = 0;

    /* only this thread can have stored its own mark, so a relaxed look is enough */
    if (__builtin_expect(__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == self, 0)) {
        lock->depth++;
        return;
    }
    if (__builtin_expect(
            !__atomic_compare_exchange_n(&lock->word, &unheld, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
            0)) {
        lock_wait(lock);
    }
    __atomic_store_n(&lock->owner, self, __ATOMIC_RELAXED);
    lock->depth = 1;
}

static inline void lock_release(struct alloc_lock *lock)
{
    assert(lock->depth > 0 && __atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == lock_self());
    if (__builtin_expect(--lock->depth > 0, 0)) {
        return;
    }
    __atomic_store_n(&lock->owner, NULL, __ATOMIC_RELAXED);
    if (__builtin_expect(__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2, 0)) {
        lock_wake(lock);
    }
}

#endif
