/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace of Perfetto, packet by packet, on one packet sequence: tracks, and events on them. A track is described
 * before its first event; names and source locations are interned by the packet that needs them first. Times are ns
 * since the recording began. One thread; failures of the stream show in ferror.
 */
#ifndef VARVE_ANALYSIS_EXPORT_TRACK_WRITER_H
#define VARVE_ANALYSIS_EXPORT_TRACK_WRITER_H

#include "analysis/base/key_map.h"
#include "analysis/report/frame_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Texts of a database as protocol buffers may hold them, and numbers for texts that come again. */

/* Texts with numbers from `first` on, in the order of their first use. Zeroed, but for `first`,
 * before its first use. */
struct text_table {
    struct map numbers; /* by hash */
    char **texts;
    size_t count, capacity;
    uint64_t first;
};

/// UTF-8 without control characters, cut; NULL is "".
void text_clean(char clean[FRAME_NAME_BYTES], const char *text);
/// Copied. *is_new_out: it has not been asked for before.
uint64_t text_number(struct text_table *table, const char *text, bool *is_new_out);
void text_table_free(struct text_table *table);

#define TRACK_ARGUMENTS_MAX 12
#define TRACK_NONE 0 /* no track: what is on top */

enum track_argument_kind {
    TRACK_INTEGER,
    TRACK_POINTER, /* shown in hexadecimal */
    TRACK_TEXT,
};

struct track_argument {
    const char *name; /* a literal */
    enum track_argument_kind kind;
    int64_t value;
    const char *text;
};

/* Texts are borrowed for the call and may be anything; NULL and 0 are nothing. */
struct track_event {
    const char *category, *name;
    struct track_argument arguments[TRACK_ARGUMENTS_MAX];
    size_t argument_count;
    const char *function, *file; /* where it was asked for */
    int64_t line;
    uint64_t flow; /* all events with this number are joined in the order of time */
    bool ends_flow;
};

struct track_writer {
    FILE *out; /* borrowed */
    uint64_t tracks;
    bool has_begun; /* the sequence has a packet, which has cleared its state */
    struct text_table names, categories, argument_names, locations;
    uint8_t *buffer;
    size_t buffer_bytes;
};

/// realtime_ns: when the recording began, since 1970; 0: unknown.
void track_writer_begin(struct track_writer *writer, FILE *out, int64_t realtime_ns);
void track_writer_end(struct track_writer *writer);

/// Tracks, by the number of which events and other tracks refer to them.
uint64_t track_process(struct track_writer *writer, int64_t pid, const char *name, int64_t start_ns);
uint64_t track_thread(struct track_writer *writer, int64_t pid, int64_t tid, const char *name);
uint64_t track_of_slices(struct track_writer *writer, uint64_t parent, const char *name);
uint64_t track_of_bytes(struct track_writer *writer, uint64_t parent, const char *name); /* a counter */

void track_slice_begin(struct track_writer *writer, uint64_t track, int64_t ns, const struct track_event *event);
void track_slice_end(struct track_writer *writer, uint64_t track, int64_t ns);
void track_instant(struct track_writer *writer, uint64_t track, int64_t ns, const struct track_event *event);
void track_count(struct track_writer *writer, uint64_t track, int64_t ns, int64_t value);

/// One more argument; texts are borrowed until the event is written.
void track_event_number(struct track_event *event, const char *name, int64_t value);
void track_event_pointer(struct track_event *event, const char *name, int64_t value);
void track_event_text(struct track_event *event, const char *name, const char *text); /* NULL: none */

/*
 * Slices of one subject, such as the segments of a stream, on as few tracks as hold them: slices of a track must lie
 * apart, or within each other. The tracks have one name, so that Perfetto shows them as one. Slices come in the order
 * of their beginnings.
 */

struct lane;

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
