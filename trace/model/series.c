/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of allocated bytes over time, in bounded memory whatever the length of the trace: every event is
 * a point until the series is full, then every second point goes and the stride doubles. A point that goes
 * leaves its maximum to the next one, so no peak is thinned away. totals.c and derive.c call it.
 */
#include "trace/model/series.h"

#include "trace/base/array.h"
#include "trace/error.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

bool series_reserve(struct series *series)
{
    if (series->count < series->capacity || series->count == series->limit) {
        return true;
    }
    size_t extra_capacity = series->capacity;
    return (!series->has_extras || ARRAY_GROW(series->extras, extra_capacity, series->count + 1)) &&
           ARRAY_GROW(series->points, series->capacity, series->count + 1);
}

void series_free(struct series *series)
{
    free(series->points);
    free(series->extras);
    series->points = NULL;
    series->extras = NULL;
}

/* Points `from` and `from + 1` become one, at `to`. */
static void series_fuse(struct series *series, uint32_t to, uint32_t from)
{
    struct series_point kept = series->points[from + 1];
    kept.allocated_max = max_of(series->points[from].allocated_max, kept.allocated_max);
    series->points[to] = kept;
    if (series->has_extras) {
        series->extras[to] = series->extras[from + 1];
    }
}

static void series_append(struct series *series)
{
    assert(series->count < series->capacity);
    if (series->has_extras) {
        series->extras[series->count] = series->pending_extra;
    }
    series->points[series->count++] = series->pending;
    series->pending_events = 0;
}

static void series_halve(struct series *series)
{
    assert(series->count % 2 == 0);
    for (uint32_t i = 0; i < series->count; i += 2) {
        series_fuse(series, i / 2, i);
    }
    series->count /= 2;
    series->stride *= 2;
}

/* The pending point has gathered as many events as the stride. */
static void series_push(struct series *series)
{
    if (series->count == series->limit) {
        /* The stride is twice as long now, and this event its middle. */
        series_halve(series);
        return;
    }
    series_append(series);
    series->pending.allocated_max = 0;
}

void series_add(struct series *series, uint64_t seq, int64_t ts_ns, uint64_t allocated, uint64_t live)
{
    struct series_point *pending = &series->pending;
    pending->seq = seq;
    pending->ts_ns = ts_ns;
    pending->allocated = allocated;
    pending->live = live;
    pending->allocated_max = max_of(pending->allocated_max, allocated);
    if (++series->pending_events == series->stride) {
        series_push(series);
    }
}

void series_end(struct series *series, uint32_t limit)
{
    assert(limit % 2 == 0 && limit >= 4);
    if (series->pending_events > 0) {
        if (series->count == series->limit) {
            series_halve(series);
        }
        /* Only its last point may end a series off the stride; the space is that of series_reserve. */
        series_append(series);
    }
    while (series->count > limit) {
        /* An odd number of points: the first two become one, so that pairs end at the last point. */
        uint32_t odd = series->count % 2;
        for (uint32_t i = odd; i < series->count; i += 2) {
            series_fuse(series, odd + (i - odd) / 2, i);
        }
        series->count = odd + (series->count - odd) / 2;
    }
    if (series->count > 0 && series->count < series->capacity) {
        void *points = realloc(series->points, series->count * sizeof(*series->points));
        if (points != NULL) {
            series->points = points;
            series->capacity = series->count;
        }
    }
}

int series_check(const struct series *series)
{
    if (series->count > series->limit || series->pending_events >= series->stride) {
        return VARVE_ERROR_CORRUPT;
    }
    for (uint32_t i = 0; i < series->count; i++) {
        const struct series_point *point = &series->points[i];
        bool is_ordered = i == 0 || point->seq > point[-1].seq;
        if (!is_ordered || point->allocated_max < point->allocated) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    return VARVE_OK;
}
