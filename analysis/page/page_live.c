/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocation was live from the first moment that is not before it to the last one before its free: two numbers of
 * its line change, and running sums make bytes of them at the end. A moment costs no more for five million
 * allocations than for five.
 */
#include "analysis/page/page_writer.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"

#include "statements_generated.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 90          /* of time, and of rows of the timeline */
#define EXTRA_MOMENTS 100 /* peaks, failures, ends of named phases */
#define LINES_OF_ALL 24   /* lines that are shown of a moment, of all processes together */
#define LINES_OF_ONE 8    /* of one process */
#define REST (-1)

/* ---- which moments ---- */

static int compare_moments(const void *left, const void *right)
{
    const struct live_moment *a = left, *b = right;
    return (a->seq > b->seq) - (a->seq < b->seq);
}

static void add_moment(struct live *live, int64_t seq, int64_t ts_ns)
{
    if (live->moment_count < LIVE_MOMENTS_MAX) {
        live->moments[live->moment_count++] = (struct live_moment){seq, ts_ns};
    }
}

/* The last row of each step of time, and of each step of rows. */
static void add_steps(struct live *live, struct database *database)
{
    static const char range_sql[] = "SELECT min(ts_ns), max(ts_ns), count(*) FROM timeline";
    struct live_moment before = {-1, 0};
    struct cursor cursor;
    cursor_open(&cursor, database, range_sql);
    int64_t begin = 0, end = 0, count = 0;
    if (cursor_next(&cursor)) {
        begin = cursor_integer(&cursor, 0);
        end = cursor_integer(&cursor, 1);
        count = cursor_integer(&cursor, 2);
    }
    cursor_close(&cursor);
    cursor_open(&cursor, database, "SELECT seq, ts_ns FROM timeline ORDER BY seq");
    int64_t time_step = 0, row_step = 0;
    int64_t number = 0;
    while (cursor_next(&cursor)) {
        struct live_moment moment = {cursor_integer(&cursor, 0), cursor_integer(&cursor, 1)};
        double part = end > begin ? ((double)moment.ts_ns - (double)begin) / ((double)end - (double)begin) : 0;
        int64_t time_now = (int64_t)(part * STEPS);
        int64_t row_now = number++ * STEPS / (count > 0 ? count : 1);
        if (before.seq >= 0 && (time_now != time_step || row_now != row_step)) {
            add_moment(live, before.seq, before.ts_ns);
        }
        time_step = time_now;
        row_step = row_now;
        before = moment;
    }
    cursor_close(&cursor);
    if (before.seq >= 0) {
        add_moment(live, before.seq, before.ts_ns);
    }
}

/* Peaks, and as far as there is room the last rows before what else is marked in the chart. */
static void add_extra(struct live *live, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_page_live_moments);
    cursor_bind_integer(&cursor, 1, EXTRA_MOMENTS);
    while (cursor_next(&cursor)) {
        add_moment(live, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
    }
    cursor_close(&cursor);
}

void live_init(struct live *live, struct database *database)
{
    *live = (struct live){0};
    add_extra(live, database);
    add_steps(live, database);
    if (live->moment_count > 0) {
        qsort(live->moments, live->moment_count, sizeof(live->moments[0]), compare_moments);
    }
    size_t kept = 0;
    for (size_t i = 0; i < live->moment_count; i++) {
        if (kept == 0 || live->moments[kept - 1].seq != live->moments[i].seq) {
            live->moments[kept++] = live->moments[i];
        }
    }
    live->moment_count = kept;
}

/* ---- adding up ---- */

static uint32_t find_series(struct live *live, const struct page_allocation *allocation)
{
    for (size_t i = live->series_count; i-- > 0;) {
        const struct live_series *series = &live->series[i];
        if (series->domain == allocation->domain && series->process_id == allocation->process_id &&
            series->device == allocation->device) {
            return (uint32_t)i;
        }
    }
    live->series = memory_grow(live->series, &live->series_capacity, live->series_count, sizeof(live->series[0]));
    live->series[live->series_count] = (struct live_series){
        .domain = allocation->domain, .process_id = allocation->process_id, .device = allocation->device};
    return (uint32_t)live->series_count++;
}

static struct live_row *find_row(struct live *live, uint32_t series, int64_t line)
{
    const struct {
        int64_t series, line;
    } whole = {series, line};
    uint64_t key = map_hash(&whole, sizeof(whole));
    uint64_t found;
    while ((found = map_find(&live->row_numbers, key)) != MAP_NONE) {
        if (live->rows[found].series == series && live->rows[found].line == line) {
            return &live->rows[found];
        }
        key++;
    }
    if (live->row_count >= LIVE_ROWS_MAX && line != REST) {
        return find_row(live, series, REST);
    }
    map_put(&live->row_numbers, key, live->row_count);
    live->rows = memory_grow(live->rows, &live->row_capacity, live->row_count, sizeof(live->rows[0]));
    live->rows[live->row_count] = (struct live_row){.series = series, .line = line};
    return &live->rows[live->row_count++];
}

size_t live_moment_of(const struct live *live, int64_t seq)
{
    size_t low = 0, high = live->moment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (live->moments[middle].seq < seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void live_add(void *live_untyped, const struct page_allocation *allocation)
{
    struct live *live = live_untyped;
    size_t from = live_moment_of(live, allocation->alloc_seq);
    size_t to = allocation->free_seq == PAGE_NEVER ? live->moment_count : live_moment_of(live, allocation->free_seq);
    if (from < to) {
        struct live_row *row = find_row(live, find_series(live, allocation), allocation->line);
        row->bytes[from] = sum_wrapping(row->bytes[from], (int64_t)allocation->size);
        row->bytes[to] = sum_wrapping(row->bytes[to], -(int64_t)allocation->size);
    }
}

void live_finish(struct live *live)
{
    for (size_t i = 0; i < live->row_count; i++) {
        for (size_t moment = 1; moment < live->moment_count; moment++) {
            live->rows[i].bytes[moment] = sum_wrapping(live->rows[i].bytes[moment], live->rows[i].bytes[moment - 1]);
        }
    }
}

void live_free(struct live *live)
{
    free(live->series);
    free(live->rows);
    map_free(&live->row_numbers);
    *live = (struct live){0};
}

/* ---- which lines ---- */

struct ranked {
    int64_t bytes;
    uint32_t row;
};

static int page_live_compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : (a->row > b->row) - (a->row < b->row);
}

/* Marks the `shown` largest rows of each moment, of the `count` rows whose numbers are given. */
static void mark_largest(const struct live *live, const uint32_t *numbers, size_t count, size_t shown, bool *is_shown)
{
    struct ranked *ranked = memory_resize(NULL, (count + 1) * sizeof(ranked[0]));
    for (size_t moment = 0; moment < live->moment_count; moment++) {
        for (size_t i = 0; i < count; i++) {
            ranked[i] = (struct ranked){live->rows[numbers[i]].bytes[moment], numbers[i]};
        }
        qsort(ranked, count, sizeof(ranked[0]), page_live_compare_ranked);
        for (size_t i = 0; i < count && i < shown && ranked[i].bytes > 0; i++) {
            is_shown[ranked[i].row] = true;
        }
    }
    free(ranked);
}

static void write_line(struct page_writer *writer, struct database *database, int64_t line)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_place_of_symbol);
    cursor_bind_integer(&cursor, 1, line);
    if (line > 0 && cursor_next(&cursor)) {
        page_name(writer, cursor_text(&cursor, 0));
        page_name(writer, cursor_text(&cursor, 1));
        page_integer(writer, cursor_integer(&cursor, 2));
    } else {
        page_integer(writer, -1);
        page_integer(writer, -1);
        page_integer(writer, 0);
    }
    cursor_close(&cursor);
}

static void page_live_write_series(const struct live *live, struct database *database, struct page_writer *writer,
                                   uint32_t number)
{
    const struct live_series *series = &live->series[number];
    size_t shown = live->series_count > 8 ? LINES_OF_ONE : LINES_OF_ALL;
    uint32_t *numbers = memory_resize(NULL, (live->row_count + 1) * sizeof(numbers[0]));
    bool *is_shown = memory_resize(NULL, live->row_count + 1);
    memset(is_shown, 0, live->row_count + 1);
    size_t count = 0;
    for (size_t i = 0; i < live->row_count; i++) {
        if (live->rows[i].series == number && live->rows[i].line != REST) {
            numbers[count++] = (uint32_t)i;
        }
    }
    mark_largest(live, numbers, count, shown, is_shown);
    page_open(writer, '{');
    page_member_integer(writer, "domain", series->domain);
    page_member_integer(writer, "process", series->process_id);
    page_member_integer(writer, "device", series->device);
    page_key(writer, "lines"); /* function, file, line, bytes */
    page_open(writer, '[');
    int64_t rest[LIVE_MOMENTS_MAX] = {0};
    for (size_t i = 0; i < live->row_count; i++) {
        const struct live_row *row = &live->rows[i];
        if (row->series == number && is_shown[i]) {
            page_open(writer, '{');
            page_key(writer, "at");
            page_open(writer, '[');
            write_line(writer, database, row->line);
            page_close(writer, ']');
            page_member_deltas(writer, "bytes", row->bytes, live->moment_count);
            page_close(writer, '}');
        } else if (row->series == number) {
            for (size_t moment = 0; moment < live->moment_count; moment++) {
                rest[moment] = sum_wrapping(rest[moment], row->bytes[moment]);
            }
        }
    }
    page_close(writer, ']');
    page_member_deltas(writer, "rest", rest, live->moment_count);
    page_close(writer, '}');
    free(numbers);
    free(is_shown);
}

void live_write(const struct live *live, struct database *database, struct page_writer *writer)
{
    page_open(writer, '{');
    int64_t numbers[LIVE_MOMENTS_MAX];
    for (size_t i = 0; i < live->moment_count; i++) {
        numbers[i] = live->moments[i].seq;
    }
    page_member_deltas(writer, "seq", numbers, live->moment_count);
    for (size_t i = 0; i < live->moment_count; i++) {
        numbers[i] = live->moments[i].ts_ns;
    }
    page_member_deltas(writer, "t", numbers, live->moment_count);
    page_key(writer, "series");
    page_open(writer, '[');
    for (size_t i = 0; i < live->series_count; i++) {
        page_live_write_series(live, database, writer, (uint32_t)i);
    }
    page_close(writer, ']');
    page_close(writer, '}');
}
