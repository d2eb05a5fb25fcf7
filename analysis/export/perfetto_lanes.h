/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices of one subject, such as the segments of a stream, on as few tracks as hold them: slices of a track must lie
 * apart, or within each other. The tracks have one name, so that Perfetto shows them as one. Slices come in the order
 * of their beginnings.
 */
#ifndef VARVE_ANALYSIS_EXPORT_PERFETTO_LANES_H
#define VARVE_ANALYSIS_EXPORT_PERFETTO_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane;
struct track_event;
struct track_writer;

struct lanes {
    struct track_writer *writer; /* borrowed */
    uint64_t parent;
    const char *name; /* borrowed */
    bool nests;       /* a slice may lie within the last one */
    struct lane *items;
    size_t *heap; /* lanes by the time from which on they are free, the first on top */
    size_t count, capacity, heap_capacity;
    size_t last; /* the lane of the last slice */
};

void lanes_begin(struct lanes *lanes, struct track_writer *writer, uint64_t parent, const char *name, bool nests);
/// A slice; an end before its beginning is the beginning.
void lanes_add(struct lanes *lanes, int64_t begin_ns, int64_t end_ns, const struct track_event *event);
/// End the slices that are open, and forget all.
void lanes_end(struct lanes *lanes);

#endif
