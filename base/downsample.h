/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows over time, of which a bounded number is kept: of each interval of time the row with the largest value of each
 * curve, the first one that had it, and the last row. The intervals are as short as the bound allows, and one without
 * rows costs nothing: what is kept of an hour does not depend on how many rows came in which minute of it.
 */
#ifndef VARVE_BASE_DOWNSAMPLE_H
#define VARVE_BASE_DOWNSAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOWNSAMPLE_CURVES_MAX 4U

/// A row is `width` values: its time in ns, `curves` curves, and what else was so at that time. Owner of `rows`: who
/// made it, by downsample_free. Threads: one at a time.
struct downsample {
    int64_t *rows;
    size_t count, capacity;
    uint32_t limit; /* rows that are kept, more than `curves`; 0: not in use */
    uint8_t width, curves;
    uint8_t most;     /* which value becomes the largest of the first curve since the row before; 0: none */
    bool last_is_top; /* the last row has the largest value of a curve in its interval */
    int shift;        /* intervals have 2^shift ns; -1: each row is one, as all of them are kept */
    size_t group;     /* first row of the last interval */
    int64_t end_ns;   /* its last ns */
    int64_t tops[DOWNSAMPLE_CURVES_MAX]; /* the largest values in it */
};

struct downsample downsample_make(uint32_t limit, unsigned width, unsigned curves, unsigned most);
bool downsample_reserve(struct downsample *samples); /* space for one more row; false without memory */
/// Rows come in the order of what happened; a time before the last one's is taken to be in its interval.
void downsample_add(struct downsample *samples, const int64_t *row);
/// Of one curve: the row at `ns` with that value would do no more than take the place of the last one, which is this;
/// then the caller writes it there, with the larger of both values as `most`. NULL: downsample_add it.
static inline int64_t *downsample_replaced(const struct downsample *samples, int64_t ns, int64_t value)
{
    const bool is_replaced = samples->curves == 1 && samples->shift >= 0 && samples->count > 0 &&
                             ns <= samples->end_ns && value <= samples->tops[0] && !samples->last_is_top;
    return is_replaced ? samples->rows + (samples->count - 1) * samples->width : NULL;
}

/// No more than `limit` rows from here on.
void downsample_limit(struct downsample *samples, uint32_t limit);
static inline const int64_t *downsample_row(const struct downsample *samples, size_t i)
{
    return samples->rows + i * samples->width;
}
bool downsample_check(const struct downsample *samples); /* false: an invariant does not hold */
void downsample_free(struct downsample *samples);

#endif
