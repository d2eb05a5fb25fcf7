/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both sides become rows of one table: what a part (a domain, a size class, a line or stack) has of each figure, in A
 * and in B. Of whole traces domains and call sites come from their totals, size classes from the allocations; of
 * beginnings all comes from the allocations.
 */
#include "analysis/report/diff_growth.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/report/diff_stacks.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/segment_query.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_TEXT 6
#define SIZES_TEXT 5    /* size classes of a domain */
#define LINE_FIGURES 52 /* columns before what a line is about */

const char *const growth_by_names[] = {"line", "function", "stack", "module", NULL};
const char *const growth_metric_names[] = {"peak", "allocated", "leaked", "count", NULL};

/* ---- the comparison ---- */

enum part {
    PART_DOMAIN, /* key 0 */
    PART_SIZE,   /* key: the largest size of the class, a power of two */
    PART_LINE,   /* key: number of a line or stack (diff_stacks.h); 0: none was recorded */
};

static const char classes_sql[] =
    "CREATE TABLE size_class(most INTEGER PRIMARY KEY);"
    "WITH RECURSIVE n(most) AS (SELECT 1 UNION ALL SELECT most * 2 FROM n WHERE most < 4611686018427387904) "
    "INSERT INTO size_class SELECT 0 UNION ALL SELECT most FROM n UNION ALL SELECT 9223372036854775807;";

#define CLASS_OF(size) "(SELECT most FROM size_class WHERE most >= " size " ORDER BY most LIMIT 1)"

#define FIGURES "bytes, allocations, live_bytes, live_allocations, peak_bytes, peak_allocations"
#define SUMS \
    "sum(bytes), sum(allocations), sum(live_bytes), sum(live_allocations), sum(peak_bytes), sum(peak_allocations)"
#define USAGE(side)                                                                                            \
    "CREATE TABLE usage_" side "(part INTEGER, domain TEXT, key INTEGER, callsite_id INTEGER, bytes INTEGER, " \
    "allocations INTEGER, live_bytes INTEGER, live_allocations INTEGER, peak_bytes INTEGER, peak_allocations INTEGER);"

/* Blocks after event `seq`. */
#define IS_LIVE(seq) "(x.alloc_seq <= " seq " AND (x.free_completed_seq IS NULL OR x.free_completed_seq > " seq "))"

/* At the end of its process's main, as live_* of the totals. */
#define IS_LEFT "x.alloc_ns <= e.at_ns AND coalesce(x.free_ns > e.at_ns, 1)"

/* Of whole traces. Each device has its own peak. */
/* clang-format off */
#define WHOLE_SIDE(side) \
    USAGE(side) \
    "INSERT INTO usage_" side " SELECT 0, domain, 0, NULL, " SUMS " FROM " side ".total GROUP BY domain;" \
    "CREATE TABLE moment_" side "(domain INTEGER, device INTEGER, seq INTEGER, PRIMARY KEY(domain, device));" \
    "INSERT OR IGNORE INTO moment_" side " SELECT d.code, t.device, t.peak_seq FROM " side ".total t JOIN " side \
    ".domain d ON d.name = t.domain;" \
    "CREATE TABLE end_" side "(process_id INTEGER PRIMARY KEY, at_ns INTEGER);" \
    "INSERT INTO end_" side " SELECT process_id, at_ns FROM " side ".leak_moment;" \
    "INSERT INTO usage_" side " SELECT 1, d.name, " CLASS_OF("s.size") ", NULL, " SUMS " FROM (" \
    "SELECT x.domain AS domain, x.size AS size, sum(x.size) AS bytes, count(*) AS allocations, " \
    "sum(x.size) FILTER (WHERE " IS_LEFT ") AS live_bytes, " \
    "count(*) FILTER (WHERE " IS_LEFT ") AS live_allocations, " \
    "sum(x.size) FILTER (WHERE " IS_LIVE("m.seq") ") AS peak_bytes, " \
    "count(*) FILTER (WHERE " IS_LIVE("m.seq") ") AS peak_allocations FROM " side ".allocation x " \
    "LEFT JOIN moment_" side " m ON m.domain = x.domain AND m.device = coalesce(x.device, 0) " \
    "LEFT JOIN end_" side " e ON e.process_id = x.process_id " \
    "GROUP BY x.domain, x.size) s JOIN " side ".domain d ON d.code = s.domain GROUP BY 2, 3;"

#define WHOLE_LINES(side) \
    "INSERT INTO usage_" side " SELECT 2, d.name, s.stack, s.callsite_id, s.bytes, s.allocations, s.live_bytes, " \
    "s.live_allocations, s.peak_bytes, s.peak_allocations FROM (SELECT t.domain AS domain, " \
    "coalesce(k.stack, 0) AS stack, min(t.callsite_id) AS callsite_id, sum(bytes) AS bytes, " \
    "sum(allocations) AS allocations, sum(live_bytes) AS live_bytes, sum(live_allocations) AS live_allocations, " \
    "sum(peak_bytes) AS peak_bytes, sum(peak_allocations) AS peak_allocations " \
    "FROM " side ".callsite_stat t LEFT JOIN stack_" side " k ON k.callsite_id = t.callsite_id GROUP BY 1, 2) s " \
    "JOIN " side ".domain d ON d.code = s.domain;"
/* clang-format on */

static const char whole_sql[] = WHOLE_SIDE("a") WHOLE_LINES("a") WHOLE_SIDE("b") WHOLE_LINES("b");

/* Of beginnings up to an event: ?1. */
#define BEGINNING(side)                                                                                 \
    "CREATE TABLE begun_" side                                                                          \
    " AS SELECT d.name AS domain, x.size AS size, coalesce(x.callsite_id, 0) AS callsite_id, " IS_LIVE( \
        "?1") " AS is_live FROM " side ".allocation x JOIN " side ".domain d ON d.code = x.domain "     \
              "WHERE x.alloc_seq <= ?1"
#define BEGUN_FIGURES \
    "sum(size), count(*), sum(size) FILTER (WHERE is_live), count(*) FILTER (WHERE is_live), NULL, NULL"
#define BEGINNING_SIDE(side)                                                                                        \
    USAGE(side)                                                                                                     \
    "INSERT INTO usage_" side " SELECT 0, domain, 0, NULL, " BEGUN_FIGURES " FROM begun_" side " GROUP BY domain;"  \
    "INSERT INTO usage_" side " SELECT 1, domain, " CLASS_OF(                                                       \
        "size") ", NULL, " BEGUN_FIGURES " FROM begun_" side " GROUP BY 2, 3;"                                      \
                "INSERT INTO usage_" side                                                                           \
                " SELECT 2, x.domain, coalesce(k.stack, 0), min(x.callsite_id), " BEGUN_FIGURES " FROM begun_" side \
                " x LEFT JOIN stack_" side " k ON k.callsite_id = x.callsite_id GROUP BY 2, 3;"

static const char beginnings_sql[] = BEGINNING_SIDE("a") BEGINNING_SIDE("b");

/* a_0 … a_5, b_0 … b_5: the figures in their order; change: of what is asked for. */
#define NO_FIGURES "0, 0, 0, 0, 0, 0"
static const char change_sql[] =
    "CREATE TABLE change(part INTEGER, domain TEXT, key INTEGER, callsite_a INTEGER, callsite_b INTEGER, "
    "a_0 INTEGER, a_1 INTEGER, a_2 INTEGER, a_3 INTEGER, a_4 INTEGER, a_5 INTEGER, "
    "b_0 INTEGER, b_1 INTEGER, b_2 INTEGER, b_3 INTEGER, b_4 INTEGER, b_5 INTEGER);"
    "INSERT INTO change SELECT part, domain, key, max(callsite_a), max(callsite_b), sum(a_0), sum(a_1), sum(a_2), "
    "sum(a_3), sum(a_4), sum(a_5), sum(b_0), sum(b_1), sum(b_2), sum(b_3), sum(b_4), sum(b_5) FROM ("
    "SELECT part, domain, key, callsite_id AS callsite_a, NULL AS callsite_b, bytes AS a_0, allocations AS a_1, "
    "live_bytes AS a_2, live_allocations AS a_3, peak_bytes AS a_4, peak_allocations AS a_5, 0 AS b_0, 0 AS b_1, 0 AS "
    "b_2, 0 AS b_3, 0 AS b_4, 0 AS b_5 FROM usage_a UNION ALL "
    "SELECT part, domain, key, NULL, callsite_id, " NO_FIGURES ", " FIGURES
    " FROM usage_b) GROUP BY part, domain, key;";

/* Of whole traces. */
static bool has_peak(const struct growth *growth)
{
    return growth->a.seq < 0;
}

/* Of whole traces, by line: of the figure that is asked for, what lines have in the heap, in Python's memory, and
 * together, in A and B. Where one of the two has nothing, together is what the other has. */
#define TOGETHER_SIDE(side, together)                                                                                \
    "CREATE TABLE line_" side "(key INTEGER PRIMARY KEY, together INTEGER);"                                         \
    "INSERT INTO line_" side " SELECT s.number, sum(t." together ") FROM " side ".line_together t JOIN symbol_" side \
    " s ON s.id = t.user_symbol_id GROUP BY 1;"
#define TOGETHER_OF(side, figure)                                                                              \
    "sum(iif(domain = 'heap', " side "_" figure ", 0)), sum(iif(domain = 'python', " side "_" figure ", 0)), " \
    "coalesce((SELECT together FROM line_" side " l WHERE l.key = c.key), sum(" side "_" figure "))"
#define TOGETHER_BOTH "DELETE FROM together WHERE NOT (a_heap > 0 AND a_python > 0 OR b_heap > 0 AND b_python > 0);"
#define TOGETHER(figure, together)                                                                                   \
    TOGETHER_SIDE("a", together)                                                                                     \
    TOGETHER_SIDE("b", together)                                                                                     \
    "INSERT INTO together SELECT key, " TOGETHER_OF("a", figure) ", " TOGETHER_OF(                                   \
        "b",                                                                                                         \
        figure) " FROM change c WHERE part = 2 AND domain IN ('heap', 'python') AND key IN (SELECT key FROM line_a " \
                "UNION SELECT key FROM line_b) GROUP BY key;" TOGETHER_BOTH

static void make_together(const struct growth *growth)
{
    static const char *const sql[] = {
        [GROWTH_PEAK] = TOGETHER("4", "peak_together_bytes"),
        [GROWTH_ALLOCATED] = TOGETHER("0", "together_bytes"),
        [GROWTH_LEAKED] = TOGETHER("2", "live_together_bytes"),
        [GROWTH_COUNT] = TOGETHER("0", "together_bytes"),
    };
    database_execute(growth->two, "CREATE TABLE together(key INTEGER PRIMARY KEY, a_heap INTEGER, a_python INTEGER, "
                                  "a_together INTEGER, b_heap INTEGER, b_python INTEGER, b_together INTEGER);");
    if (has_peak(growth) && growth->options.by == DIFF_BY_LINE) {
        database_execute(growth->two, sql[growth->options.metric]);
    }
}

static void make_beginning(struct database *two, const char *sql, int64_t seq)
{
    struct cursor cursor;
    cursor_open(&cursor, two, sql);
    cursor_bind_integer(&cursor, 1, seq);
    cursor_next(&cursor);
    cursor_close(&cursor);
}

int growth_compare(struct growth *growth, struct progress *progress, struct varve_message *message)
{
    int result =
        database_open_two(database_path(growth->a.database), database_path(growth->b.database), &growth->two, message);
    if (result != VARVE_OK) {
        return result;
    }
    database_watch(growth->two, progress, "comparing");
    diff_lines_make(growth->two, growth->options.by);
    database_execute(growth->two, classes_sql);
    if (growth->a.seq < 0) {
        database_execute(growth->two, whole_sql);
    } else {
        make_beginning(growth->two, BEGINNING("a"), growth->a.seq);
        make_beginning(growth->two, BEGINNING("b"), growth->b.seq);
        database_execute(growth->two, beginnings_sql);
    }
    database_execute(growth->two, change_sql);
    make_together(growth);
    return growth_error(growth, message);
}

int growth_error(const struct growth *growth, struct varve_message *message)
{
    int result = database_error(growth->a.database, message);
    result = result == VARVE_OK ? database_error(growth->b.database, message) : result;
    return result == VARVE_OK && growth->two != NULL ? database_error(growth->two, message) : result;
}

void growth_close(struct growth *growth)
{
    database_close(growth->two);
    growth->two = NULL;
}

/* ---- rows of it ---- */

enum figure {
    FIGURE_BYTES,
    FIGURE_ALLOCATIONS,
    FIGURE_LIVE_BYTES,
    FIGURE_LIVE_ALLOCATIONS,
    FIGURE_PEAK_BYTES,
    FIGURE_PEAK_ALLOCATIONS,
    FIGURES_ALL,
};

struct row {
    int64_t key;
    int64_t callsites[2]; /* of A and B, -1: it has none with this stack */
    int64_t figures[2][FIGURES_ALL];
    struct together together[2]; /* of the figure that is asked for; TOGETHER_NONE: not in the heap and in Python's */
};

struct rows {
    struct row *items;
    size_t count;
    int64_t count_all, added, gone, grown, shrunk; /* of all that changed, or of all with --all */
    int64_t noise, noise_bytes;                    /* changed too, but not repeatedly: these are not among them */
};

#define REPEATS 8     /* a leak happens again and again: so many blocks more, or fewer */
#define NOISE_PART 20 /* or else its bytes are more than this part of what is live, and all of that has changed so */

static const struct {
    const char *words;
    enum figure order, bytes, allocations;
} measures[] = {
    [GROWTH_PEAK] = {"at the peak", FIGURE_PEAK_BYTES, FIGURE_PEAK_BYTES, FIGURE_PEAK_ALLOCATIONS},
    [GROWTH_ALLOCATED] = {"allocated", FIGURE_BYTES, FIGURE_BYTES, FIGURE_ALLOCATIONS},
    [GROWTH_LEAKED] = {"live at the end", FIGURE_LIVE_BYTES, FIGURE_LIVE_BYTES, FIGURE_LIVE_ALLOCATIONS},
    [GROWTH_COUNT] = {"allocations", FIGURE_ALLOCATIONS, FIGURE_BYTES, FIGURE_ALLOCATIONS},
};

static const char *diff_growth_words_of(const struct growth *growth, enum growth_metric metric)
{
    return !has_peak(growth) && metric == GROWTH_LEAKED ? "live" : measures[metric].words;
}

static const char *diff_growth_state_of(const struct row *row)
{
    const int64_t *a = row->figures[0];
    const int64_t *b = row->figures[1];
    return a[FIGURE_ALLOCATIONS] == 0 && b[FIGURE_ALLOCATIONS] > 0   ? "new"
           : b[FIGURE_ALLOCATIONS] == 0 && a[FIGURE_ALLOCATIONS] > 0 ? "gone"
                                                                     : NULL;
}

/* The change of a figure. Figures are no more than sums of sizes, so that damage alone makes it wrap. */
static int64_t change_of(const struct row *row, enum figure figure)
{
    return (int64_t)((uint64_t)row->figures[1][figure] - (uint64_t)row->figures[0][figure]);
}

static const char *direction_of(const struct row *row, enum figure figure)
{
    const char *state = diff_growth_state_of(row);
    int64_t change = change_of(row, figure);
    return state != NULL ? state : change > 0 ? "grew" : change < 0 ? "shrank" : "same";
}

/* What is live of the domain at the end, and how that has changed. */
struct live_total {
    int64_t bytes, change;
};

static struct live_total live_total_of(const struct growth *growth, const char *domain)
{
    struct live_total total = {0, 0};
    struct cursor cursor;
    cursor_open(&cursor, growth->two,
                "SELECT max(a_2, b_2), abs(b_2 - a_2) FROM change WHERE part = 0 AND domain = ?1");
    cursor_bind_text(&cursor, 1, domain);
    if (cursor_next(&cursor)) {
        total = (struct live_total){cursor_integer(&cursor, 0), cursor_integer(&cursor, 1)};
    }
    cursor_close(&cursor);
    return total;
}

/* Two equal runs differ by a few blocks: an arena that another line happened to need, a thread that was still there. */
static bool is_noise(const struct growth *growth, const struct row *row, const struct live_total *total)
{
    const int64_t allocations = change_of(row, FIGURE_LIVE_ALLOCATIONS), bytes = change_of(row, FIGURE_LIVE_BYTES);
    return growth->options.metric == GROWTH_LEAKED && has_peak(growth) && growth->options.top >= 0 &&
           allocations < REPEATS && allocations > -REPEATS &&
           (total->change < total->bytes / NOISE_PART ||
            (bytes < total->bytes / NOISE_PART && bytes > -(total->bytes / NOISE_PART)));
}

static void diff_growth_read_figures(struct row *row, struct cursor *cursor, int column)
{
    for (int i = 0; i < 2 * FIGURES_ALL; i++) {
        row->figures[i / FIGURES_ALL][i % FIGURES_ALL] = cursor_integer(cursor, column + i);
    }
    column += 2 * FIGURES_ALL;
    for (int side = 0; side < 2; side++) {
        row->together[side] = together_read(cursor, column + 3 * side);
    }
}

static void rows_load(struct rows *rows, const struct growth *growth, enum part part, const char *domain)
{
    static const char *const sql = sql_growth_changes;
    enum figure order = measures[growth->options.metric].order;
    const struct live_total total = live_total_of(growth, domain);
    *rows = (struct rows){0};
    struct cursor cursor;
    cursor_open(&cursor, growth->two, sql);
    cursor_bind_integer(&cursor, 1, part);
    cursor_bind_text(&cursor, 2, domain);
    cursor_bind_integer(&cursor, 3, order);
    size_t capacity = 0;
    while (cursor_next(&cursor)) {
        struct row row = {.key = cursor_integer(&cursor, 0),
                          .callsites = {cursor_integer(&cursor, 1), cursor_integer(&cursor, 2)}};
        diff_growth_read_figures(&row, &cursor, 3);
        const char *direction = direction_of(&row, order);
        if (change_of(&row, order) == 0 && growth->options.top >= 0) {
            continue;
        }
        if (is_noise(growth, &row, &total)) {
            rows->noise++;
            rows->noise_bytes += change_of(&row, order);
            continue;
        }
        rows->count_all++;
        rows->added += strcmp(direction, "new") == 0 ? 1 : 0;
        rows->gone += strcmp(direction, "gone") == 0 ? 1 : 0;
        rows->grown += strcmp(direction, "grew") == 0 ? 1 : 0;
        rows->shrunk += strcmp(direction, "shrank") == 0 ? 1 : 0;
        if (growth->options.top >= 0 && (int64_t)rows->count == growth->options.top) {
            continue;
        }
        if (rows->count == capacity) {
            capacity = capacity * 2 + 16;
            rows->items = memory_resize(rows->items, capacity * sizeof(rows->items[0]));
        }
        rows->items[rows->count++] = row;
    }
    cursor_close(&cursor);
}

/* Calls `visit` for each domain that is asked for. */
static void each_domain(const struct growth *growth,
                        void (*visit)(void *context, const struct growth *growth, const char *domain), void *context)
{
    struct cursor cursor;
    cursor_open(&cursor, growth->two,
                "SELECT DISTINCT domain FROM change WHERE part = 0 AND CASE WHEN ?1 IS NULL THEN domain <> 'cupti' "
                "ELSE domain = ?1 END ORDER BY CASE domain WHEN 'block' THEN 1 WHEN 'device' THEN 2 WHEN 'heap' THEN 3 "
                "ELSE 4 END, domain");
    cursor_bind_text(&cursor, 1, growth->options.domain);
    while (cursor_next(&cursor)) {
        visit(context, growth, cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
}

/* Where a row was recorded: in B, unless it is gone. What a row by function or module does not say, its
 * location has not. */
static struct callsite_row location_of(const struct growth *growth, const struct row *row,
                                       struct database **database_out)
{
    int side = row->callsites[1] > 0 ? 1 : 0;
    struct callsite_row location = {.id = row->callsites[side] > 0 ? row->callsites[side] : 0};
    struct group_location *user = &location.user;
    *database_out = side == 1 ? growth->b.database : growth->a.database;
    callsite_location_load(&location, *database_out);
    if (growth->options.by == DIFF_BY_FUNCTION || growth->options.by == DIFF_BY_MODULE) {
        user->line = 0;
    }
    if (growth->options.by == DIFF_BY_MODULE) {
        if (user->module == NULL) {
            user->module = user->file;
            user->file = NULL;
        }
        free(user->function);
        free(user->file);
        user->function = NULL;
        user->file = NULL;
    }
    return location;
}

/* Peak of the resident memory as the kernel counted it; -1: unknown. Moments have none. */
static int64_t rss_of(const struct growth_side *side)
{
    return side->seq < 0 ? database_integer(side->database, "SELECT rss_bytes FROM rss_peak", -1) : -1;
}

/* ---- text ---- */

static struct format_text with_sign(int64_t change, struct format_text (*format)(int64_t number))
{
    struct format_text text;
    struct format_text size = format(change < 0 && change > INT64_MIN ? -change : change);
    const char *sign = change < 0 ? "-" : change > 0 ? "+" : "";
    snprintf(text.text, sizeof(text.text), "%s%.40s", sign, size.text);
    return text;
}

static void diff_growth_add_figures(struct table *table, const struct row *row, enum figure bytes,
                                    enum figure allocations)
{
    table_add(table, format_bytes(row->figures[0][bytes]).text);
    table_add(table, format_bytes(row->figures[1][bytes]).text);
    table_add(table, with_sign(change_of(row, bytes), format_bytes).text);
    table_add(table, format_count(row->figures[0][allocations]).text);
    table_add(table, format_count(row->figures[1][allocations]).text);
    table_add(table, with_sign(change_of(row, allocations), format_count).text);
}

#define FIGURE_COLUMNS                                                                                  \
    {"bytes in A", true}, {"in B", true}, {"change", true}, {"allocations in A", true}, {"in B", true}, \
    {                                                                                                   \
        "change", true                                                                                  \
    }

static void diff_growth_add_domain(void *context, const struct growth *growth, const char *domain)
{
    static const enum growth_metric order[] = {GROWTH_PEAK, GROWTH_ALLOCATED, GROWTH_LEAKED};
    struct growth all = *growth;
    all.options.top = -1;
    struct rows rows;
    rows_load(&rows, &all, PART_DOMAIN, domain);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]) && rows.count > 0; i++) {
        if (order[i] != GROWTH_PEAK || has_peak(growth)) {
            table_add(context, domain);
            table_add(context, diff_growth_words_of(growth, order[i]));
            diff_growth_add_figures(context, rows.items, measures[order[i]].bytes, measures[order[i]].allocations);
        }
    }
    free(rows.items);
}

static void diff_growth_add_rss(struct table *table, const struct growth *growth)
{
    int64_t a = rss_of(&growth->a);
    int64_t b = rss_of(&growth->b);
    if (a < 0 || b < 0) {
        return;
    }
    table_add(table, "RSS");
    table_add(table, "at its peak");
    table_add(table, format_bytes(a).text);
    table_add(table, format_bytes(b).text);
    table_add(table, with_sign((int64_t)((uint64_t)b - (uint64_t)a), format_bytes).text);
    for (int i = 0; i < 3; i++) {
        table_add(table, "");
    }
}

static void print_domains(FILE *out, const struct growth *growth)
{
    static const struct table_column columns[] = {{"", false}, {"", false}, FIGURE_COLUMNS};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    each_domain(growth, diff_growth_add_domain, &table);
    fputc('\n', out);
    if (table.cell_count > 0) {
        diff_growth_add_rss(&table, growth);
        table_print(&table, out, true);
    } else {
        fputs("  no allocation was recorded in either\n", out);
    }
    table_free(&table);
}

static void diff_growth_print_rest(FILE *out, const struct rows *rows, int64_t shown, const char *what)
{
    if (shown < rows->count_all) {
        fprintf(out, "  … %s more %s (--all has all)\n", format_count(rows->count_all - shown).text, what);
    }
}

static void print_sizes(FILE *out, const struct growth *growth, const struct rows *rows)
{
    static const struct table_column columns[] = {{"size up to", true}, FIGURE_COLUMNS};
    size_t count = growth->options.top < 0 || rows->count < SIZES_TEXT ? rows->count : SIZES_TEXT;
    if (count == 0) {
        return;
    }
    fputc('\n', out);
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    for (size_t i = 0; i < count; i++) {
        table_add(&table, format_bytes(rows->items[i].key).text);
        diff_growth_add_figures(&table, &rows->items[i], measures[growth->options.metric].bytes,
                                measures[growth->options.metric].allocations);
    }
    table_print(&table, out, true);
    table_free(&table);
    diff_growth_print_rest(out, rows, (int64_t)count, "size classes");
}

static void diff_growth_print_stack(FILE *out, const struct growth *growth, const struct row *row)
{
    bool is_stack = growth->options.by == DIFF_BY_STACK;
    int64_t frames = growth->options.frames >= 0 ? growth->options.frames : is_stack ? FRAMES_TEXT : 0;
    if (frames > 0) {
        struct database *database;
        struct callsite_row location = location_of(growth, row, &database);
        callsite_stack_print(out, database, &location, frames);
        callsite_location_free(&location);
    }
}

/* A line more, of a line that is in the heap and in Python's memory. */
static void diff_growth_print_together(FILE *out, const struct row *row)
{
    const struct together *a = &row->together[0], *b = &row->together[1];
    char each[2][120];
    together_words(each[0], sizeof(each[0]), a);
    together_words(each[1], sizeof(each[1]), b);
    if (a->bytes >= 0 && b->bytes >= 0) {
        fprintf(out, "       %s together: %s%s in A, ", with_sign(b->bytes - a->bytes, format_bytes).text,
                format_bytes(a->bytes).text, each[0]);
        fprintf(out, "%s%s in B\n", format_bytes(b->bytes).text, each[1]);
    }
}

/* A line: figures, then what the row is about. */
static void diff_growth_print_line(FILE *out, const struct growth *growth, const struct row *row)
{
    enum figure bytes = measures[growth->options.metric].bytes;
    enum figure allocations = measures[growth->options.metric].allocations;
    const char *state = diff_growth_state_of(row);
    struct database *database;
    struct callsite_row location = location_of(growth, row, &database);
    char *name = callsite_entry_name(&location, growth->options.by == DIFF_BY_MODULE ? GROUP_BY_MODULE : GROUP_BY_LINE,
                                     terminal_columns() > LINE_FIGURES + 16 ? terminal_columns() - LINE_FIGURES : 16);
    fprintf(out, "  %10s %9s %9s ", with_sign(change_of(row, bytes), format_bytes).text,
            format_bytes(row->figures[0][bytes]).text, format_bytes(row->figures[1][bytes]).text);
    fprintf(out, "%11s  %-4s  %s\n", with_sign(change_of(row, allocations), format_count).text,
            state != NULL ? state : "", name);
    free(name);
    callsite_location_free(&location);
    diff_growth_print_together(out, row);
    diff_growth_print_stack(out, growth, row);
}

static void diff_growth_print_lines(FILE *out, const struct growth *growth, const struct rows *rows, const char *noun)
{
    fprintf(out, "  %10s %9s %9s %11s\n", "change", "in A", "in B", "allocations");
    for (size_t i = 0; i < rows->count; i++) {
        diff_growth_print_line(out, growth, &rows->items[i]);
    }
    diff_growth_print_rest(out, rows, (int64_t)rows->count, noun);
}

static void diff_growth_print_domain(void *context, const struct growth *growth, const char *domain)
{
    static const char *const nouns[][2] = {
        {"line", "lines"}, {"function", "functions"}, {"stack", "stacks"}, {"module", "modules"}};
    const char *const *noun = nouns[growth->options.by];
    FILE *out = context;
    struct rows rows;
    rows_load(&rows, growth, PART_LINE, domain);
    fprintf(out, "\n%s, %s, by %s: ", domain, diff_growth_words_of(growth, growth->options.metric), noun[0]);
    if (rows.count_all == 0) {
        fputs(rows.noise > 0 ? "no change that repeats\n" : "no change\n", out);
    } else {
        fprintf(out, "%s new, ", format_count(rows.added).text);
        fprintf(out, "%s gone, ", format_count(rows.gone).text);
        fprintf(out, "%s grew, ", format_count(rows.grown).text);
        fprintf(out, "%s shrank\n", format_count(rows.shrunk).text);
        diff_growth_print_lines(out, growth, &rows, noun[1]);
    }
    if (rows.noise > 0) {
        fprintf(out, "  noise: %s %s with fewer than %d blocks more or less, ", format_count(rows.noise).text,
                noun[rows.noise != 1], REPEATS);
        fprintf(out, "%s in all (--all lists them)\n", with_sign(rows.noise_bytes, format_bytes).text);
    }
    free(rows.items);
    rows_load(&rows, growth, PART_SIZE, domain);
    print_sizes(out, growth, &rows);
    free(rows.items);
}

static void diff_growth_print_side(FILE *out, const struct growth_side *side, char name)
{
    char path[400];
    format_tail(path, sizeof(path), database_path(side->database), 60);
    fprintf(out, "  %c  %s", name, path);
    if (side->seq >= 0) {
        fprintf(out, ", up to event %" PRId64 " at %s\n", side->seq,
                format_duration(event_time_ns(side->database, side->seq)).text);
    } else {
        fprintf(out, ", %s\n", format_duration(report_duration_ns(side->database)).text);
    }
    struct report_loss loss;
    report_loss_load(&loss, side->database);
    if (!report_is_lossless(&loss)) {
        fputs("     ", out);
        report_loss_print(out, side->database, &loss);
    }
}

void growth_text(FILE *out, const struct growth *growth)
{
    diff_growth_print_side(out, &growth->a, 'A');
    diff_growth_print_side(out, &growth->b, 'B');
    print_domains(out, growth);
    each_domain(growth, diff_growth_print_domain, out);
}

/* ---- JSON ---- */

static const char *const figure_keys[FIGURES_ALL] = {"bytes",      "allocations",     "live_bytes", "live_allocations",
                                                     "peak_bytes", "peak_allocations"};

static struct cJSON *figures_json(const struct growth *growth, const int64_t *figures)
{
    struct cJSON *object = json_object();
    for (int i = 0; i < FIGURES_ALL; i++) {
        if (i < FIGURE_PEAK_BYTES || has_peak(growth)) {
            json_integer(object, figure_keys[i], figures[i]);
        } else {
            json_add(object, figure_keys[i], json_null_value());
        }
    }
    return object;
}

static void diff_growth_add_row(struct cJSON *object, const struct growth *growth, const struct row *row)
{
    int64_t changes[FIGURES_ALL];
    for (int i = 0; i < FIGURES_ALL; i++) {
        changes[i] = change_of(row, (enum figure)i);
    }
    json_add(object, "a", figures_json(growth, row->figures[0]));
    json_add(object, "b", figures_json(growth, row->figures[1]));
    json_add(object, "change", figures_json(growth, changes));
}

static struct cJSON *diff_growth_line_json(const struct growth *growth, const struct row *row)
{
    struct cJSON *object = json_object();
    struct database *database;
    struct callsite_row location = location_of(growth, row, &database);
    const struct group_location *user = &location.user;
    json_text(object, "state", direction_of(row, measures[growth->options.metric].order));
    json_integer_or_null(object, "callsite_a", row->callsites[0]);
    json_integer_or_null(object, "callsite_b", row->callsites[1]);
    diff_growth_add_row(object, growth, row);
    if (row->together[0].bytes >= 0) {
        together_json(json_member(object, "a"), &row->together[0]);
        together_json(json_member(object, "b"), &row->together[1]);
    }
    json_text(object, "function", user->function);
    json_text(object, "file", user->file);
    json_integer_or_null(object, "line", user->line > 0 ? user->line : -1);
    json_text(object, "module", user->module);
    json_bool(object, "is_python", user->is_python);
    if (growth->options.by == DIFF_BY_STACK) {
        struct stack stack;
        stack_load(&stack, database, location.id);
        json_add(object, "frames", stack_json(&stack, growth->options.frames));
        stack_free(&stack);
    }
    callsite_location_free(&location);
    return object;
}

static void add_domain_json(void *context, const struct growth *growth, const char *domain)
{
    struct cJSON *object = json_object();
    struct cJSON *sizes = json_array();
    struct cJSON *lines = json_array();
    struct growth all = *growth;
    json_text(object, "domain", domain);
    all.options.top = -1;
    struct rows rows;
    rows_load(&rows, &all, PART_DOMAIN, domain);
    for (size_t i = 0; i < rows.count; i++) {
        diff_growth_add_row(object, growth, &rows.items[i]);
    }
    free(rows.items);
    rows_load(&rows, growth, PART_SIZE, domain);
    for (size_t i = 0; i < rows.count; i++) {
        struct cJSON *size = json_object();
        json_integer(size, "size_max", rows.items[i].key);
        diff_growth_add_row(size, growth, &rows.items[i]);
        json_append(sizes, size);
    }
    json_integer(object, "sizes_all", rows.count_all);
    json_add(object, "sizes", sizes);
    free(rows.items);
    rows_load(&rows, growth, PART_LINE, domain);
    for (size_t i = 0; i < rows.count; i++) {
        json_append(lines, diff_growth_line_json(growth, &rows.items[i]));
    }
    json_integer(object, "entries_all", rows.count_all);
    json_integer(object, "new", rows.added);
    json_integer(object, "gone", rows.gone);
    json_integer(object, "grew", rows.grown);
    json_integer(object, "shrank", rows.shrunk);
    json_integer(object, "noise", rows.noise);
    json_integer(object, "noise_bytes", rows.noise_bytes);
    json_add(object, "entries", lines);
    free(rows.items);
    json_append(context, object);
}

static struct cJSON *side_json(const struct growth_side *side)
{
    struct cJSON *object = json_object();
    json_text(object, "database", database_path(side->database));
    json_integer_or_null(object, "seq", side->seq);
    json_integer(object, "ts_ns",
                 side->seq >= 0 ? event_time_ns(side->database, side->seq) : report_duration_ns(side->database));
    json_integer_or_null(object, "rss_peak_bytes", rss_of(side));
    struct report_loss loss;
    report_loss_load(&loss, side->database);
    json_bool(object, "nothing_lost", report_is_lossless(&loss));
    return object;
}

void growth_json(FILE *out, const struct growth *growth)
{
    struct cJSON *object = json_object();
    struct cJSON *domains = json_array();
    json_add(object, "a", side_json(&growth->a));
    json_add(object, "b", side_json(&growth->b));
    json_text(object, "by", growth_by_names[growth->options.by]);
    json_text(object, "metric", growth_metric_names[growth->options.metric]);
    each_domain(growth, add_domain_json, domains);
    json_add(object, "domains", domains);
    json_print(object, out);
}
