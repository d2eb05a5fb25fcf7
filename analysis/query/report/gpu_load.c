/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of caching allocators against the blocks in them, at the moment when most was reserved. The sums
 * come from the view device_segment; how much was free in one piece is asked of the layout at that event, as
 * `varve segments --at` does.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/memory.h"
#include "analysis/query/db.h"
#include "analysis/query/segments.h"
#include "trace/trace.h"

#include <stdlib.h>

/* The first row with most reserved is that of the segment's own event: the blocks that it was for are not in
 * it yet. So of all those moments the one with most allocated is taken. */
static const char segments_sql[] =
    "SELECT process_id, pid, device, peak_reserved, allocated, coalesce(active, allocated), seq, ts_ns, "
    "coalesce((SELECT a.allocated FROM timeline a WHERE a.process_id = m.process_id AND a.domain = 'device' "
    "AND a.device = m.device AND a.seq <= m.seq ORDER BY a.seq DESC LIMIT 1), -1) "
    "FROM (SELECT d.process_id, d.pid, d.device, d.peak_reserved, t.allocated, t.active, t.seq, t.ts_ns, "
    "row_number() OVER (PARTITION BY d.process_id, d.device ORDER BY t.allocated DESC, t.seq) AS place "
    "FROM device_segment d JOIN timeline t ON t.process_id = d.process_id AND t.domain = 'block' "
    "AND t.device = d.device AND t.reserved = d.peak_reserved) m "
    "WHERE place = 1 ORDER BY peak_reserved DESC, process_id, device LIMIT ?1";

/* Leaves -1 where the layout does not tell. */
static void take_layout(struct report_segment *row, struct database *database)
{
    struct segments_state state = {0};
    struct varve_message message = {""};

    if (segments_state_load(&state, database, row->seq, row->device, row->pid, &message) == VARVE_OK) {
        for (size_t i = 0; i < state.count; i++) {
            struct segment_item item;

            if (state.parts[i].process_id != row->process_id) {
                continue;
            }
            row->largest_free = 0;
            row->segments = 0;
            for (uint64_t from = 0; segment_next(state.parts[i].layout, &from, true, &item);) {
                row->segments += item.first.is_implied ? 0 : 1;
                row->largest_free = (int64_t)item.largest_free > row->largest_free
                                        ? (int64_t)item.largest_free
                                        : row->largest_free;
            }
        }
    }
    segments_state_free(&state);
}

void report_segments_load(struct report_segments *segments, struct database *database, int64_t limit)
{
    struct cursor cursor;

    *segments = (struct report_segments){0};
    cursor_open(&cursor, database, segments_sql);
    cursor_bind_integer(&cursor, 1, limit);
    while (cursor_next(&cursor)) {
        struct report_segment *row;

        segments->rows = memory_resize(segments->rows, (segments->count + 1) * sizeof(segments->rows[0]));
        row = &segments->rows[segments->count++];
        *row = (struct report_segment){
            .process_id = cursor_integer(&cursor, 0),
            .pid = cursor_integer(&cursor, 1),
            .device = cursor_integer(&cursor, 2),
            .reserved = cursor_integer(&cursor, 3),
            .allocated = cursor_integer(&cursor, 4),
            .active = cursor_integer(&cursor, 5),
            .seq = cursor_integer(&cursor, 6),
            .ts_ns = cursor_integer(&cursor, 7),
            .from_driver = cursor_integer(&cursor, 8),
            .largest_free = -1,
            .segments = -1,
        };
    }
    cursor_close(&cursor);
    for (size_t i = 0; i < segments->count; i++) {
        take_layout(&segments->rows[i], database);
    }
}

void report_segments_free(struct report_segments *segments)
{
    free(segments->rows);
    *segments = (struct report_segments){0};
}
