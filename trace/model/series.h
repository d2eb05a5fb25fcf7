/* SPDX-License-Identifier: Apache-2.0 */
/* The course of allocated bytes over time, thinned out so that its memory is bounded. */
#ifndef VARVE_TRACE_MODEL_SERIES_H
#define VARVE_TRACE_MODEL_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERIES_POINTS_ALL 8192U     /* all processes together */
#define SERIES_POINTS_PROCESS 1024U /* one process */

struct series_point {
    uint64_t seq;
    int64_t ts_ns;
    uint64_t allocated;
    uint64_t allocated_max; /* since the point before */
    uint64_t live;
};

/* Of the blocks of an allocator only. */
struct series_extra {
    uint64_t active, reserved, requested;
};

/* Point k (from 0) is event (k + 1) * stride of the series; `pending` gathers the events after the last one.
 */
struct series {
    struct series_point *points;
    struct series_extra *extras; /* beside the points; NULL unless has_extras */
    bool has_extras;
    uint32_t count;
    uint32_t limit;
    size_t capacity;
    uint64_t stride;
    uint64_t pending_events;
    struct series_point pending;
    struct series_extra pending_extra; /* set before series_add */
};

bool series_reserve(struct series *series); /* space for one more point; false without memory */
void series_add(struct series *series, uint64_t seq, int64_t ts_ns, uint64_t allocated, uint64_t live);
/// No more events follow: the last one becomes a point, and at most `limit` points are kept.
void series_end(struct series *series, uint32_t limit);
int series_check(const struct series *series);
void series_free(struct series *series);

#endif
