/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * A recursive lock whose uncontended path is two atomic instructions, inline: a pair of calls of the C
 * library's mutex costs as much as the rest of a cached allocation. Waiters sleep in the kernel. After "mutex
 * 2" of U. Drepper, Futexes Are Tricky (2011): 0 free, 1 held, 2 held and somebody may wait.
 */
#ifndef VARVE_ALLOC_CORE_LOCK_H
#define VARVE_ALLOC_CORE_LOCK_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct alloc_lock {
    _Atomic uint32_t word;
    uint32_t depth;              /* of the holder */
    _Atomic(const void *) owner; /* an address that only the holding thread has; NULL: nobody */
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
    if (__builtin_expect(atomic_load_explicit(&lock->owner, memory_order_relaxed) == self, 0)) {
        lock->depth++;
        return;
    }
    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->word, &unheld, 1,
                                                                  memory_order_acquire, memory_order_relaxed),
                         0)) {
        lock_wait(lock);
    }
    atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
    lock->depth = 1;
}

static inline void lock_release(struct alloc_lock *lock)
{
    assert(lock->depth > 0 && atomic_load_explicit(&lock->owner, memory_order_relaxed) == lock_self());
    if (__builtin_expect(--lock->depth > 0, 0)) {
        return;
    }
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    if (__builtin_expect(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2, 0)) {
        lock_wake(lock);
    }
}

#endif
