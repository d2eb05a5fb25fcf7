/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and blocks at any event of a trace: the state then, grouped into segments. Called by segment_listing.c,
 * the commands and the report.
 */
#ifndef VARVE_ANALYSIS_QUERY_SEGMENT_QUERY_H
#define VARVE_ANALYSIS_QUERY_SEGMENT_QUERY_H

#include "base/error.h"
#include "trace/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct database;

/* The allocator of one device in one process. */
struct segments_part {
    int64_t process_id, pid, device;
    struct varve_layout *layout;
};

struct segments_state {
    struct segments_part *parts; /* by process and device */
    size_t count;
    int64_t seq, ts_ns; /* of the last event that is in; ts_ns 0 before the first */
    int64_t last_seq;   /* of the trace */
};

/// Since the trace began; 0 if there is no such event.
int64_t event_time_ns(struct database *database, int64_t seq);
/// A time since the trace began, with ns, us, ms or s. VARVE_ERROR_INVALID: it is none.
int event_time_parse(const char *text, int64_t *ts_ns_out);
/// The event that `text` names: its number, or a time with ns, us, ms or s (the last event not later than
/// that); NULL: the last. Errors: VARVE_ERROR_INVALID, NOT_FOUND (beyond the last event).
int segments_moment(struct database *database, const char *text, int64_t *seq_out, struct varve_message *message);
/// State after event `seq`; device < 0: all, pid 0: all processes. Errors: VARVE_ERROR_CORRUPT, NO_MEMORY,
/// those of the database.
int segments_state_load(struct segments_state *state, struct database *database, int64_t seq, int64_t device,
                        int64_t pid, struct varve_message *message);
void segments_state_free(struct segments_state *state);
/// True if blocks are as large as their requests, for want of better.
bool segments_state_is_approximate(const struct segments_state *state, struct database *database);

/* A segment; of an expandable one, a range that is mapped without a gap, or all of it. */
struct segment_item {
    struct varve_layout_block first; /* has segment, stream, pool, flags */
    uint64_t addr, end;              /* with gaps, if it is all of an expandable one */
    uint64_t mapped, allocated, active, requested, largest_free;
    size_t block_count;
};

/// The next item at or behind *from, which moves to its end; false if there is none. With `whole` the ranges
/// of an expandable segment are one item.
bool segment_next(const struct varve_layout *layout, uint64_t *from, bool whole, struct segment_item *item_out);
/// The blocks of an item as a line of at most `columns` characters: '#' used, 'p' pending, '.' free, ' ' not
/// mapped, each for what most of its bytes are.
void segment_map(const struct varve_layout *layout, const struct segment_item *item, char *line, size_t columns);

#endif
