/* SPDX-License-Identifier: Apache-2.0 */
/* Time that only goes on, for how long something takes, and waiting for some of it. Threads: any. */
#ifndef VARVE_BASE_MONOTONIC_H
#define VARVE_BASE_MONOTONIC_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Since some moment. */
static inline uint64_t monotonic_ns(void)
{
    return monotonic_of(CLOCK_MONOTONIC);
}

/* What this thread has computed: a busy machine does not add to it. */
static inline uint64_t monotonic_computed_ns(void)
{
    return monotonic_of(CLOCK_THREAD_CPUTIME_ID);
}

static inline double monotonic_seconds(void)
{
    return (double)monotonic_ns() / 1e9;
}

/* Less than a second; a signal ends it. */
static inline void monotonic_nap(long ns)
{
    nanosleep(&(struct timespec){0, ns}, NULL);
}

#endif
