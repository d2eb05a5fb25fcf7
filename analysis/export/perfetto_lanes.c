/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/export/track_writer.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

struct lane {
    uint64_t track;
    int64_t *ends; /* of its open slices, the innermost last */
    size_t depth, capacity;
    int64_t free_ns; /* the end of the outermost one */
};

void lanes_begin(struct lanes *lanes, struct track_writer *writer, uint64_t parent, const char *name, bool nests)
{
    *lanes = (struct lanes){.writer = writer, .parent = parent, .name = name, .nests = nests};
}

static bool perfetto_lanes_is_before(const struct lanes *lanes, size_t a, size_t b)
{
    return lanes->items[lanes->heap[a]].free_ns < lanes->items[lanes->heap[b]].free_ns;
}

static void swap(struct lanes *lanes, size_t a, size_t b)
{
    size_t lane = lanes->heap[a];
    lanes->heap[a] = lanes->heap[b];
    lanes->heap[b] = lane;
}

/* The lane at `at` has become free later. */
static void perfetto_lanes_sift_down(struct lanes *lanes, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < lanes->count; child++) {
            least = perfetto_lanes_is_before(lanes, child, least) ? child : least;
        }
        if (least == at) {
            return;
        }
        swap(lanes, at, least);
        at = least;
    }
}

static void perfetto_lanes_sift_up(struct lanes *lanes, size_t at)
{
    for (; at > 0 && perfetto_lanes_is_before(lanes, at, (at - 1) / 2); at = (at - 1) / 2) {
        swap(lanes, at, (at - 1) / 2);
    }
}

/* Slices that are over by then. */
static void close_until(struct lanes *lanes, struct lane *lane, int64_t ns)
{
    while (lane->depth > 0 && lane->ends[lane->depth - 1] <= ns) {
        track_slice_end(lanes->writer, lane->track, lane->ends[--lane->depth]);
    }
}

static void open_slice(struct lanes *lanes, struct lane *lane, int64_t begin_ns, int64_t end_ns,
                       const struct track_event *event)
{
    lane->ends = memory_grow(lane->ends, &lane->capacity, lane->depth, sizeof(*lane->ends));
    lane->ends[lane->depth++] = end_ns;
    track_slice_begin(lanes->writer, lane->track, begin_ns, event);
}

static void add_lane(struct lanes *lanes, int64_t end_ns)
{
    lanes->items = memory_grow(lanes->items, &lanes->capacity, lanes->count, sizeof(*lanes->items));
    lanes->heap = memory_grow(lanes->heap, &lanes->heap_capacity, lanes->count, sizeof(*lanes->heap));
    lanes->items[lanes->count] =
        (struct lane){.track = track_of_slices(lanes->writer, lanes->parent, lanes->name), .free_ns = end_ns};
    lanes->heap[lanes->count] = lanes->count;
    lanes->last = lanes->count++;
    perfetto_lanes_sift_up(lanes, lanes->count - 1);
}

void lanes_add(struct lanes *lanes, int64_t begin_ns, int64_t end_ns, const struct track_event *event)
{
    end_ns = end_ns > begin_ns ? end_ns : begin_ns;
    if (lanes->nests && lanes->count > 0) {
        struct lane *lane = &lanes->items[lanes->last];
        close_until(lanes, lane, begin_ns);
        if (lane->depth > 0 && end_ns <= lane->ends[lane->depth - 1]) {
            open_slice(lanes, lane, begin_ns, end_ns, event);
            return;
        }
    }
    if (lanes->count > 0 && lanes->items[lanes->heap[0]].free_ns <= begin_ns) {
        lanes->last = lanes->heap[0];
        lanes->items[lanes->last].free_ns = end_ns;
        perfetto_lanes_sift_down(lanes, 0);
    } else {
        add_lane(lanes, end_ns);
    }
    close_until(lanes, &lanes->items[lanes->last], begin_ns);
    open_slice(lanes, &lanes->items[lanes->last], begin_ns, end_ns, event);
}

void lanes_end(struct lanes *lanes)
{
    for (size_t i = 0; i < lanes->count; i++) {
        close_until(lanes, &lanes->items[i], INT64_MAX);
        free(lanes->items[i].ends);
    }
    free(lanes->items);
    free(lanes->heap);
    lanes->items = NULL;
    lanes->heap = NULL;
    lanes->count = 0;
}
