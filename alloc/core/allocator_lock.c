/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread waits for the allocator's lock: a short spin, since a request takes a fraction of a
 * microsecond, then the kernel. See allocator_lock.h.
 */
#include "alloc/core/allocator_lock.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 100
#define LOOK_NS 1000000L /* between two looks of a waiter that no barrier protects */

enum { FENCED = 1, FENCED_LATE = 2 };

/*
 * No wake-up is lost. A release R is, in this order of its thread, "store word = 0" and "load waiters", between which
 * a processor may turn the order round; a wait W is "waiters + 1", a membarrier M, then "take the word if it is 0, else
 * sleep while it is 1". M makes every thread of the process that runs pass a full barrier B while M lasts, and one that
 * does not run has passed one when it was switched out.
 *
 *   R's load is after B:    W's addition was before M, so the load sees a waiter, and R wakes one.
 *   R's load is before B:   so is its store, which W's look, after M, therefore sees: R's hold is no reason to sleep.
 *
 * So whatever hold W finds, its release wakes somebody; this holds for every later release too, as `waiters` counts W
 * until W has the lock. The kernel compares the word with 1 again after it has put W into its queue, so that a wake
 * between W's look and its sleep makes the sleep return at once. A wake that another waiter gets is passed on by
 * that one's own release, which sees W in `waiters`.
 *
 * Without membarrier (older kernels, sandboxes) the lock is fenced: one waiter that is none makes every R come to
 * lock_wake, where it has a full barrier of its own, and either it sees W or W sees its store. Where membarrier is
 * refused later (FENCED_LATE), a release may be under way that has none: from then on sleeps are short,
 * and W looks again.
 */

__thread char lock_mark;

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

static bool membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

void lock_init(struct alloc_lock *lock)
{
    bool has_barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    *lock = (struct alloc_lock){.fenced = has_barrier ? 0 : FENCED, .waiters = !has_barrier};
}

static bool try_acquire(struct alloc_lock *lock)
{
    uint32_t unheld = 0;
    return __atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 &&
           __atomic_compare_exchange_n(&lock->word, &unheld, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* M of the proof. False: there is none, and releases may have no barrier either. */
static bool order_releases(struct alloc_lock *lock)
{
    uint32_t fenced = __atomic_load_n(&lock->fenced, __ATOMIC_RELAXED);
    if (fenced != 0) {
        return fenced == FENCED;
    }
    /* the registration is the process's, which a fork child may have to repeat */
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
        (membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))) {
        return true;
    }
    if (__atomic_compare_exchange_n(&lock->fenced, &fenced, FENCED_LATE, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        __atomic_fetch_add(&lock->waiters, 1, __ATOMIC_SEQ_CST);
    }
    return false;
}

void lock_wait(struct alloc_lock *lock)
{
    const struct timespec look = {0, LOOK_NS};

    /* only this thread can have stored its own mark, so a relaxed look is enough */
    if (__atomic_load_n(&lock->owner, __ATOMIC_RELAXED) == lock_self()) {
        lock->depth++;
        return;
    }
    for (unsigned i = 0; i < SPINS; i++) {
        if (try_acquire(lock)) {
            return;
        }
        pause_briefly();
    }
    __atomic_fetch_add(&lock->waiters, 1, __ATOMIC_SEQ_CST);
    bool is_ordered = order_releases(lock);
    while (!try_acquire(lock)) {
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 1, is_ordered ? NULL : &look, NULL, 0);
    }
    __atomic_fetch_sub(&lock->waiters, 1, __ATOMIC_RELAXED);
}

/* After the store of a release. */
void lock_wake(struct alloc_lock *lock)
{
    if (__atomic_load_n(&lock->fenced, __ATOMIC_RELAXED) != 0) {
        /* the full barrier: an atomic operation, which the thread sanitizer knows, where it knows no fence */
        if (__atomic_fetch_add(&lock->waiters, 0, __ATOMIC_SEQ_CST) <= 1) {
            return;
        }
    }
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
