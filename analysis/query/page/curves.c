/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the views timeline, timeline_process, rss_total, mark, oom, device_failure and ladder_change, reduced. The
 * ladder is the running sum of its changes, as view `ladder` defines it: here it is added up while rows come, which
 * costs no sorting of ten million rows.
 */
#include "analysis/query/page/curves.h"

#include "analysis/base/memory.h"
#include "analysis/query/db.h"
#include "analysis/query/page/reduce.h"
#include "analysis/query/page/writer.h"

#include <stdlib.h>
#include <string.h>

#define POINTS_OF_ALL 6000
#define POINTS_OF_ONE 1200
#define POINTS_OF_LADDER 3000
#define SERIES_MAX 48
#define MARKS_MAX 500
#define FAILURES_MAX 300

enum timeline_figure {
    ALLOCATED,
    ALLOCATED_MAX,
    ACTIVE,
    RESERVED,
    REQUESTED,
    LIVE_ALLOCATIONS,
    TIMELINE_FIGURES,
};

/* One array of the points: the last value of each, or the most. */
static void write_figure(struct page_writer *writer, const char *key, const struct reduce *reduce, int figure,
                         bool is_most)
{
    int64_t *numbers = memory_resize(NULL, (reduce->count + 1) * sizeof(numbers[0]));
    for (size_t i = 0; i < reduce->count; i++) {
        numbers[i] = is_most ? reduce->points[i].most[figure] : reduce->points[i].last.figures[figure];
    }
    page_member_deltas(writer, key, numbers, reduce->count);
    free(numbers);
}

static void write_times(struct page_writer *writer, const struct reduce *reduce)
{
    int64_t *numbers = memory_resize(NULL, (reduce->count + 1) * sizeof(numbers[0]));
    for (size_t i = 0; i < reduce->count; i++) {
        numbers[i] = reduce->points[i].last.ts_ns;
    }
    page_member_deltas(writer, "t", numbers, reduce->count);
    free(numbers);
}

/* ---- live bytes ---- */

/* The most for the chart, and what belongs to the other figures of a point, its last: in few recordings is
 * there a difference. */
static void write_reserved(struct page_writer *writer, const struct reduce *reduce)
{
    bool has_fallen = false;
    for (size_t i = 0; i < reduce->count && !has_fallen; i++) {
        has_fallen = reduce->points[i].most[RESERVED] != reduce->points[i].last.figures[RESERVED];
    }
    write_figure(writer, "reserved", reduce, RESERVED, true);
    if (has_fallen) {
        write_figure(writer, "reserved_last", reduce, RESERVED, false);
    }
}

static void write_series(struct database *database, struct page_writer *writer, struct cursor *series)
{
    int64_t process_id = cursor_integer(series, 0);
    struct reduce reduce;
    reduce_init(&reduce, process_id == 0 ? POINTS_OF_ALL : POINTS_OF_ONE, ALLOCATED_MAX);
    struct cursor cursor;
    cursor_open(
        &cursor, database,
        process_id == 0
            ? "SELECT ts_ns, allocated, allocated_max, active, reserved, requested, live_allocations FROM timeline "
              "WHERE domain = ?1 AND device = ?2 ORDER BY seq"
            : "SELECT ts_ns, allocated, allocated_max, active, reserved, requested, live_allocations FROM "
              "timeline_process WHERE domain = ?1 AND device = ?2 AND process_id = ?3 ORDER BY seq");
    cursor_bind_text(&cursor, 1, cursor_name(series, 2));
    cursor_bind_integer(&cursor, 2, cursor_integer(series, 3));
    if (process_id != 0) {
        cursor_bind_integer(&cursor, 3, process_id);
    }
    bool has_reserved = false;
    while (cursor_next(&cursor)) {
        struct reduce_row row = {.ts_ns = cursor_integer(&cursor, 0)};
        for (int i = 0; i < TIMELINE_FIGURES; i++) {
            row.figures[i] = cursor_integer(&cursor, i + 1);
        }
        has_reserved = has_reserved || row.figures[RESERVED] > 0;
        reduce_add(&reduce, &row);
    }
    cursor_close(&cursor);
    page_open(writer, '{');
    page_member_integer(writer, "process", process_id);
    page_member_integer(writer, "pid", cursor_integer(series, 1));
    page_member_text(writer, "domain", cursor_name(series, 2));
    page_member_integer(writer, "device", cursor_integer(series, 3));
    page_member_integer(writer, "peak", cursor_integer(series, 4));
    page_member_integer(writer, "peak_t", cursor_integer(series, 5));
    if (!cursor_is_null(series, 6)) { /* many events may have its time */
        page_member_integer(writer, "peak_seq", cursor_integer(series, 6));
    }
    write_times(writer, &reduce);
    write_figure(writer, "bytes", &reduce, ALLOCATED, false);
    write_figure(writer, "most", &reduce, ALLOCATED_MAX, true);
    write_figure(writer, "count", &reduce, LIVE_ALLOCATIONS, false);
    if (has_reserved) {
        write_reserved(writer, &reduce);
        write_figure(writer, "requested", &reduce, REQUESTED, false);
    }
    page_close(writer, '}');
    reduce_free(&reduce);
}

static void write_all_series(struct database *database, struct page_writer *writer)
{
    page_key(writer, "series");
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(
        &cursor, database,
        "SELECT * FROM (SELECT 0 AS process_id, 0 AS pid, domain, device, peak_bytes, peak_ns, peak_seq FROM total "
        "UNION ALL SELECT process_id, pid, domain, device, peak_bytes, peak_ns, peak_seq FROM total_process "
        "WHERE (SELECT images FROM recording) > 1) ORDER BY process_id > 0, peak_bytes DESC, domain LIMIT ?1");
    cursor_bind_integer(&cursor, 1, SERIES_MAX);
    while (cursor_next(&cursor)) {
        write_series(database, writer, &cursor);
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

static void write_rss(struct database *database, struct page_writer *writer)
{
    struct reduce reduce;
    reduce_init(&reduce, POINTS_OF_ONE, 1);
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT ts_ns, rss_bytes, rss_bytes_max FROM rss_total ORDER BY ts_ns");
    while (cursor_next(&cursor)) {
        struct reduce_row row = {.ts_ns = cursor_integer(&cursor, 0)};
        row.figures[0] = cursor_integer(&cursor, 1);
        row.figures[1] = cursor_integer(&cursor, 2);
        reduce_add(&reduce, &row);
    }
    cursor_close(&cursor);
    page_key(writer, "rss");
    page_open(writer, '{');
    write_times(writer, &reduce);
    write_figure(writer, "bytes", &reduce, 0, false);
    write_figure(writer, "most", &reduce, 1, true);
    page_close(writer, '}');
    reduce_free(&reduce);
}

/* ---- moments that are marked ---- */

static void write_marks(struct database *database, struct page_writer *writer)
{
    page_key(writer, "marks");
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(
        &cursor, database,
        "SELECT name, begin_ns, end_ns, pid FROM mark ORDER BY coalesce(end_ns, 9223372036854775807) - begin_ns DESC "
        "LIMIT ?1");
    cursor_bind_integer(&cursor, 1, MARKS_MAX);
    while (cursor_next(&cursor)) {
        page_open(writer, '{');
        page_member_text(writer, "name", cursor_name(&cursor, 0));
        page_member_integer(writer, "begin", cursor_integer(&cursor, 1));
        if (!cursor_is_null(&cursor, 2)) {
            page_member_integer(writer, "end", cursor_integer(&cursor, 2));
        }
        page_member_integer(writer, "pid", cursor_integer(&cursor, 3));
        page_close(writer, '}');
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

static void write_failures(struct database *database, struct page_writer *writer)
{
    page_key(writer, "failures");
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database,
                "SELECT seq, ts_ns, device, requested, 'a caching allocator' AS what FROM oom UNION ALL "
                "SELECT seq, ts_ns, device, bytes, function FROM device_failure ORDER BY seq LIMIT ?1");
    cursor_bind_integer(&cursor, 1, FAILURES_MAX);
    while (cursor_next(&cursor)) {
        page_open(writer, '{');
        page_member_integer(writer, "seq", cursor_integer(&cursor, 0));
        page_member_integer(writer, "t", cursor_integer(&cursor, 1));
        page_member_integer(writer, "device", cursor_integer(&cursor, 2));
        page_member_integer(writer, "bytes", cursor_integer(&cursor, 3));
        page_member_text(writer, "what", cursor_name(&cursor, 4));
        page_close(writer, '}');
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

void curves_write(struct database *database, struct page_writer *writer)
{
    page_open(writer, '{');
    write_all_series(database, writer);
    write_rss(database, writer);
    write_marks(database, writer);
    write_failures(database, writer);
    page_close(writer, '}');
}

/* ---- the ladder ---- */

static const char *const rungs[REDUCE_FIGURES] = {
    "reserved",         "live_requested", "rounding",        "unsplit_remainder", "segment_quantum",
    "pool_segregation", "stream_pending", "cached_segments", "external_holes",
};

struct allocator {
    int64_t process_id, device;
    struct reduce_row now;
    struct reduce reduce;
};

static struct allocator *find_allocator(struct allocator *allocators, size_t *count, int64_t process_id, int64_t device)
{
    for (size_t i = 0; i < *count; i++) {
        if (allocators[i].process_id == process_id && allocators[i].device == device) {
            return &allocators[i];
        }
    }
    if (*count == SERIES_MAX) {
        return NULL;
    }
    allocators[*count] = (struct allocator){.process_id = process_id, .device = device};
    reduce_init(&allocators[*count].reduce, POINTS_OF_LADDER, 0);
    return &allocators[(*count)++];
}

/* Of a point both rows, so that the most that was reserved is there; each is one of the view, so rungs add up. */
static void write_allocator(struct page_writer *writer, const struct allocator *allocator)
{
    size_t count = 0;
    struct reduce_row *rows = memory_resize(NULL, (allocator->reduce.count * 2 + 1) * sizeof(rows[0]));
    int64_t *numbers = memory_resize(NULL, (allocator->reduce.count * 2 + 1) * sizeof(numbers[0]));
    for (size_t i = 0; i < allocator->reduce.count; i++) {
        const struct reduce_point *point = &allocator->reduce.points[i];
        if (memcmp(&point->top, &point->last, sizeof(point->top)) != 0) {
            rows[count++] = point->top;
        }
        rows[count++] = point->last;
    }
    page_open(writer, '{');
    page_member_integer(writer, "process", allocator->process_id);
    page_member_integer(writer, "device", allocator->device);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = rows[i].ts_ns;
    }
    page_member_deltas(writer, "t", numbers, count);
    for (int figure = 0; figure < REDUCE_FIGURES; figure++) {
        for (size_t i = 0; i < count; i++) {
            numbers[i] = rows[i].figures[figure];
        }
        page_member_deltas(writer, rungs[figure], numbers, count);
    }
    page_close(writer, '}');
    free(rows);
    free(numbers);
}

void curves_ladder_write(struct database *database, struct page_writer *writer)
{
    struct allocator allocators[SERIES_MAX];
    struct cursor cursor;
    size_t count = 0;
    if (database_integer(database, "SELECT EXISTS (SELECT 1 FROM ladder_peak)", 0) != 0) {
        cursor_open(
            &cursor, database,
            "SELECT process_id, device, ts_ns, reserved, live_requested, rounding, unsplit_remainder, segment_quantum, "
            "pool_segregation, stream_pending, cached_segments, external_holes FROM ladder_change ORDER BY seq");
        while (cursor_next(&cursor)) {
            struct allocator *allocator =
                find_allocator(allocators, &count, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
            if (allocator != NULL) {
                allocator->now.ts_ns = cursor_integer(&cursor, 2);
                for (int i = 0; i < REDUCE_FIGURES; i++) {
                    allocator->now.figures[i] =
                        (int64_t)((uint64_t)allocator->now.figures[i] + (uint64_t)cursor_integer(&cursor, i + 3));
                }
                reduce_add(&allocator->reduce, &allocator->now);
            }
        }
        cursor_close(&cursor);
    }
    page_open(writer, '[');
    for (size_t i = 0; i < count; i++) {
        if (allocators[i].reduce.count > 0) {
            write_allocator(writer, &allocators[i]);
        }
        reduce_free(&allocators[i].reduce);
    }
    page_close(writer, ']');
}
