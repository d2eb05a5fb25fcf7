/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timeline for Perfetto. Of each process: counters of live bytes by domain, of what its caching allocators hold, and
 * of resident memory, as the views timeline_process and rss have them; segments and the largest blocks as slices, by
 * device and stream; on its threads marks, calls of the CUDA driver, and the stages of out-of-memory chains. A flow
 * joins what became of one segment: the call of the driver, the segment's allocation, the segment, its release; another
 * one the stages of a chain.
 */
#include "analysis/export/export.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/export/track_writer.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHAIN_FLOWS \
    (UINT64_C(1) << 48) /* flows of out-of-memory chains are numbered from here on, those of segments below */
#define NAME_BYTES 96

struct timeline {
    const struct export_request *request;
    struct track_writer writer;
    struct map processes; /* tracks, by row of process */
    struct map threads;   /* tracks, by row of thread */
    struct map calls;     /* of the driver: the segment that a call got memory for, by seq */
    int64_t end_ns;       /* of the recording: what lasts until then has no end of its own */
    bool is_empty;
};

static void rows_open(struct cursor *cursor, const struct timeline *timeline, const char *sql)
{
    cursor_open(cursor, timeline->request->database, sql);
    cursor_bind_integer(cursor, 1, timeline->request->process_id);
}

/* ---- processes and threads ---- */

static void export_perfetto_write_processes(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_processes);
    while (cursor_next(&cursor)) {
        map_put(&timeline->processes, (uint64_t)cursor_integer(&cursor, 0),
                track_process(&timeline->writer, cursor_integer(&cursor, 1), cursor_name(&cursor, 2),
                              cursor_integer(&cursor, 3)));
    }
    cursor_close(&cursor);
    rows_open(&cursor, timeline, "SELECT id, pid, tid, name FROM thread WHERE ?1 IN (0, process_id) ORDER BY id");
    while (cursor_next(&cursor)) {
        map_put(&timeline->threads, (uint64_t)cursor_integer(&cursor, 0),
                track_thread(&timeline->writer, cursor_integer(&cursor, 1), cursor_integer(&cursor, 2),
                             cursor_text(&cursor, 3)));
    }
    cursor_close(&cursor);
}

/* TRACK_NONE: there is none. */
static uint64_t track_of(const struct map *map, int64_t row)
{
    uint64_t found = map_find(map, (uint64_t)row);
    return found != MAP_NONE ? found : TRACK_NONE;
}

/* ---- counters ---- */

enum { COUNTERS = 4 };

/* Columns 3 to 6 of the rows below; what is NULL has no counter. */
static void write_counters(struct timeline *timeline)
{
    static const char *const names[COUNTERS] = {"allocated", "active", "reserved", "requested"};
    uint64_t tracks[COUNTERS] = {TRACK_NONE};
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_counters);
    cursor_bind_text(&cursor, 2, timeline->request->domain);
    int64_t process = 0;
    char group[NAME_BYTES] = "";
    while (cursor_next(&cursor)) {
        char name[NAME_BYTES + 16];
        int64_t ns = cursor_integer(&cursor, 2);
        snprintf(name, NAME_BYTES, "%s", cursor_name(&cursor, 1));
        if (cursor_integer(&cursor, 0) != process || strcmp(name, group) != 0) {
            process = cursor_integer(&cursor, 0);
            memcpy(group, name, sizeof(group));
            memset(tracks, 0, sizeof(tracks));
        }
        for (int i = 0; i < COUNTERS; i++) {
            if (cursor_is_null(&cursor, 3 + i)) {
                continue;
            }
            if (tracks[i] == TRACK_NONE) {
                snprintf(name, sizeof(name), "%s: %s", group, names[i]);
                tracks[i] = track_of_bytes(&timeline->writer, track_of(&timeline->processes, process), name);
            }
            track_count(&timeline->writer, tracks[i], ns, cursor_integer(&cursor, 3 + i));
        }
        timeline->is_empty = false;
    }
    cursor_close(&cursor);
}

static void export_perfetto_write_rss(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline,
              "SELECT process_id, ts_ns, rss_bytes FROM rss WHERE ?1 IN (0, process_id) ORDER BY process_id, ts_ns");
    uint64_t track = TRACK_NONE;
    int64_t process = 0;
    while (cursor_next(&cursor)) {
        if (track == TRACK_NONE || cursor_integer(&cursor, 0) != process) {
            process = cursor_integer(&cursor, 0);
            track = track_of_bytes(&timeline->writer, track_of(&timeline->processes, process), "resident memory");
        }
        track_count(&timeline->writer, track, cursor_integer(&cursor, 1), cursor_integer(&cursor, 2));
        timeline->is_empty = false;
    }
    cursor_close(&cursor);
}

/* ---- segments and blocks ---- */

/* The call of the driver just before a segment that has its address, and no other segment between. */
static void read_calls(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_calls_of_segments);
    while (cursor_next(&cursor)) {
        map_put(&timeline->calls, (uint64_t)cursor_integer(&cursor, 0), (uint64_t)cursor_integer(&cursor, 1));
    }
    cursor_close(&cursor);
}

/* The lanes of a process, device and stream: the first columns of a row, in the order of which rows come. */
struct stream_lanes {
    struct timeline *timeline;
    const char *what;
    struct lanes lanes;
    int64_t key[3];
    bool is_open;
    char name[NAME_BYTES];
};

static struct lanes *lanes_of(struct stream_lanes *streams, struct cursor *cursor)
{
    int64_t key[3];
    for (int i = 0; i < 3; i++) {
        key[i] = cursor_integer(cursor, i);
    }
    if (!streams->is_open || memcmp(key, streams->key, sizeof(key)) != 0) {
        lanes_end(&streams->lanes);
        memcpy(streams->key, key, sizeof(key));
        streams->is_open = true;
        snprintf(streams->name, sizeof(streams->name), "GPU %" PRId64 ", stream %" PRId64 ": %s", key[1], key[2],
                 streams->what);
        lanes_begin(&streams->lanes, &streams->timeline->writer, track_of(&streams->timeline->processes, key[0]),
                    streams->name, false);
    }
    return &streams->lanes;
}

/* An event on a thread, with the flow of a segment. */
static void write_segment_step(struct timeline *timeline, int64_t thread, int64_t ns, const struct track_event *segment,
                               const char *name, bool ends_flow)
{
    struct track_event event = *segment;
    uint64_t track = track_of(&timeline->threads, thread);
    if (track != TRACK_NONE) {
        event.name = name;
        event.ends_flow = ends_flow;
        track_instant(&timeline->writer, track, ns, &event);
    }
}

static void export_perfetto_write_segment(struct timeline *timeline, struct lanes *lanes, struct cursor *cursor)
{
    bool is_freed = !cursor_is_null(cursor, 8);
    int64_t begin_ns = cursor_integer(cursor, 7);
    int64_t end_ns = is_freed ? cursor_integer(cursor, 8) : timeline->end_ns;
    bool has_flow = track_of(&timeline->threads, cursor_integer(cursor, 11)) != TRACK_NONE;
    struct track_event event = {.category = "segment",
                                .function = cursor_text(cursor, 13),
                                .file = cursor_text(cursor, 14),
                                .line = cursor_integer(cursor, 15),
                                .flow = has_flow ? (uint64_t)cursor_integer(cursor, 3) : 0};
    struct format_text size = format_bytes(cursor_integer(cursor, 6));
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "segment %s", size.text);
    event.name = name;
    track_event_number(&event, "segment", cursor_integer(cursor, 3));
    track_event_number(&event, "pool", cursor_integer(cursor, 4));
    track_event_pointer(&event, "addr", cursor_integer(cursor, 5));
    track_event_number(&event, "size", cursor_integer(cursor, 6));
    track_event_number(&event, "expandable", cursor_integer(cursor, 9));
    track_event_text(&event, "released by", is_freed ? cursor_text(cursor, 10) : "nobody: there at the end");
    write_segment_step(timeline, cursor_integer(cursor, 11), begin_ns, &event, "segment_alloc", false);
    lanes_add(lanes, begin_ns, end_ns, &event);
    if (is_freed) {
        write_segment_step(timeline, cursor_integer(cursor, 12), end_ns, &event, "segment_free", true);
    }
}

static void export_perfetto_write_segments(struct timeline *timeline)
{
    struct stream_lanes streams = {.timeline = timeline, .what = "segments"};
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_segments);
    while (cursor_next(&cursor)) {
        export_perfetto_write_segment(timeline, lanes_of(&streams, &cursor), &cursor);
        timeline->is_empty = false;
    }
    cursor_close(&cursor);
    lanes_end(&streams.lanes);
}

static void export_perfetto_write_block(struct timeline *timeline, struct lanes *lanes, struct cursor *cursor)
{
    bool is_freed = !cursor_is_null(cursor, 9);
    struct format_text size = format_bytes(cursor_integer(cursor, 6));
    const char *function = cursor_text(cursor, 10);
    struct track_event event = {.category = "block",
                                .name = function,
                                .function = function,
                                .file = cursor_text(cursor, 11),
                                .line = cursor_integer(cursor, 12)};
    char name[NAME_BYTES];
    if (function == NULL) {
        snprintf(name, sizeof(name), "block %s", size.text);
        event.name = name;
    }
    track_event_number(&event, "allocation", cursor_integer(cursor, 3));
    track_event_number(&event, "segment", cursor_integer(cursor, 4));
    track_event_pointer(&event, "addr", cursor_integer(cursor, 5));
    track_event_number(&event, "size", cursor_integer(cursor, 6));
    track_event_number(&event, "requested", cursor_integer(cursor, 7));
    lanes_add(lanes, cursor_integer(cursor, 8), is_freed ? cursor_integer(cursor, 9) : timeline->end_ns, &event);
}

static void export_perfetto_write_blocks(struct timeline *timeline)
{
    struct stream_lanes streams = {.timeline = timeline, .what = "blocks"};
    struct database *database = timeline->request->database;
    int64_t blocks = database_integer_of(
        database, "SELECT sum(allocations) FROM total_process WHERE domain = 'block' AND ?1 IN (0, process_id)",
        timeline->request->process_id);
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_blocks);
    cursor_bind_integer(&cursor, 2, timeline->request->blocks);
    while (cursor_next(&cursor)) {
        export_perfetto_write_block(timeline, lanes_of(&streams, &cursor), &cursor);
    }
    cursor_close(&cursor);
    lanes_end(&streams.lanes);
    if (blocks > timeline->request->blocks) {
        varve_message_set(timeline->request->note, VARVE_OK,
                          "of %s blocks the largest %s are drawn; --blocks N draws others", format_count(blocks).text,
                          format_count(timeline->request->blocks).text);
    }
}

/* ---- what threads did ---- */

/* Slices of threads that nest, by the thread of column 0. */
static struct lanes *thread_lanes(struct timeline *timeline, struct lanes *lanes, int64_t *thread, int64_t now,
                                  const char *name)
{
    if (lanes->count == 0 || *thread != now) {
        lanes_end(lanes);
        *thread = now;
        lanes_begin(lanes, &timeline->writer, track_of(&timeline->threads, now), name, true);
    }
    return lanes;
}

static void export_perfetto_write_marks(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_marks);
    cursor_bind_integer(&cursor, 2, timeline->end_ns);
    int64_t thread = 0;
    struct lanes lanes = {0};
    while (cursor_next(&cursor)) {
        struct track_event event = {.category = "mark", .name = cursor_name(&cursor, 1)};
        track_event_text(&event, "end", cursor_integer(&cursor, 4) != 0 ? "none: open at the end" : NULL);
        lanes_add(thread_lanes(timeline, &lanes, &thread, cursor_integer(&cursor, 0), "marks"),
                  cursor_integer(&cursor, 2), cursor_integer(&cursor, 3), &event);
        timeline->is_empty = false;
    }
    cursor_close(&cursor);
    lanes_end(&lanes);
}

/* Records are written when a call returns. Those of frees say nothing of its time, which is in the dev_sync that
 * follows: they are moments. */
static void export_perfetto_write_calls(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_calls);
    int64_t thread = 0;
    struct lanes lanes = {0};
    while (cursor_next(&cursor)) {
        int64_t end_ns = cursor_integer(&cursor, 2);
        int64_t took_ns = cursor_integer(&cursor, 3);
        uint64_t track = track_of(&timeline->threads, cursor_integer(&cursor, 0));
        struct track_event event = {.category = "driver",
                                    .name = cursor_name(&cursor, 4),
                                    .function = cursor_text(&cursor, 12),
                                    .file = cursor_text(&cursor, 13),
                                    .line = cursor_integer(&cursor, 14),
                                    .flow = track_of(&timeline->calls, cursor_integer(&cursor, 1))};
        track_event_text(&event, "kind", cursor_text(&cursor, 5));
        track_event_number(&event, "device", cursor_integer(&cursor, 6));
        track_event_number(&event, "stream", cursor_integer(&cursor, 7));
        track_event_pointer(&event, "addr", cursor_integer(&cursor, 8));
        track_event_number(&event, "size", cursor_integer(&cursor, 9));
        if (cursor_integer(&cursor, 10) != 0) {
            track_event_number(&event, "CUresult", cursor_integer(&cursor, 11));
        }
        if (took_ns > 0) {
            lanes_add(thread_lanes(timeline, &lanes, &thread, cursor_integer(&cursor, 0), "CUDA driver"),
                      end_ns > took_ns ? end_ns - took_ns : 0, end_ns, &event);
        } else if (track != TRACK_NONE) {
            track_instant(&timeline->writer, track, end_ns, &event);
        }
        timeline->is_empty = false;
    }
    cursor_close(&cursor);
    lanes_end(&lanes);
}

/* A chain is the stages of one request: those of a thread up to one that succeeded, or to the request's failure. */
static void write_chains(struct timeline *timeline)
{
    struct cursor cursor;
    rows_open(&cursor, timeline, sql_perfetto_oom_chains);
    for (uint64_t flow = CHAIN_FLOWS; cursor_next(&cursor);) {
        uint64_t track = track_of(&timeline->threads, cursor_integer(&cursor, 0));
        bool is_oom = cursor_integer(&cursor, 3) == 12;
        bool is_first = cursor_integer(&cursor, 11) != 0;
        bool has_next = cursor_integer(&cursor, 12) != 0;
        struct track_event event = {.category = "oom"};
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), is_oom ? "out of memory" : "oom_retry: %.60s", cursor_name(&cursor, 4));
        event.name = name;
        flow += is_first ? 1 : 0;
        event.flow = is_first && !has_next ? 0 : flow;
        event.ends_flow = !has_next;
        track_event_number(&event, "device", cursor_integer(&cursor, 9));
        track_event_number(&event, "bytes asked", cursor_integer(&cursor, 5));
        track_event_number(&event, is_oom ? "bytes allocated" : "bytes freed", cursor_integer(&cursor, 6));
        track_event_number(&event, is_oom ? "bytes reserved" : "succeeded", cursor_integer(&cursor, 7));
        if (is_oom) {
            track_event_number(&event, "largest free block", cursor_integer(&cursor, 8));
        }
        if (track != TRACK_NONE) {
            track_instant(&timeline->writer, track, cursor_integer(&cursor, 2), &event);
        }
    }
    cursor_close(&cursor);
}

static void note_what_lacks(struct timeline *timeline)
{
    struct database *database = timeline->request->database;
    char kept[256];
    report_kept_words(kept, sizeof(kept), database);
    if (timeline->is_empty) {
        varve_message_set(timeline->request->note, VARVE_OK,
                          "%s: nothing was allocated: the timeline has processes only", database_path(database));
    } else if (!report_keeps_events(database) && timeline->request->note->text[0] == '\0') {
        varve_message_set(timeline->request->note, VARVE_OK, "%s: %s: the timeline lacks what needs the others",
                          database_path(database), kept);
    }
}

static int export_perfetto(const void *request_untyped, FILE *out, struct varve_message *message)
{
    const struct export_request *request = request_untyped;
    struct timeline timeline = {.request = request, .is_empty = true};
    struct database *database = request->database;
    timeline.end_ns = database_integer(database, "SELECT end_ns FROM recording", 0);
    track_writer_begin(&timeline.writer, out, database_meta_integer(database, "start_real_ns", 0));
    export_perfetto_write_processes(&timeline);
    write_counters(&timeline);
    export_perfetto_write_rss(&timeline);
    read_calls(&timeline);
    export_perfetto_write_segments(&timeline);
    export_perfetto_write_blocks(&timeline);
    export_perfetto_write_marks(&timeline);
    export_perfetto_write_calls(&timeline);
    write_chains(&timeline);
    note_what_lacks(&timeline);
    track_writer_end(&timeline.writer);
    map_free(&timeline.processes);
    map_free(&timeline.threads);
    map_free(&timeline.calls);
    return database_error(database, message);
}

const struct export_format export_format_perfetto = {
    .name = "perfetto",
    .meaning = "A trace for ui.perfetto.dev. Of each process counters of live bytes by domain, of what caching "
               "allocators have allocated, active, reserved and requested on each device, and of resident memory, as "
               "the views timeline_process and rss have them; segments and the largest blocks as slices, by device "
               "and stream; on threads marks, calls of the CUDA driver, and stages of out-of-memory chains. Flows "
               "join the call of the driver, the allocation of a segment, the segment and its release, and the "
               "stages of one chain.",
    .write = export_perfetto,
    .is_binary = true,
    .takes_part = true,
    .takes_blocks = true,
};
