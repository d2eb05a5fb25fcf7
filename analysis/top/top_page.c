/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A section is a view, its order, and its columns with the width of screen from which on each is shown: a narrow
 * terminal has fewer of them, and the last one, if it is text, has what is left. cli/command_top.c prints pages;
 * top/top_run.c draws them.
 */
#include "analysis/top/top_page.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SECTION_COLUMNS_MAX 12
#define ALWAYS 0
#define GAP 2 /* of a table */
#define NAME_COLUMNS_MIN 20

const char *const page_order_names[] = {"live", "allocated", "rate", NULL};
static const char *const order_keys[] = {"live_bytes", "bytes", "bytes_per_s"};
static const char *const order_titles[] = {"by live bytes", "by bytes allocated", "by bytes allocated per second"};

struct page_column {
    const char *title;
    const char *sql;
    char kind;   /* of query_print.h; s: the user's line, last */
    size_t from; /* shown on screens at least so wide */
};

static const struct page_column total_columns[] = {
    {"domain", "domain || iif(device > 0 OR domain IN ('device', 'block', 'managed'), ' ' || device, '')", 'w', ALWAYS},
    {"live", "live_bytes", 'b', ALWAYS},
    {"peak", "peak_bytes", 'b', ALWAYS},
    {"allocated", "bytes", 'b', 90},
    {"live count", "live_allocations", 'c', 100},
    {"allocations", "allocations", 'c', 80},
    {"allocs/s", "allocations_per_s", 'R', ALWAYS},
    {"bytes/s", "bytes_per_s", 'r', ALWAYS},
    {"failed", "nullif(failed, 0)", 'c', 130},
};

static const struct page_column allocator_columns[] = {
    {"allocator", "'GPU ' || device || coalesce(' rank ' || rank, ' pid ' || pid)", 'w', ALWAYS},
    {"segments", "segments", 'c', ALWAYS},
    {"reserved", "reserved", 'b', ALWAYS},
    {"allocated", "allocated", 'b', ALWAYS},
    {"active", "active", 'b', 80},
    {"requested", "requested", 'b', 110},
    {"cached", "cached", 'b', 100},
    {"unused", "1000 * unused_share", '%', ALWAYS},
};

static const struct page_column process_columns[] = {
    {"pid", "pid", 'n', ALWAYS},
    {"rank", "rank", 'n', 100},
    {"threads", "threads", 'c', 80},
    {"RSS", "rss_bytes", 'b', ALWAYS},
    {"heap", "heap_bytes", 'b', ALWAYS},
    {"device", "device_bytes", 'b', 100},
    {"allocs/s", "allocations_per_s", 'R', ALWAYS},
    {"command", "command_line", 'w', ALWAYS},
};

static const struct page_column line_columns[] = {
    {"live", "live_bytes", 'b', ALWAYS},      {"bytes/s", "bytes_per_s", 'r', ALWAYS},
    {"allocated", "bytes", 'b', 80},          {"allocs/s", "allocations_per_s", 'R', 100},
    {"allocations", "allocations", 'c', 120}, {"live count", "live_allocations", 'c', 140},
    {"peak", "peak_bytes", 'b', 110},         {"domain", "domain", 'w', 70},
    {"call sites", "callsites", 'c', 120},    {"where", "user_function", 's', ALWAYS},
};

#define SITE_REST \
    ", user_file, user_line, user_module, callsite_id, is_named" /* of a call site: the columns after these */

/* What is known of a call site: its line, its module, or nothing yet. */
static char *site_name(struct cursor *cursor, int column, size_t columns)
{
    const struct group_location user = {.function = (char *)cursor_text(cursor, column),
                                        .file = (char *)cursor_text(cursor, column + 1),
                                        .line = cursor_integer(cursor, column + 2),
                                        .module = (char *)cursor_text(cursor, column + 3)};
    const struct callsite_row row = {
        .id = cursor_integer(cursor, column + 4), .callsites = 1, .user = user, .innermost = user};
    if (row.id != 0 && cursor_integer(cursor, column + 5) == 0) {
        return memory_copy_text("(name not looked up yet)");
    }
    return callsite_entry_name(&row, GROUP_BY_LINE, columns);
}

/* A view as a table: ?1 rows at most, ?2 a domain or NULL. */
struct section {
    const struct page_column *columns;
    size_t count;
    const char *rest; /* columns after those that are shown */
    const char *from; /* the view, its conditions and its order */
};

#define ROWS_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The last column, once it is known what the others leave of a line: names are cut where that hurts least, which
 * is not their end. */
static void sites_add(struct table *table, struct cursor *cursor, size_t columns)
{
    const size_t last = table->column_count - 1;
    size_t room = columns;
    for (size_t i = 0; i < last; i++) {
        room -= room > table->widths[i] + GAP ? table->widths[i] + GAP : room;
    }
    room = room > NAME_COLUMNS_MIN ? room : NAME_COLUMNS_MIN;
    cursor_reset(cursor);
    for (size_t cell = last; cell < table->cell_count && cursor_next(cursor); cell += table->column_count) {
        char *name = site_name(cursor, (int)last, room);
        const size_t width = format_width(name);
        free(table->cells[cell]);
        table->cells[cell] = name;
        table->widths[last] = width > table->widths[last] ? width : table->widths[last];
    }
}

/* Returns the number of rows; nothing is printed if there are none. */
static int64_t section_print(FILE *out, struct database *database, const struct section *section,
                             const struct page *page, int64_t rows_max)
{
    struct table_column titles[SECTION_COLUMNS_MAX];
    const struct page_column *shown[SECTION_COLUMNS_MAX];
    size_t count = 0, bytes = 0;
    char *sql = NULL;
    FILE *text = memory_stream(&sql, &bytes);
    for (size_t i = 0; i < section->count; i++) {
        const struct page_column *column = &section->columns[i];
        if (page->columns >= column->from) {
            fprintf(text, "%s%s", count == 0 ? "SELECT " : ", ", column->sql);
            titles[count] = (struct table_column){column->title, strchr("ws", column->kind) == NULL};
            shown[count++] = column;
        }
    }
    fprintf(text, "%s FROM %s LIMIT ?1", section->rest, section->from);
    memory_stream_end(text, &sql);
    struct table table;
    table_init(&table, titles, count);
    table.columns_max = page->columns;
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, rows_max);
    cursor_bind_text(&cursor, 2, page->domain);
    int64_t rows = 0;
    while (cursor_next(&cursor)) {
        rows++;
        for (size_t i = 0; i < count; i++) {
            if (shown[i]->kind == 's') {
                table_add(&table, ""); /* its name comes later */
            } else {
                query_print_cell(&table, &cursor, (int)i, shown[i]->kind);
            }
        }
    }
    if (shown[count - 1]->kind == 's') {
        sites_add(&table, &cursor, page->columns);
    }
    cursor_close(&cursor);
    if (rows > 0) {
        table_print(&table, out, true);
    }
    table_free(&table);
    free(sql);
    return rows;
}

/* ---- the head ---- */

static void line_print(FILE *out, const struct page *page, const char *text)
{
    char cut[4 * TERMINAL_COLUMNS_MAX + 8];
    format_head(cut, sizeof(cut), text, page->columns);
    fprintf(out, "%s\n", cut);
}

/* What the recording is, and how it does. */
static void recording_print(FILE *out, struct database *database, const struct page *page)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_top_recording);
    char text[2 * TERMINAL_COLUMNS_MAX];
    if (cursor_next(&cursor)) {
        const int64_t waiting = cursor_integer(&cursor, 5), processes = cursor_integer(&cursor, 8);
        snprintf(text, sizeof(text), "%.30s  %s  %.1500s", format_duration(cursor_integer(&cursor, 2)).text,
                 page->state, cursor_name(&cursor, 0));
        line_print(out, page, text);
        snprintf(text, sizeof(text), "%s events, %s/s; %s lost%s%s%s", format_count(cursor_integer(&cursor, 3)).text,
                 cursor_is_null(&cursor, 4) ? "-" : format_count(cursor_integer(&cursor, 4)).text,
                 format_count(cursor_integer(&cursor, 6)).text, waiting > 0 ? "; " : "",
                 waiting > 0 ? format_count(waiting).text : "", waiting > 0 ? " behind" : "");
        line_print(out, page, text);
        snprintf(text, sizeof(text), "RSS %s; %s of %s process%s running, %s thread%s; varve record %" PRId64,
                 cursor_is_null(&cursor, 7) ? "-" : format_bytes(cursor_integer(&cursor, 7)).text,
                 format_count(cursor_integer(&cursor, 9)).text, format_count(processes).text,
                 processes == 1 ? "" : "es", format_count(cursor_integer(&cursor, 10)).text,
                 cursor_integer(&cursor, 10) == 1 ? "" : "s", cursor_integer(&cursor, 1));
        line_print(out, page, text);
    }
    cursor_close(&cursor);
}

/* Of when PyTorch's figures are, if there are any. */
static void torch_print(FILE *out, struct database *database, const struct page *page)
{
    struct cursor cursor;
    char text[128];
    cursor_open(&cursor, database, "SELECT is_seen, age_ns FROM torch");
    if (cursor_next(&cursor)) {
        snprintf(text, sizeof(text), "PyTorch's blocks are those of %s ago",
                 format_duration(cursor_integer(&cursor, 1)).text);
        line_print(out, page,
                   cursor_integer(&cursor, 0) != 0
                       ? text
                       : "PyTorch's blocks can be seen from PyTorch 2.11 on; of this one they come with the database");
    }
    cursor_close(&cursor);
}

#define TOTAL_FROM "total ORDER BY live_bytes DESC, domain, device"
#define ALLOCATOR_FROM "allocator ORDER BY reserved DESC, pid, device"
#define PROCESS_FROM "process_total ORDER BY rss_bytes DESC, pid"

void page_head(FILE *out, struct database *database, const struct page *page)
{
    static const struct section totals = {total_columns, ROWS_OF(total_columns), "", TOTAL_FROM};
    static const struct section allocators = {allocator_columns, ROWS_OF(allocator_columns), "", ALLOCATOR_FROM};
    const int64_t all = database_integer(database, "SELECT count(*) FROM allocator", 0);
    const int64_t most = (int64_t)page->allocators;
    recording_print(out, database, page);
    if (section_print(out, database, &totals, page, INT64_C(1000)) == 0) {
        line_print(out, page, "nothing was allocated yet");
    }
    torch_print(out, database, page);
    if (most > 0) {
        section_print(out, database, &allocators, page, all > most ? most : all);
    }
    if (all > most && most > 0) {
        fprintf(out, "… and %s more caching allocators\n", format_count(all - most).text);
    }
}

/* ---- the list ---- */

static void sites_from(char *text, size_t bytes, const char *view, enum page_order order)
{
    snprintf(text, bytes,
             "%s WHERE ?2 IS NULL OR domain = ?2 ORDER BY %s DESC, live_bytes DESC, bytes DESC, callsite_id", view,
             order_keys[order]);
}

void page_list(FILE *out, struct database *database, const struct page *page)
{
    static const struct section processes = {process_columns, ROWS_OF(process_columns), "", PROCESS_FROM};
    char from[200];
    const struct section lines = {line_columns, ROWS_OF(line_columns), SITE_REST, from};
    if (page->list == PAGE_PROCESSES) {
        line_print(out, page, "processes that run, by RSS");
        section_print(out, database, &processes, page, page->top);
        return;
    }
    sites_from(from, sizeof(from), "line_total", page->order);
    char title[200];
    snprintf(title, sizeof(title), "lines%s%.40s %s", page->domain != NULL ? " of " : "",
             page->domain != NULL ? page->domain : "", order_titles[page->order]);
    line_print(out, page, title);
    section_print(out, database, &lines, page, page->top);
}

char *page_next_domain(struct database *database, const char *domain)
{
    struct cursor cursor;
    cursor_open(&cursor, database,
                "SELECT domain FROM callsite_total WHERE ?1 IS NULL OR domain > ?1 ORDER BY domain LIMIT 1");
    cursor_bind_text(&cursor, 1, domain);
    char *next = NULL;
    if (cursor_next(&cursor)) {
        next = memory_copy_text(cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
    return next;
}

/* ---- JSON ---- */

static struct cJSON *top_page_sites_json(struct database *database, const struct page *page, const char *view)
{
    char from[200];
    sites_from(from, sizeof(from), view, page->order);
    char sql[300];
    snprintf(sql, sizeof(sql), "SELECT * FROM %s LIMIT ?1", from);
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, page->top);
    cursor_bind_text(&cursor, 2, page->domain);
    return cursor_rows_json(&cursor);
}

struct cJSON *page_json(struct database *database, const struct page *page)
{
    struct cJSON *object = json_object();
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT * FROM recording");
    json_add(object, "recording",
             cursor_next(&cursor) ? cursor_json(&cursor, cursor_column_count(&cursor)) : json_null_value());
    cursor_close(&cursor);
    cursor_open(&cursor, database, "SELECT * FROM torch");
    json_add(object, "torch",
             cursor_next(&cursor) ? cursor_json(&cursor, cursor_column_count(&cursor)) : json_null_value());
    cursor_close(&cursor);
    json_add(object, "totals", query_json(database, "SELECT * FROM " TOTAL_FROM, 0));
    json_add(object, "allocators", query_json(database, "SELECT * FROM " ALLOCATOR_FROM, 0));
    json_add(object, "processes", query_json(database, "SELECT * FROM " PROCESS_FROM, 0));
    json_add(object, "lines", top_page_sites_json(database, page, "line_total"));
    json_add(object, "callsites", top_page_sites_json(database, page, "callsite_total"));
    return object;
}
