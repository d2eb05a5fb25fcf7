/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a search has gone on: in seconds of the machine, or in steps of the search, a million of which count as one
 * second, so that the answer is the same on every machine and in every run. Threads: by steps, the caller's own.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_CLOCK_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_CLOCK_H

#include "base/monotonic.h"

#include <stdbool.h>
#include <stdint.h>

#define PLACEMENT_STEPS_PER_SECOND 1e6

struct placement_clock {
    bool by_steps;
    uint64_t steps; /* counted if by_steps */
};

/* A buffer that is placed, or a state that is looked at. */
static inline void placement_clock_step(struct placement_clock *clock)
{
    if (clock->by_steps) {
        clock->steps++;
    }
}

/* Seconds since some moment. */
static inline double placement_clock_now(const struct placement_clock *clock)
{
    return clock->by_steps ? (double)clock->steps / PLACEMENT_STEPS_PER_SECOND : monotonic_seconds();
}

#endif
