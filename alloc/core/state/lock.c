/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread waits for the allocator's lock: a short spin, since a request takes a fraction of a
 * microsecond, then the kernel. See lock.h.
 */
#include "alloc/core/state/lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 100

__thread char lock_mark;

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

void lock_wait(struct alloc_lock *lock)
{
    for (unsigned i = 0; i < SPINS; i++) {
        uint32_t unheld = 0;
        if (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&lock->word, &unheld, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            return;
        }
        pause_briefly();
    }
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0) {
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    }
}

void lock_wake(struct alloc_lock *lock)
{
    syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
