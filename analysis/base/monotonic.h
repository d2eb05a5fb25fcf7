/* SPDX-License-Identifier: Apache-2.0 */
/* Time that only goes on, for how long something takes. Threads: any. */
#ifndef VARVE_ANALYSIS_BASE_MONOTONIC_H
#define VARVE_ANALYSIS_BASE_MONOTONIC_H

#include <stdint.h>
#include <time.h>

/* Since some moment. */
static inline int64_t monotonic_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double monotonic_seconds(void)
{
    return (double)monotonic_ns() / 1e9;
}

#endif
