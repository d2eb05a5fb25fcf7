/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As text, at most 100 columns wide: the verdict, both sides with their losses, figures by kind and field, the first
 * differences, and what differs of processes and threads. Of two stacks the first frame that differs is printed. As
 * JSON the same with whole stacks, numbers instead of texts but for kinds and causes; keys are stable: they may be
 * added to, never renamed; the manual page lists them. Words are those of diff_words.sql.
 */
#include "analysis/report/diff_events_print.h"

#include "analysis/base/json_writer.h"
#include "analysis/base/number_format.h"
#include "analysis/base/table.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_print.h"
#include "analysis/report/diff_events.h"

#include "statements_generated.h"

#include <stdio.h>
#include <string.h>

#define LINE_COLUMNS 98U
#define VALUE_COLUMNS 34U
#define CELL_BYTES 512
#define NOTE_BYTES 80

static void open_of(struct cursor *cursor, const struct diff *diff, const char *sql, int64_t bound)
{
    cursor_open(cursor, diff->two, sql);
    cursor_bind_integer(cursor, 1, bound);
}

static void print_lines(FILE *out, const struct diff *diff, const char *indent, const char *sql, int64_t bound)
{
    struct cursor cursor;
    for (open_of(&cursor, diff, sql, bound); cursor_next(&cursor);) {
        fprintf(out, "%s%s\n", indent, cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
}

static void diff_events_print_side(FILE *out, const struct diff *diff, enum diff_side side)
{
    int64_t events = database_integer_of(diff->two, "SELECT events FROM trace WHERE side = ?1", side);
    char path[CELL_BYTES];
    format_tail(path, sizeof(path), database_path(diff->traces[side]), 60);
    fprintf(out, "  %-9c %s: %s event%s\n            ", "AB"[side], path, format_count(events).text,
            format_plural(events, "", "s"));
    struct report_loss loss;
    report_loss_load(&loss, diff->traces[side]);
    report_loss_print(out, diff->traces[side], &loss);
    print_lines(out, diff, "            ", "SELECT line FROM trace_line WHERE side = ?1 ORDER BY place", side);
}

/* A name and counts in each row; nothing if there are none. As wide as it is: query_print cuts at the terminal. */
static void print_count_table(FILE *out, const struct diff *diff, const char *sql, const struct table_column *columns,
                              int column_count)
{
    struct table table;
    table_init(&table, columns, (size_t)column_count);
    table.indent = "  ";
    struct cursor cursor;
    for (cursor_open(&cursor, diff->two, sql); cursor_next(&cursor);) {
        table_add(&table, cursor_name(&cursor, 0));
        for (int i = 1; i < column_count; i++) {
            table_add(&table, format_count(cursor_integer(&cursor, i)).text);
        }
    }
    cursor_close(&cursor);
    if (table.cell_count > 0) {
        fputc('\n', out);
        table_print(&table, out, true);
    }
    table_free(&table);
}

static void print_figures(FILE *out, const struct diff *diff)
{
    static const struct table_column kinds[] = {
        {"kind", false}, {"in both", true}, {"only in A", true}, {"only in B", true}, {"differing", true},
    };
    static const struct table_column fields[] = {{"field", false}, {"differs in events", true}};
    print_count_table(out, diff, sql_diff_kinds, kinds, sizeof(kinds) / sizeof(kinds[0]));
    print_count_table(out, diff, sql_diff_fields, fields, sizeof(fields) / sizeof(fields[0]));
    print_lines(out, diff, "", "SELECT line FROM callsite_line", 0);
}

/* ---- the list ---- */

/* Go on in the line, or in a new one if it is full. */
static void print_pieces(FILE *out, const struct diff *diff, int64_t place, size_t column)
{
    struct cursor cursor;
    open_of(&cursor, diff, "SELECT piece FROM listed_piece WHERE place = ?1 ORDER BY number", place);
    while (cursor_next(&cursor)) {
        const char *piece = cursor_name(&cursor, 0);
        if (column + 1 + format_width(piece) > LINE_COLUMNS) {
            fputs("\n     ", out);
            column = 5;
        }
        fputc(' ', out);
        format_print_safe(out, piece);
        column += 1 + format_width(piece);
    }
    cursor_close(&cursor);
    fputc('\n', out);
}

/* A row for each row of the cursor: field, both values, and what is to be said of them. */
static void add_details(struct table *table, struct cursor *cursor)
{
    while (cursor_next(cursor)) {
        char cell[CELL_BYTES + NOTE_BYTES];
        table_add(table, cursor_name(cursor, 0));
        format_tail(cell, CELL_BYTES, cursor_is_null(cursor, 1) ? "NULL" : cursor_text(cursor, 1), VALUE_COLUMNS);
        table_add(table, cell);
        format_tail(cell, CELL_BYTES, cursor_is_null(cursor, 2) ? "NULL" : cursor_text(cursor, 2), VALUE_COLUMNS);
        snprintf(cell + strlen(cell), NOTE_BYTES, "%s", cursor_name(cursor, 3));
        table_add(table, cell);
    }
    cursor_close(cursor);
}

static void print_details(FILE *out, const struct diff *diff, int64_t place)
{
    static const struct table_column columns[] = {{"", false}, {"A", false}, {"B", false}};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "    ";
    struct cursor cursor;
    open_of(&cursor, diff,
            "SELECT field, text_a, text_b, note FROM detail WHERE place = ?1 AND field <> 'frames' ORDER BY number",
            place);
    add_details(&table, &cursor);
    open_of(&cursor, diff, sql_diff_frames, place);
    add_details(&table, &cursor);
    table_print(&table, out, false);
    table_free(&table);
}

static void print_list(FILE *out, const struct diff *diff)
{
    struct cursor listed;
    cursor_open(&listed, diff->two, sql_diff_heads);
    while (cursor_next(&listed)) {
        format_print_safe(out, cursor_name(&listed, 1));
        if (cursor_is_null(&listed, 2)) {
            print_pieces(out, diff, cursor_integer(&listed, 0), format_width(cursor_name(&listed, 1)));
        } else {
            fputc('\n', out);
            print_details(out, diff, cursor_integer(&listed, 0));
        }
    }
    cursor_close(&listed);
}

/* ---- processes and threads ---- */

static void diff_events_print_remark(FILE *out, const char *head, const char *const values[DIFF_SIDES])
{
    if (format_width(head) + format_width(values[DIFF_A]) + format_width(values[DIFF_B]) + 14 <= LINE_COLUMNS) {
        fprintf(out, "%s ", head);
        format_print_safe(out, values[DIFF_A]);
        fputs(" in A, ", out);
        format_print_safe(out, values[DIFF_B]);
        fputs(" in B\n", out);
        return;
    }
    fprintf(out, "%s\n", head);
    for (int side = 0; side < DIFF_SIDES; side++) {
        char cell[CELL_BYTES];
        format_tail(cell, sizeof(cell), values[side], LINE_COLUMNS - 8);
        fprintf(out, "    %c  %s\n", "AB"[side], cell);
    }
}

static void print_remarks(FILE *out, const struct diff *diff)
{
    struct cursor remark;
    open_of(&remark, diff, "SELECT head, is_alone, a, b FROM remark_line ORDER BY place LIMIT ?1", diff->limit);
    while (cursor_next(&remark)) {
        const char *const values[] = {cursor_name(&remark, 2), cursor_name(&remark, 3)};
        if (cursor_integer(&remark, 1) != 0) {
            fprintf(out, "%s\n", cursor_name(&remark, 0));
        } else {
            diff_events_print_remark(out, cursor_name(&remark, 0), values);
        }
    }
    cursor_close(&remark);
}

void diff_events_text(FILE *out, const struct diff *diff)
{
    print_lines(out, diff, "", "SELECT line FROM verdict_line ORDER BY place", 0);
    diff_events_print_side(out, diff, DIFF_A);
    diff_events_print_side(out, diff, DIFF_B);
    print_figures(out, diff);
    print_lines(out, diff, "", "SELECT line FROM list_line WHERE name = 'listed'", 0);
    print_list(out, diff);
    print_lines(out, diff, "", "SELECT line FROM list_line WHERE name = 'remark'", 0);
    print_remarks(out, diff);
}

/* ---- JSON ---- */

static struct cJSON *diff_trace_json(const struct diff *diff, enum diff_side side)
{
    struct cJSON *object = json_object();
    json_text(object, "database", database_path(diff->traces[side]));
    struct cursor trace;
    open_of(&trace, diff, "SELECT * FROM trace WHERE side = ?1", side);
    if (cursor_next(&trace)) {
        cursor_json_add(object, &trace, 1, cursor_column_count(&trace) - 1);
    }
    cursor_close(&trace);
    struct report_loss loss;
    report_loss_load(&loss, diff->traces[side]);
    json_add(object, "loss", report_loss_json(diff->traces[side], &loss));
    return object;
}

/* An object of names and numbers. */
static struct cJSON *names_json(const struct diff *diff, const char *sql, int64_t bound)
{
    struct cJSON *object = json_object();
    struct cursor cursor;
    for (open_of(&cursor, diff, sql, bound); cursor_next(&cursor);) {
        json_integer(object, cursor_name(&cursor, 0), cursor_integer(&cursor, 1));
    }
    cursor_close(&cursor);
    return object;
}

/* What differs of an event: whole stacks, and of row numbers what they belonged to before. */
static struct cJSON *fields_json(const struct diff *diff, int64_t place)
{
    struct cJSON *fields = json_array();
    struct cursor cursor;
    open_of(&cursor, diff, sql_diff_detail, place);
    while (cursor_next(&cursor)) {
        bool is_stack = cursor_integer(&cursor, 5) != 0;
        struct cJSON *object = cursor_json(&cursor, is_stack ? 1 : cursor_integer(&cursor, 6) != 0 ? 5 : 3);
        for (int side = 0; side < DIFF_SIDES && is_stack; side++) {
            json_add(object, cursor_column_name(&cursor, 1 + side),
                     stack_json(diff->traces[side], cursor_integer(&cursor, 1 + side), -1));
        }
        json_append(fields, object);
    }
    cursor_close(&cursor);
    return fields;
}

static struct cJSON *list_json(const struct diff *diff)
{
    struct cJSON *array = json_array();
    struct cursor listed;
    cursor_open(&listed, diff->two, sql_diff_listed);
    while (cursor_next(&listed)) {
        struct cJSON *object = cursor_json(&listed, 5);
        bool differs = !cursor_is_null(&listed, 7);
        cursor_json_add(object, &listed, differs ? 5 : 8, differs ? 3 : 1);
        if (differs) {
            json_add(object, "fields", fields_json(diff, cursor_integer(&listed, 9)));
        } else {
            json_add(object, "kinds",
                     names_json(diff, "SELECT kind, events FROM run_kind WHERE place = ?1 ORDER BY first",
                                cursor_integer(&listed, 9)));
        }
        json_append(array, object);
    }
    cursor_close(&listed);
    return array;
}

static struct cJSON *remarks_json(const struct diff *diff)
{
    struct cJSON *array = json_array();
    struct cursor remark;
    open_of(&remark, diff, "SELECT * FROM remark ORDER BY rowid LIMIT ?1", diff->limit);
    while (cursor_next(&remark)) {
        struct cJSON *object = cursor_json(&remark, 3);
        bool is_alone = !cursor_is_null(&remark, 3);
        cursor_json_add(object, &remark, is_alone ? 3 : 4, is_alone ? 1 : 3);
        json_append(array, object);
    }
    cursor_close(&remark);
    return array;
}

void diff_events_json(FILE *out, const struct diff *diff)
{
    struct cJSON *object = json_object();
    struct cursor verdict;
    cursor_open(&verdict, diff->two, sql_diff_verdict);
    if (cursor_next(&verdict)) {
        json_bool(object, "equal", diff->is_equal);
        cursor_json_add(object, &verdict, 0, 1);
        json_add(object, "a", diff_trace_json(diff, DIFF_A));
        json_add(object, "b", diff_trace_json(diff, DIFF_B));
        cursor_json_add(object, &verdict, 1, 5);
        json_add(object, "kinds", query_json(diff->two, sql_diff_kinds, 0));
        json_add(object, "fields", names_json(diff, sql_diff_fields, 0));
        cursor_json_add(object, &verdict, 6, 3);
        json_add(object, "differences", list_json(diff));
        json_bool(object, "with_tables", diff->with_tables);
        cursor_json_add(object, &verdict, 9, 1);
        json_add(object, "tables", remarks_json(diff));
    }
    cursor_close(&verdict);
    json_print(object, out);
}
