/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the views timeline, timeline_process, rss_total, mark, oom, device_failure and ladder_change. The ladder is
 * the running sum of its changes, as view `ladder` defines it: here it is added up, and thinned, while rows come, which
 * costs no sorting of ten million rows.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"
#include "base/downsample.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_OF_SERIES 10000 /* more than are stored of one */
#define ROWS_OF_LADDER 6000
#define ROW_VALUES_MAX 5U
#define SERIES_MAX 48
#define MARKS_MAX 500
#define FAILURES_MAX 300

/* ---- rows, of which each value has an array of its own ---- */

static void rows_add(struct downsample *rows, const int64_t *row)
{
    if (!downsample_reserve(rows)) {
        memory_exhausted();
    }
    downsample_add(rows, row);
}

/* Those of a question, in the order of time, which comes first; then the `curves` whose largest values stay. */
static struct downsample page_curves_rows_read(struct cursor *cursor, unsigned width, unsigned curves)
{
    struct downsample rows = downsample_make(ROWS_OF_SERIES, width, curves, 0);
    int64_t row[ROW_VALUES_MAX];
    while (cursor_next(cursor)) {
        for (unsigned i = 0; i < width; i++) {
            row[i] = cursor_integer(cursor, (int)i);
        }
        rows_add(&rows, row);
    }
    cursor_close(cursor);
    return rows;
}

/* A key NULL: that value is left out. */
static void page_curves_rows_write(struct page_writer *writer, const struct downsample *rows, const char *const *keys)
{
    int64_t *numbers = memory_resize(NULL, (rows->count + 1) * sizeof(numbers[0]));
    for (unsigned value = 0; value < rows->width; value++) {
        for (size_t i = 0; i < rows->count; i++) {
            numbers[i] = downsample_row(rows, i)[value];
        }
        if (keys[value] != NULL) {
            page_member_deltas(writer, keys[value], numbers, rows->count);
        }
    }
    free(numbers);
}

/* ---- live bytes ---- */

static void page_curves_write_series(struct database *database, struct page_writer *writer, struct cursor *series)
{
    enum { TIME, BYTES, RESERVED, REQUESTED, COUNT, VALUES };
    int64_t process_id = cursor_integer(series, 0);
    struct cursor cursor;
    cursor_open(&cursor, database, process_id == 0 ? sql_timeline : sql_timeline_of_process);
    cursor_bind_text(&cursor, 1, cursor_name(series, 2));
    cursor_bind_integer(&cursor, 2, cursor_integer(series, 3));
    if (process_id != 0) {
        cursor_bind_integer(&cursor, 3, process_id);
    }
    struct downsample rows = page_curves_rows_read(&cursor, VALUES, REQUESTED);
    bool has_reserved = false;
    for (size_t i = 0; i < rows.count && !has_reserved; i++) {
        has_reserved = downsample_row(&rows, i)[RESERVED] > 0;
    }
    const char *const keys[VALUES] = {"t", "bytes", has_reserved ? "reserved" : NULL, has_reserved ? "requested" : NULL,
                                      "count"};
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
    page_curves_rows_write(writer, &rows, keys);
    page_close(writer, '}');
    downsample_free(&rows);
}

static void write_all_series(struct database *database, struct page_writer *writer)
{
    page_key(writer, "series");
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_peaks);
    cursor_bind_integer(&cursor, 1, SERIES_MAX);
    while (cursor_next(&cursor)) {
        page_curves_write_series(database, writer, &cursor);
    }
    cursor_close(&cursor);
    page_close(writer, ']');
}

static void page_curves_write_rss(struct database *database, struct page_writer *writer)
{
    static const char *const keys[] = {"t", "bytes"};
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT ts_ns, rss_bytes FROM rss_total ORDER BY ts_ns");
    struct downsample rows = page_curves_rows_read(&cursor, 2, 1);
    page_key(writer, "rss");
    page_open(writer, '{');
    page_member_integer(writer, "peak", report_figure(database, "rss peak", 0));
    page_curves_rows_write(writer, &rows, keys);
    page_close(writer, '}');
    downsample_free(&rows);
}

/* ---- moments that are marked ---- */

static void page_curves_write_marks(struct database *database, struct page_writer *writer)
{
    page_key(writer, "marks");
    page_open(writer, '[');
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_longest_marks);
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
    cursor_open(&cursor, database, sql_page_failures);
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
    page_curves_write_rss(database, writer);
    page_curves_write_marks(database, writer);
    write_failures(database, writer);
    page_close(writer, '}');
}

/* ---- the ladder ---- */

static const char *const ladder[] = {
    "t",
    "reserved",
    "live_requested",
    "rounding",
    "unsplit_remainder",
    "segment_quantum",
    "pool_segregation",
    "stream_pending",
    "cached_segments",
    "external_holes",
};

#define LADDER_VALUES (sizeof(ladder) / sizeof(ladder[0]))

struct allocator {
    int64_t process_id, device;
    int64_t now[LADDER_VALUES];
    struct downsample rows; /* by what was reserved */
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
    allocators[*count].rows = downsample_make(ROWS_OF_LADDER, LADDER_VALUES, 1, 0);
    return &allocators[(*count)++];
}

static void write_allocator(struct page_writer *writer, const struct allocator *allocator)
{
    page_open(writer, '{');
    page_member_integer(writer, "process", allocator->process_id);
    page_member_integer(writer, "device", allocator->device);
    page_curves_rows_write(writer, &allocator->rows, ladder);
    page_close(writer, '}');
}

void curves_ladder_write(struct database *database, struct page_writer *writer)
{
    struct allocator allocators[SERIES_MAX];
    struct cursor cursor;
    size_t count = 0;
    if (report_figure(database, "ladders", 0) != 0) {
        cursor_open(&cursor, database, sql_page_ladder_changes);
        while (cursor_next(&cursor)) {
            struct allocator *allocator =
                find_allocator(allocators, &count, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
            if (allocator != NULL) {
                allocator->now[0] = cursor_integer(&cursor, 2);
                for (int i = 1; i < (int)LADDER_VALUES; i++) {
                    allocator->now[i] =
                        (int64_t)((uint64_t)allocator->now[i] + (uint64_t)cursor_integer(&cursor, i + 2));
                }
                rows_add(&allocator->rows, allocator->now);
            }
        }
        cursor_close(&cursor);
    }
    page_open(writer, '[');
    for (size_t i = 0; i < count; i++) {
        if (allocators[i].rows.count > 0) {
            write_allocator(writer, &allocators[i]);
        }
        downsample_free(&allocators[i].rows);
    }
    page_close(writer, ']');
}
