/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks beside LTTng's threads. One of them may hold LTTng's locks while another thread forks; the child would inherit
 * them locked, and wait for them at its end, when the destructors of providers run. liblttng-ust-fork.so is LTTng's
 * own remedy, but it starts LTTng anew in each child, which waits for the session daemon; a child of ours goes on in
 * its parent's buffers. So here LTTng's locks are held across the fork and released on both sides, and the child
 * forgets the other threads' sections of RCU. Order and functions as in lttng_ust_before_fork and its fellows
 * (LTTng-UST 2.13, liblttng-ust/lttng-ust-comm.c).
 */
#include "trace/recorder/lttng/provider.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <lttng/urcu/urcu-ust.h>
#include <lttng/ust-fork.h>

/* Of the thread that forks. With SIGKILL, which no thread's mask can have: LTTng took no lock, as the thread is in the
 * middle of LTTng's own work. */
static __thread sigset_t mask;

static void provider_fork_prepare(void)
{
    (void)sigaddset(&mask, SIGKILL);
    lttng_ust_before_fork(&mask);
}

static void parent(void)
{
    if (sigismember(&mask, SIGKILL) == 0) {
        lttng_ust_after_fork_parent(&mask);
    }
}

static void child(void)
{
    if (sigismember(&mask, SIGKILL) == 0) {
        lttng_ust_urcu_after_fork_child(); /* releases RCU's locks, which the next but one does once more */
        lttng_ust_urcu_before_fork();
        lttng_ust_after_fork_parent(&mask);
    }
}

void lttng_provider_watch_forks(void)
{
    if (dlopen("liblttng-ust-fork.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL) { /* it would wait for its own lock */
        (void)pthread_atfork(provider_fork_prepare, parent, child);
    }
}
