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

#endif
