/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact search: do buffers fit under a capacity, yes or no, with proof either way. The search is complete:
 * PLACEMENT_IMPOSSIBLE is said only after all placements were ruled out, PLACEMENT_UNDECIDED when time ended first.
 * Made for hundreds or some thousand buffers; it needs memory for each buffer times the points in time that it spans,
 * and says PLACEMENT_UNDECIDED at once where that is too much.
 *
 * Units: bytes; seconds of the given clock. Threads: any, each with its own buffers.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_EXACT_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_EXACT_H

#include "analysis/whatif/placement_clock.h"
#include "analysis/whatif/placement.h"

enum placement_verdict { PLACEMENT_FITS, PLACEMENT_IMPOSSIBLE, PLACEMENT_UNDECIDED };

/// Buffers as placement_solve takes them; `alignment` is a power of two or 0. Only PLACEMENT_FITS changes `offset`.
enum placement_verdict placement_exact(struct placement_buffer *buffers, size_t count, uint64_t capacity,
                                       uint64_t alignment, struct placement_clock *clock, double seconds);

#endif
