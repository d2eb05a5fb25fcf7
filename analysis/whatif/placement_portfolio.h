/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement by first fit in many orders, for any number of buffers: some orders that are often good, then each of these
 * again and again, with the buffers that ended too high placed earlier. Called by placement.c.
 *
 * Source: of the second part, D. E. Joslin and D. P. Clements, "Squeaky Wheel" Optimization, JAIR 10, 1999.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_PORTFOLIO_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_PORTFOLIO_H

#include "analysis/whatif/placement_clock.h"
#include "analysis/whatif/placement_instance.h"

struct portfolio {
    const struct placement_instance *instance;
    uint64_t target; /* a height at which it may end */
    uint64_t good;   /* a height at which it ends after some rounds; 0: at none */
    struct placement_clock *clock;
    double begin;     /* of the clock, when all this began; seconds count from then */
    double seconds;   /* after that it ends, with at least one placement */
    unsigned threads; /* at least 1; 1 where the clock counts steps */
    struct progress *progress;
    /* The answer: the caller's arrays, a height, and the order that it began with. */
    uint64_t *offsets; /* of each item */
    uint64_t height;
    const char *method;
};

/// Fill the answer. Goes on from the answer that is there, if `height` is not 0.
void portfolio_run(struct portfolio *portfolio);

#endif
