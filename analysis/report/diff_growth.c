/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison is SQL (growth_statements.sql), whose rows become text and JSON here. */
#include "analysis/report/diff_growth.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_print.h"
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
    PART_DOMAIN,
    PART_SIZE,
    PART_LINE,
};

static bool is_whole(const struct growth *growth)
{
    return growth->a.seq < 0;
}

static void put_question(const struct growth *growth)
{
    struct cursor cursor;
    cursor_open(&cursor, growth->two, "INSERT INTO asked VALUES (?1, ?2, ?3, ?4, ?5)");
    cursor_bind_text(&cursor, 1, growth_metric_names[growth->options.metric]);
    cursor_bind_text(&cursor, 2, growth->options.domain);
    cursor_bind_integer(&cursor, 3, growth->options.top < 0);
    cursor_bind_integer(&cursor, 4, growth->a.seq);
    cursor_bind_integer(&cursor, 5, growth->b.seq);
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
    database_execute(growth->two, sql_growth_tables);
    put_question(growth);
    database_execute(growth->two, is_whole(growth) ? sql_growth_whole : sql_growth_begun);
    database_execute(growth->two, sql_growth_entries);
    if (is_whole(growth) && growth->options.by == DIFF_BY_LINE) {
        database_execute(growth->two, sql_growth_together);
    }
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

#define FIGURES_ALL 6

enum entry_column {
    ENTRY_STATE, /* also of JSON: callsite_a, callsite_b */
    ENTRY_CALLSITE_A,
    ENTRY_CALLSITE_B,
    ENTRY_A, /* its figures, those of B and the changes */
    ENTRY_KEY = ENTRY_A + 3 * FIGURES_ALL,
    ENTRY_FROM_BYTES, /* of the figure that is asked for */
    ENTRY_TO_BYTES,
    ENTRY_CHANGE_BYTES,
    ENTRY_CHANGE_ALLOCATIONS,
    ENTRY_TOGETHER_A,
    ENTRY_TOGETHER_B = ENTRY_TOGETHER_A + 3,
};

static void open_entries(struct cursor *cursor, const struct growth *growth, enum part part, const char *domain)
{
    cursor_open(cursor, growth->two, sql_growth_entry);
    cursor_bind_integer(cursor, 1, part);
    cursor_bind_text(cursor, 2, domain);
    cursor_bind_integer(cursor, 3, part == PART_DOMAIN ? 1 : growth->options.top);
}

enum count_column {
    COUNT_ALL,
    COUNT_NEW,
    COUNT_GONE,
    COUNT_GREW,
    COUNT_SHRANK,
    COUNT_NOISE,
    COUNT_NOISE_BYTES,
    COUNT_WORDS,
};

/* The one row, of all that changed, or of all with --all; noise is counted apart. */
static void open_entry_counts(struct cursor *cursor, const struct growth *growth, enum part part, const char *domain)
{
    cursor_open(cursor, growth->two, sql_growth_counts);
    cursor_bind_integer(cursor, 1, part);
    cursor_bind_text(cursor, 2, domain);
    cursor_next(cursor);
}

static void open_domains(struct cursor *cursor, const struct growth *growth)
{
    cursor_open(cursor, growth->two, "SELECT domain FROM shown_domain ORDER BY place, domain");
}

/* Where a row was recorded: in B, unless it is gone. What a row by function or module does not say, its
 * location has not. */
static struct callsite_row location_of(const struct growth *growth, struct cursor *entry,
                                       struct database **database_out)
{
    const int64_t id_a = cursor_integer(entry, ENTRY_CALLSITE_A), id_b = cursor_integer(entry, ENTRY_CALLSITE_B);
    struct callsite_row location = {.id = id_b > 0 ? id_b : id_a > 0 ? id_a : 0};
    struct group_location *user = &location.user;
    *database_out = id_b > 0 ? growth->b.database : growth->a.database;
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
    return side->seq < 0 ? report_figure(side->database, "rss peak", -1) : -1;
}

/* ---- text ---- */

#define FIGURE_COLUMNS                                                                                  \
    {"bytes in A", true}, {"in B", true}, {"change", true}, {"allocations in A", true}, {"in B", true}, \
    {                                                                                                   \
        "change", true                                                                                  \
    }

static void print_domains(FILE *out, const struct growth *growth)
{
    static const struct table_column columns[] = {{"", false}, {"", false}, FIGURE_COLUMNS};
    static const struct query query = {sql_growth_domains, columns, "ttbbBccC"};
    struct cursor rows;
    fputc('\n', out);
    cursor_open(&rows, growth->two, query.sql);
    if (query_print_rows(out, &rows, &query, 0, INT64_MAX) == 0) {
        fputs("  no allocation was recorded in either\n", out);
    }
}

static void diff_growth_print_rest(FILE *out, int64_t all, int64_t shown, const char *what)
{
    if (shown < all) {
        fprintf(out, "  … %s more %s (--all has all)\n", format_count(all - shown).text, what);
    }
}

static void print_sizes(FILE *out, const struct growth *growth, const char *domain)
{
    static const struct table_column columns[] = {{"size up to", true}, FIGURE_COLUMNS};
    static const struct query query = {sql_growth_sizes, columns, "bbbBccC"};
    const int64_t top = growth->options.top;
    struct cursor counts, rows;
    open_entry_counts(&counts, growth, PART_SIZE, domain);
    const int64_t all = cursor_integer(&counts, COUNT_ALL);
    cursor_close(&counts);
    if (all > 0) {
        fputc('\n', out);
    }
    cursor_open(&rows, growth->two, query.sql);
    cursor_bind_integer(&rows, 1, top < SIZES_TEXT ? top : SIZES_TEXT);
    cursor_bind_text(&rows, 2, domain);
    diff_growth_print_rest(out, all, query_print_rows(out, &rows, &query, 0, INT64_MAX), "size classes");
}

static void diff_growth_print_stack(FILE *out, const struct growth *growth, struct database *database,
                                    const struct callsite_row *location)
{
    bool is_stack = growth->options.by == DIFF_BY_STACK;
    int64_t frames = growth->options.frames >= 0 ? growth->options.frames : is_stack ? FRAMES_TEXT : 0;
    if (frames > 0) {
        callsite_stack_print(out, database, location, frames);
    }
}

/* A line more, of a line that is in the heap and in Python's memory. */
static void diff_growth_print_together(FILE *out, struct cursor *entry)
{
    const struct together a = together_read(entry, ENTRY_TOGETHER_A), b = together_read(entry, ENTRY_TOGETHER_B);
    char each[2][120];
    together_words(each[0], sizeof(each[0]), &a);
    together_words(each[1], sizeof(each[1]), &b);
    if (a.bytes >= 0 && b.bytes >= 0) {
        fprintf(out, "       %s together: %s%s in A, ", format_signed(b.bytes - a.bytes, format_bytes).text,
                format_bytes(a.bytes).text, each[0]);
        fprintf(out, "%s%s in B\n", format_bytes(b.bytes).text, each[1]);
    }
}

/* A line: figures, then what the row is about. */
static void diff_growth_print_line(FILE *out, const struct growth *growth, struct cursor *entry)
{
    const char *state = cursor_name(entry, ENTRY_STATE);
    const bool is_marked = strcmp(state, "new") == 0 || strcmp(state, "gone") == 0;
    fprintf(out, "  %10s %9s %9s ", format_signed(cursor_integer(entry, ENTRY_CHANGE_BYTES), format_bytes).text,
            format_bytes(cursor_integer(entry, ENTRY_FROM_BYTES)).text,
            format_bytes(cursor_integer(entry, ENTRY_TO_BYTES)).text);
    fprintf(out, "%11s  %-4s  ", format_signed(cursor_integer(entry, ENTRY_CHANGE_ALLOCATIONS), format_count).text,
            is_marked ? state : "");
    struct database *database;
    struct callsite_row location = location_of(growth, entry, &database);
    char *name = callsite_entry_name(&location, growth->options.by == DIFF_BY_MODULE ? GROUP_BY_MODULE : GROUP_BY_LINE,
                                     terminal_columns() > LINE_FIGURES + 16 ? terminal_columns() - LINE_FIGURES : 16);
    fprintf(out, "%s\n", name);
    free(name);
    diff_growth_print_together(out, entry);
    diff_growth_print_stack(out, growth, database, &location);
    callsite_location_free(&location);
}

static void diff_growth_print_lines(FILE *out, const struct growth *growth, const char *domain, int64_t all,
                                    const char *noun)
{
    fprintf(out, "  %10s %9s %9s %11s\n", "change", "in A", "in B", "allocations");
    int64_t shown = 0;
    struct cursor entries;
    open_entries(&entries, growth, PART_LINE, domain);
    while (cursor_next(&entries)) {
        diff_growth_print_line(out, growth, &entries);
        shown++;
    }
    cursor_close(&entries);
    diff_growth_print_rest(out, all, shown, noun);
}

static void diff_growth_print_domain(FILE *out, const struct growth *growth, const char *domain)
{
    static const char *const nouns[][2] = {
        {"line", "lines"}, {"function", "functions"}, {"stack", "stacks"}, {"module", "modules"}};
    const char *const *noun = nouns[growth->options.by];
    struct cursor counts;
    open_entry_counts(&counts, growth, PART_LINE, domain);
    const int64_t all = cursor_integer(&counts, COUNT_ALL), noise = cursor_integer(&counts, COUNT_NOISE);
    fprintf(out, "\n%s, %s, by %s: ", domain, cursor_name(&counts, COUNT_WORDS), noun[0]);
    if (all == 0) {
        fputs(noise > 0 ? "no change that repeats\n" : "no change\n", out);
    } else {
        fprintf(out, "%s new, ", format_count(cursor_integer(&counts, COUNT_NEW)).text);
        fprintf(out, "%s gone, ", format_count(cursor_integer(&counts, COUNT_GONE)).text);
        fprintf(out, "%s grew, ", format_count(cursor_integer(&counts, COUNT_GREW)).text);
        fprintf(out, "%s shrank\n", format_count(cursor_integer(&counts, COUNT_SHRANK)).text);
        diff_growth_print_lines(out, growth, domain, all, noun[1]);
    }
    if (noise > 0) {
        fprintf(out, "  noise: %s %s with fewer than 8 blocks more or less, ", format_count(noise).text,
                noun[noise != 1]);
        fprintf(out, "%s in all (--all lists them)\n",
                format_signed(cursor_integer(&counts, COUNT_NOISE_BYTES), format_bytes).text);
    }
    cursor_close(&counts);
    print_sizes(out, growth, domain);
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
    struct cursor domains;
    diff_growth_print_side(out, &growth->a, 'A');
    diff_growth_print_side(out, &growth->b, 'B');
    print_domains(out, growth);
    open_domains(&domains, growth);
    while (cursor_next(&domains)) {
        diff_growth_print_domain(out, growth, cursor_name(&domains, 0));
    }
    cursor_close(&domains);
}

/* ---- JSON ---- */

static void diff_growth_add_row(struct cJSON *object, struct cursor *entry)
{
    static const char *const keys[] = {"a", "b", "change"};
    for (int i = 0; i < 3; i++) {
        cursor_json_add(json_member(object, keys[i]), entry, ENTRY_A + i * FIGURES_ALL, FIGURES_ALL);
    }
}

static struct cJSON *diff_growth_line_json(const struct growth *growth, struct cursor *entry)
{
    struct cJSON *object = json_object();
    struct database *database;
    struct callsite_row location = location_of(growth, entry, &database);
    cursor_json_add(object, entry, ENTRY_STATE, ENTRY_A);
    diff_growth_add_row(object, entry);
    const struct together a = together_read(entry, ENTRY_TOGETHER_A), b = together_read(entry, ENTRY_TOGETHER_B);
    if (a.bytes >= 0) {
        together_json(json_member(object, "a"), &a);
        together_json(json_member(object, "b"), &b);
    }
    group_location_json(object, "", &location.user);
    if (growth->options.by == DIFF_BY_STACK) {
        json_add(object, "frames", stack_json(database, location.id, growth->options.frames));
    }
    callsite_location_free(&location);
    return object;
}

static struct cJSON *diff_growth_domain_json(const struct growth *growth, const char *domain)
{
    struct cJSON *object = json_object();
    struct cJSON *sizes = json_array();
    struct cJSON *lines = json_array();
    struct cursor entries, counts;
    json_text(object, "domain", domain);
    open_entries(&entries, growth, PART_DOMAIN, domain);
    if (cursor_next(&entries)) {
        diff_growth_add_row(object, &entries);
    }
    cursor_close(&entries);
    open_entries(&entries, growth, PART_SIZE, domain);
    while (cursor_next(&entries)) {
        struct cJSON *size = json_object();
        cursor_json_add(size, &entries, ENTRY_KEY, 1);
        diff_growth_add_row(size, &entries);
        json_append(sizes, size);
    }
    cursor_close(&entries);
    open_entry_counts(&counts, growth, PART_SIZE, domain);
    json_integer(object, "sizes_all", cursor_integer(&counts, COUNT_ALL));
    cursor_close(&counts);
    json_add(object, "sizes", sizes);
    open_entry_counts(&counts, growth, PART_LINE, domain);
    cursor_json_add(object, &counts, COUNT_ALL, COUNT_WORDS);
    cursor_close(&counts);
    open_entries(&entries, growth, PART_LINE, domain);
    while (cursor_next(&entries)) {
        json_append(lines, diff_growth_line_json(growth, &entries));
    }
    cursor_close(&entries);
    json_add(object, "entries", lines);
    return object;
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
    struct cursor cursor;
    json_add(object, "a", side_json(&growth->a));
    json_add(object, "b", side_json(&growth->b));
    json_text(object, "by", growth_by_names[growth->options.by]);
    json_text(object, "metric", growth_metric_names[growth->options.metric]);
    open_domains(&cursor, growth);
    while (cursor_next(&cursor)) {
        json_append(domains, diff_growth_domain_json(growth, cursor_name(&cursor, 0)));
    }
    cursor_close(&cursor);
    json_add(object, "domains", domains);
    json_print(object, out);
}
