/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offline placement: buffers whose lifetimes and sizes are all known, put into one address range that is as small as
 * can be found ("dynamic storage allocation"). Two buffers that live at the same time must not share an address. The
 * most bytes that live at a time, the load, is a bound for every placement and every allocator.
 *
 * Units: bytes; times are any numbers, half-open. Threads: any, each with its own buffers.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_H

#include "analysis/whatif/placement_clock.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACEMENT_BYTES_MAX (UINT64_C(1) << 62) /* of all buffers together */

struct progress;

/* Lives in [lower, upper), lower < upper; takes [offset, offset + size), which is the solver's answer. Size
 * 0 takes nothing. */
struct placement_buffer {
    int64_t lower, upper;
    uint64_t size, offset;
};

struct placement_options {
    uint64_t alignment; /* a power of two: sizes are rounded up to it, so that offsets are multiples; 0: 1 */
    uint64_t capacity;  /* 0: as low as possible; else it is enough that the height is not above it */
    double seconds;     /* after that the best so far is the answer; 0: PLACEMENT_SECONDS, and less where no
                                  more than a hundredth could be gained */
    bool by_steps;    /* seconds are steps of the search (placement_clock.h): every run answers the same; one thread */
    unsigned threads; /* 0: all cores */
    struct progress *progress; /* NULL: none */
};

#define PLACEMENT_SECONDS 10.0

struct placement_result {
    uint64_t load;      /* most bytes that live at a time, of sizes as they are */
    uint64_t bound;     /* proved: no height is lower. With a capacity below it, nothing fits */
    uint64_t height;    /* of the placement in `offset`: the highest end, of rounded sizes */
    bool optimal;       /* height == bound */
    const char *method; /* what found it: static text, "exact" for the exact search */
    double seconds;
};

/// Fill `offset` of all buffers with the best placement that is found. Errors: VARVE_ERROR_INVALID (lower >= upper, an
/// alignment that is no power of two, more than PLACEMENT_BYTES_MAX in all; the message names the buffer by its
/// number, from 0).
int placement_solve(struct placement_buffer *buffers, size_t count, const struct placement_options *options,
                    struct placement_result *result, struct varve_message *message);
/// The most bytes that live at a time. Buffers as placement_solve takes them.
uint64_t placement_load(const struct placement_buffer *buffers, size_t count);
/// No two overlap in time and in addresses, and none ends above `height`; else the message names the two, by number.
bool placement_check(const struct placement_buffer *buffers, size_t count, uint64_t height,
                     struct varve_message *message);

/*
 * Exact search: do buffers fit under a capacity, yes or no, with proof either way. The search is complete:
 * PLACEMENT_IMPOSSIBLE is said only after all placements were ruled out, PLACEMENT_UNDECIDED when time ended first.
 * Made for hundreds or some thousand buffers; it needs memory for each buffer times the points in time that it spans,
 * and says PLACEMENT_UNDECIDED at once where that is too much.
 *
 * Units: bytes; seconds of the given clock. Threads: any, each with its own buffers.
 */

enum placement_verdict { PLACEMENT_FITS, PLACEMENT_IMPOSSIBLE, PLACEMENT_UNDECIDED };

/// Buffers as placement_solve takes them; `alignment` is a power of two or 0. Only PLACEMENT_FITS changes `offset`.
enum placement_verdict placement_exact(struct placement_buffer *buffers, size_t count, uint64_t capacity,
                                       uint64_t alignment, struct placement_clock *clock, double seconds);

/*
 * A placement problem in its plainest form: times are numbers of points, and sizes are rounded up to the alignment, so
 * that offsets keep to it by themselves. Two buffers share a point if and only if they live at the same time: a point
 * stands for a run of begins without an end between them, after which all buffers live that live at any time of the
 * run. Made by placement.c, read by all solvers.
 */

struct placement_item {
    uint32_t first, end; /* points: it lives in [first, end) */
    uint64_t size;       /* rounded up, not 0 */
};

struct placement_instance {
    struct placement_item *items;
    size_t *buffers; /* of each item, its number among the buffers */
    size_t count;    /* at most that of the buffers: those of size 0 are left out */
    uint32_t points;
    uint64_t load;  /* of sizes as they are */
    uint64_t bound; /* of rounded ones: no placement is lower */
    uint64_t unit;  /* all sizes are multiples of it, so that heights need be no others */
};

static inline uint64_t placement_round(uint64_t size, uint64_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/// Buffers as placement_solve takes them, fewer than 2^31. Owner: the caller, by placement_instance_free.
void placement_instance_make(struct placement_instance *instance, const struct placement_buffer *buffers, size_t count,
                             uint64_t alignment);
void placement_instance_free(struct placement_instance *instance);

/*
 * Placement by first fit in many orders, for any number of buffers: some orders that are often good, then each of these
 * again and again, with the buffers that ended too high placed earlier. Called by placement.c.
 *
 * Source: of the second part, D. E. Joslin and D. P. Clements, "Squeaky Wheel" Optimization, JAIR 10, 1999.
 */

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
