/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of two intervals that become one is what would have been kept had they been one from the beginning. */
#include "base/downsample.h"

#include "base/grown_array.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct downsample downsample_make(uint32_t limit, unsigned width, unsigned curves, unsigned most)
{
    assert(curves >= 1 && curves <= DOWNSAMPLE_CURVES_MAX && curves < width && most < width && limit > curves);
    return (struct downsample){
        .limit = limit, .width = (uint8_t)width, .curves = (uint8_t)curves, .most = (uint8_t)most, .shift = -1};
}

void downsample_free(struct downsample *samples)
{
    free(samples->rows);
    samples->rows = NULL;
    samples->count = 0;
    samples->capacity = 0;
}

bool downsample_reserve(struct downsample *samples)
{
    return samples->count < samples->capacity ||
           array_grow((void **)&samples->rows, &samples->capacity, samples->count + 1,
                      samples->width * sizeof(samples->rows[0]));
}

static int64_t *row_at(struct downsample *samples, size_t i)
{
    return samples->rows + i * samples->width;
}

/* The rows [begin, end) are of one interval: what is kept of them moves to `to`, at or before `begin`. Returns where
 * that ends. */
static size_t interval_settle(struct downsample *samples, size_t begin, size_t end, size_t to)
{
    size_t tops[DOWNSAMPLE_CURVES_MAX];
    for (unsigned c = 0; c < samples->curves; c++) {
        tops[c] = begin;
        for (size_t i = begin + 1; i < end; i++) {
            tops[c] = row_at(samples, i)[c + 1] > row_at(samples, tops[c])[c + 1] ? i : tops[c];
        }
    }
    int64_t most = INT64_MIN;
    for (size_t i = begin; i < end; i++) {
        bool is_kept = i + 1 == end;
        for (unsigned c = 0; c < samples->curves; c++) {
            is_kept = is_kept || tops[c] == i;
        }
        const int64_t *row = row_at(samples, i);
        if (samples->most != 0) {
            most = row[samples->most] > most ? row[samples->most] : most;
        }
        if (is_kept) {
            memmove(row_at(samples, to), row, samples->width * sizeof(row[0]));
            if (samples->most != 0) {
                row_at(samples, to)[samples->most] = most;
                most = INT64_MIN;
            }
            to++;
        }
    }
    return to;
}

/* What downsample_add looks at of the last interval. */
static void last_interval_look(struct downsample *samples)
{
    samples->last_is_top = false;
    for (unsigned c = 0; c < samples->curves; c++) {
        samples->tops[c] = INT64_MIN;
        for (size_t i = samples->group; i < samples->count; i++) {
            int64_t value = row_at(samples, i)[c + 1];
            samples->last_is_top = samples->last_is_top || (i + 1 == samples->count && value > samples->tops[c]);
            samples->tops[c] = value > samples->tops[c] ? value : samples->tops[c];
        }
    }
}

static int64_t interval_of(const struct downsample *samples, size_t i)
{
    return downsample_row(samples, i)[0] >> samples->shift;
}

static int64_t last_ns_of(int64_t interval, int shift)
{
    return (int64_t)((uint64_t)interval << shift | ((UINT64_C(1) << shift) - 1));
}

/* Intervals twice as long. */
static void widen(struct downsample *samples)
{
    size_t to = 0;
    int64_t interval = 0;
    samples->shift++;
    for (size_t begin = 0, end; begin < samples->count; begin = end) {
        interval = interval_of(samples, begin);
        for (end = begin + 1; end < samples->count && interval_of(samples, end) <= interval;) {
            end++;
        }
        samples->group = to;
        to = end - begin == 1 && to == begin ? end : interval_settle(samples, begin, end, to);
    }
    samples->count = to;
    samples->end_ns = last_ns_of(interval, samples->shift);
    last_interval_look(samples);
}

void downsample_limit(struct downsample *samples, uint32_t limit)
{
    assert(limit > samples->curves);
    samples->limit = limit;
    while (samples->count > limit) {
        widen(samples);
    }
}

void downsample_add(struct downsample *samples, const int64_t *row)
{
    assert(samples->count < samples->capacity);
    bool is_within = samples->shift >= 0 && samples->count > 0 && row[0] <= samples->end_ns;
    bool is_top = !is_within;
    for (unsigned c = 0; c < samples->curves; c++) {
        if (!is_within || row[c + 1] > samples->tops[c]) {
            samples->tops[c] = row[c + 1];
            is_top = true;
        }
    }
    if (is_within && !is_top && !samples->last_is_top) {
        int64_t *last = row_at(samples, samples->count - 1);
        int64_t most = last[samples->most];
        memcpy(last, row, samples->width * sizeof(row[0]));
        if (samples->most != 0) {
            last[samples->most] = most > row[1] ? most : row[1];
        }
        return;
    }
    memcpy(row_at(samples, samples->count), row, samples->width * sizeof(row[0]));
    if (samples->most != 0) {
        row_at(samples, samples->count)[samples->most] = row[1];
    }
    samples->last_is_top = is_top;
    if (is_within) {
        samples->count = interval_settle(samples, samples->group, samples->count + 1, samples->group);
    } else {
        samples->group = samples->count++;
        samples->end_ns = samples->shift < 0 ? 0 : last_ns_of(row[0] >> samples->shift, samples->shift);
    }
    downsample_limit(samples, samples->limit);
}

bool downsample_check(const struct downsample *samples)
{
    bool is_sound = samples->count <= samples->limit && samples->count <= samples->capacity;
    for (size_t i = 0; i < samples->count && samples->most != 0; i++) {
        is_sound = is_sound && downsample_row(samples, i)[samples->most] >= downsample_row(samples, i)[1];
    }
    return is_sound;
}
