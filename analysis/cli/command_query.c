/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve query`: a user's SQL over a trace, as an aligned table, in vertical form, CSV or JSON; and what a user needs
 * to write it: the views with what their columns mean, and questions with their answers. All statements are compiled
 * and judged before the first runs, so that SQL which would write, or is wrong, gives one line and no rows. Rows are
 * written as they come; a table is aligned by the first rows.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "base/error.h"

#include "statements_generated.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS_PER_PORTION 1000
#define SQL_BYTES_MAX (16U << 20)
#define NAMES_MAX 512      /* of tables and columns, among which a misspelt one is looked for */
#define NAME_BYTES_MAX 128 /* of a table */
#define MEANING_COLUMN 24U

struct values {
    const char *null_text;
    bool json;
    bool csv;
    bool no_header;
    bool vertical;
    bool schema;
    bool examples;
};

extern const char query_questions_sql[]; /* questions.sql, embedded by the build */

static const struct option_spec options[] = {
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values (RFC 4180; NULL is an empty field)",
     offsetof(struct values, csv), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "for each statement that gives rows an array of objects, a row on a line",
     offsetof(struct values, json), 0, 0, NULL},
    {"vertical", 0, OPTION_FLAG, NULL, "each column of a row on a line of its own: for wide rows",
     offsetof(struct values, vertical), 0, 0, NULL},
    {"no-header", 0, OPTION_FLAG, NULL, "leave out the names of the columns", offsetof(struct values, no_header), 0, 0,
     NULL},
    {"null", 0, OPTION_TEXT, "TEXT", "show NULL as TEXT (default: NULL in tables, nothing in CSV)",
     offsetof(struct values, null_text), 0, 0, NULL},
    {"schema", 0, OPTION_FLAG, NULL,
     "views and tables with what they mean; with a NAME its columns, types, meanings and units",
     offsetof(struct values, schema), 0, 0, NULL},
    {"examples", 0, OPTION_FLAG, NULL, "ten questions to a trace, with the SQL that answers each",
     offsetof(struct values, examples), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* Where rows go. */
struct answer {
    FILE *out;
    const struct values *values;
    struct progress *progress;
};

/* Rows and a line of progress do not share a terminal: the first row ends the line for good. */
static void begin_output(const struct answer *answer)
{
    progress_end(answer->progress);
    answer->progress->is_on = false;
}

/* Blobs are shown as SQL writes them. */
static char *command_query_value_text(const struct value *value, const char *null_text)
{
    if (value->type == VALUE_NULL) {
        return memory_copy_text(null_text);
    }
    if (value->type == VALUE_BLOB) {
        char *digits = hexadecimal(value->text, value->bytes);
        char *text = memory_resize(NULL, value->bytes * 2 + 4);
        sprintf(text, "X'%s'", digits);
        free(digits);
        return text;
    }
    return memory_copy_text(value->text);
}

/* A terminal gets no lines that it would break, as far as cutting texts goes: no column is left out. What reads a pipe
 * gets everything. */
static void fit_terminal(const struct answer *answer, struct table *table)
{
    int number = fileno(answer->out);
    if (number >= 0 && isatty(number)) {
        table->columns_max = terminal_columns();
        table->keeps_columns = true;
    }
}

static void command_query_print_table(const struct answer *answer, struct cursor *cursor)
{
    const struct values *values = answer->values;
    int count = cursor_column_count(cursor);
    struct table_column *columns = memory_resize(NULL, (size_t)count * sizeof(columns[0]));
    bool with_titles = !values->no_header;
    for (int i = 0; i < count; i++) {
        columns[i] = (struct table_column){memory_copy_text(with_titles ? cursor_column_name(cursor, i) : ""), true};
    }
    struct table table;
    table_init(&table, columns, (size_t)count);
    while (cursor_next(cursor)) {
        for (int i = 0; i < count; i++) {
            struct value value = cursor_value(cursor, i);
            char *text = command_query_value_text(&value, values->null_text != NULL ? values->null_text : "NULL");
            if (value.type == VALUE_TEXT || value.type == VALUE_BLOB) {
                columns[i].is_right = false;
            }
            table_add(&table, text);
            free(text);
        }
        if (table.cell_count == (size_t)count * ROWS_PER_PORTION) {
            begin_output(answer);
            fit_terminal(answer, &table);
            table_print(&table, answer->out, with_titles);
            with_titles = false;
        }
    }
    if ((table.cell_count > 0 || with_titles) && database_error(cursor->database, NULL) == VARVE_OK) {
        begin_output(answer);
        fit_terminal(answer, &table);
        table_print(&table, answer->out, with_titles);
    }
    table_free(&table);
    for (int i = 0; i < count; i++) {
        free((void *)(uintptr_t)columns[i].title);
    }
    free(columns);
}

static void print_vertical(const struct answer *answer, struct cursor *cursor)
{
    FILE *out = answer->out;
    int count = cursor_column_count(cursor);
    size_t width = 0;
    for (int i = 0; i < count; i++) {
        size_t name = format_width(cursor_column_name(cursor, i));
        width = name > width ? name : width;
    }
    for (int64_t row = 1; cursor_next(cursor); row++) {
        begin_output(answer);
        fprintf(out, "%srow %" PRId64 "\n", row > 1 ? "\n" : "", row);
        for (int i = 0; i < count; i++) {
            const char *name = cursor_column_name(cursor, i);
            struct value value = cursor_value(cursor, i);
            char *text = command_query_value_text(&value, answer->values->null_text != NULL ? answer->values->null_text
                                                                                            : "NULL");
            fputs("  ", out);
            format_print_safe(out, name);
            fprintf(out, "%*s", (int)(width - format_width(name)) + 2, "");
            format_print_safe(out, text);
            fputc('\n', out);
            free(text);
        }
    }
}

static void command_query_print_csv(const struct answer *answer, struct cursor *cursor)
{
    const struct values *values = answer->values;
    FILE *out = answer->out;
    int count = cursor_column_count(cursor);
    bool is_row = cursor_next(cursor);
    begin_output(answer);
    for (int i = 0; i < count && !values->no_header && database_error(cursor->database, NULL) == VARVE_OK; i++) {
        const char *name = cursor_column_name(cursor, i);
        csv_text(out, name, strlen(name));
        fputc(i + 1 < count ? ',' : '\n', out);
    }
    for (; is_row; is_row = cursor_next(cursor)) {
        for (int i = 0; i < count; i++) {
            struct value value = cursor_value(cursor, i);
            if (value.type == VALUE_NULL) {
                fputs(values->null_text != NULL ? values->null_text : "", out);
            } else if (value.type == VALUE_BLOB) {
                char *text = command_query_value_text(&value, "");
                fputs(text, out);
                free(text);
            } else {
                csv_text(out, value.text, value.bytes);
            }
            fputc(i + 1 < count ? ',' : '\n', out);
        }
    }
}

/* Keys of an object must differ: a name that occurred before gets a number. */
static char *unique_name(struct cursor *cursor, int column)
{
    const char *name = cursor_column_name(cursor, column);
    size_t bytes = strlen(name) + 24;
    char *text = memory_resize(NULL, bytes);
    int number = 1;
    for (int i = 0; i < column; i++) {
        number += strcmp(cursor_column_name(cursor, i), name) == 0 ? 1 : 0;
    }
    if (number > 1) {
        snprintf(text, bytes, "%s_%d", name, number);
    } else {
        snprintf(text, bytes, "%s", name);
    }
    return text;
}

static void command_query_print_json(const struct answer *answer, struct cursor *cursor)
{
    FILE *out = answer->out;
    int count = cursor_column_count(cursor);
    char **names = memory_resize(NULL, (size_t)count * sizeof(names[0]));
    const char *separator = "[";
    for (int i = 0; i < count; i++) {
        names[i] = unique_name(cursor, i);
    }
    while (cursor_next(cursor)) {
        struct cJSON *row = json_object();
        for (int i = 0; i < count; i++) {
            struct value value = cursor_value(cursor, i);
            json_add(row, names[i], value_json(&value));
        }
        begin_output(answer);
        fputs(separator, out);
        json_print(row, out);
        separator = ",";
    }
    if (database_error(cursor->database, NULL) == VARVE_OK) {
        begin_output(answer);
        fputs(separator[0] == '[' ? "[]\n" : "]\n", out);
    }
    for (int i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

/* NULL: could not be read (with the reason). Owner: the caller. */
static char *read_stdin(struct varve_message *message)
{
    size_t capacity = 4096;
    size_t used = 0;
    char *text = memory_resize(NULL, capacity);
    size_t got;
    while ((got = fread(text + used, 1, capacity - used - 1, stdin)) > 0 && used < SQL_BYTES_MAX) {
        used += got;
        if (capacity - used < 2) {
            capacity *= 2;
            text = memory_resize(text, capacity);
        }
    }
    text[used] = '\0';
    if (ferror(stdin) || used >= SQL_BYTES_MAX || strlen(text) != used) {
        varve_message_set(message, VARVE_ERROR_IO, "standard input is no SQL: %s",
                          ferror(stdin)           ? strerror(errno)
                          : used >= SQL_BYTES_MAX ? "too long"
                                                  : "it has NUL bytes");
        free(text);
        return NULL;
    }
    return text;
}

static int check_statements(struct database *database, const char *sql, struct varve_message *message)
{
    int count = 0;
    for (;;) {
        struct cursor cursor;
        int result = cursor_open_user(&cursor, database, &sql, message);
        if (result != VARVE_OK) {
            return result;
        }
        if (cursor.statement == NULL && *sql == '\0') {
            break;
        }
        count += cursor.statement != NULL ? 1 : 0;
        cursor_close(&cursor);
    }
    return count > 0 ? VARVE_OK : varve_message_set(message, VARVE_ERROR_INVALID, "there is no SQL to run");
}

static int run_statements(const struct answer *answer, struct database *database, const char *sql,
                          struct varve_message *message)
{
    int tables = 0;
    for (;;) {
        struct cursor cursor;
        int result = cursor_open_user(&cursor, database, &sql, message);
        if (result != VARVE_OK) {
            return result;
        }
        if (cursor.statement == NULL && *sql == '\0') {
            return VARVE_OK;
        }
        if (cursor.statement != NULL && cursor_column_count(&cursor) == 0) {
            cursor_next(&cursor);
        } else if (cursor.statement != NULL) {
            if (tables++ > 0 && !answer->values->json) {
                fputc('\n', answer->out);
            }
            if (answer->values->json) {
                command_query_print_json(answer, &cursor);
            } else if (answer->values->csv) {
                command_query_print_csv(answer, &cursor);
            } else if (answer->values->vertical) {
                print_vertical(answer, &cursor);
            } else {
                command_query_print_table(answer, &cursor);
            }
        }
        cursor_close(&cursor);
        result = database_error(database, message);
        if (result != VARVE_OK) {
            return result;
        }
    }
}

/* ---- what there is to ask ---- */

/* Adds the nearest name that the SQL may have meant, of the tables and views that there are, or of the columns of
 * those in the SQL. */
static void add_suggestion(struct database *database, const char *sql, struct varve_message *message)
{
    static const char *const errors[] = {"no such table: ", "no such column: "};
    char word[64] = "";
    const char *names[NAMES_MAX + 1] = {NULL};
    bool is_column = false;
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(message->text, errors[i]);
        if (at != NULL) {
            at += strlen(errors[i]);
            const char *end = strstr(at, ", in: ");

            snprintf(word, sizeof(word), "%.*s", end != NULL ? (int)(end - at) : (int)strlen(at), at);
            is_column = i == 1;
        }
    }
    if (word[0] == '\0') {
        return;
    }
    struct cursor cursor;
    cursor_open(&cursor, database,
                is_column ? sql_columns_of_statement
                          : "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND ?1 <> '' ORDER BY 1");
    cursor_bind_text(&cursor, 1, sql);
    int count = 0;
    while (count < NAMES_MAX && cursor_next(&cursor)) {
        names[count++] = memory_copy_text(cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
    const char *nearest = option_suggest(strrchr(word, '.') != NULL ? strrchr(word, '.') + 1 : word, names);
    if (nearest != NULL) {
        varve_message_set(message, VARVE_ERROR_INVALID,
                          "no such %s: %s; did you mean %s? (--schema lists what there is)",
                          is_column ? "column" : "table", word, nearest);
    }
    while (count > 0) {
        free((void *)(uintptr_t)names[--count]);
    }
}

#define COLUMNS_SQL                                                                                            \
    "SELECT c.name, lower(c.type) AS type, coalesce(h.meaning, '') AS meaning FROM pragma_table_info('%s') c " \
    "LEFT JOIN help h ON h.name = '%s' AND h.column = c.name"

/* Names in one column, meanings wrapped beside them; a type before its first name. */
static void command_query_print_meanings(FILE *out, struct database *database, const char *sql, bool with_types)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    char type[8] = "";
    while (cursor_next(&cursor)) {
        const char *name = cursor_name(&cursor, 0);
        size_t width = format_width(name) + 2;
        if (with_types && strcmp(type, cursor_name(&cursor, 1)) != 0) {
            snprintf(type, sizeof(type), "%s", cursor_name(&cursor, 1));
            fprintf(out, "%ss\n", type);
        }
        fputs("  ", out);
        format_print_safe(out, name);
        if (width + 2 > MEANING_COLUMN) {
            fputc('\n', out);
            width = 0;
        }
        fprintf(out, "%*s", (int)(MEANING_COLUMN - width), "");
        format_print_wrapped(out, cursor_name(&cursor, 2), MEANING_COLUMN);
    }
    cursor_close(&cursor);
}

/* The name as the database writes it, and for people a line about it. A name that needs quoting is none of ours. */
static int find_table(char found[NAME_BYTES_MAX], struct database *database, const char *name, FILE *out,
                      struct varve_message *message)
{
    found[0] = '\0';
    struct cursor cursor;
    cursor_open(&cursor, database, sql_help_of_name);
    cursor_bind_text(&cursor, 1, name);
    if (cursor_next(&cursor) && strpbrk(cursor_name(&cursor, 0), "'\"%") == NULL) {
        snprintf(found, NAME_BYTES_MAX, "%s", cursor_name(&cursor, 0));
        if (out != NULL) {
            format_print_wrapped(out, cursor_name(&cursor, 1), 0);
        }
    }
    cursor_close(&cursor);
    if (found[0] == '\0' && database_error(database, message) == VARVE_OK) {
        varve_message_set(message, VARVE_ERROR_INVALID, "no such table: %s", name);
        add_suggestion(database, name, message);
    }
    return found[0] != '\0' ? VARVE_OK : VARVE_ERROR_INVALID;
}

/* Without a name all views and tables, with one its columns. */
static int answer_schema(const struct answer *answer, struct database *database, const char *name,
                         struct varve_message *message)
{
    const struct values *values = answer->values;
    bool is_text = !values->csv && !values->json && !values->vertical;
    char columns[sizeof(COLUMNS_SQL) + 2 * NAME_BYTES_MAX];
    const char *sql = sql_query_schema;
    if (name != NULL) {
        char found[NAME_BYTES_MAX];
        int result = find_table(found, database, name, is_text ? answer->out : NULL, message);
        if (result != VARVE_OK) {
            return result;
        }
        snprintf(columns, sizeof(columns), COLUMNS_SQL, found, found);
        sql = columns;
    }
    if (!is_text) {
        return run_statements(answer, database, sql, message);
    }
    command_query_print_meanings(answer->out, database, sql, name == NULL);
    return database_error(database, message);
}

/* The user's SQL. */
static int answer_sql(struct command_context *context, const struct answer *answer, struct database *database,
                      const struct operands *operands, struct varve_message *message)
{
    const char *sql = operands->items[1];
    char *from_stdin = NULL;
    if (strcmp(sql, "-") == 0) {
        sql = from_stdin = read_stdin(message);
    }
    int result = sql == NULL ? VARVE_ERROR_IO : command_hide(context, database, operands, message);
    if (result == VARVE_OK) {
        result = check_statements(database, sql, message);
        if (result == VARVE_ERROR_INVALID) {
            add_suggestion(database, sql, message);
        }
    }
    char kept[240];
    if (result == VARVE_OK) {
        if (!database_is_complete(database)) {
            fprintf(context->err, "varve query: warning: the recording was cut off; derived tables may be empty\n");
        }
        report_kept_words(kept, sizeof(kept), database);
        if (kept[0] != '\0') {
            fprintf(context->err, "varve query: the database has %s\n", kept);
        }
        command_progress(context, answer->progress, false);
        database_watch(database, answer->progress, "query");
        result = run_statements(answer, database, sql, message);
        progress_end(answer->progress);
    }
    free(from_stdin);
    return result;
}

/* What is wrong with the options together, NULL if nothing is. */
static const char *command_query_check(const struct values *values)
{
    if (values->json + values->csv + values->vertical > 1) {
        return "--json, --csv and --vertical are mutually exclusive";
    }
    if (values->vertical && values->no_header) {
        return "--vertical and --no-header are mutually exclusive";
    }
    return values->schema && values->examples ? "--schema and --examples are mutually exclusive" : NULL;
}

static int command_query_run(struct command_context *context, const void *values_untyped,
                             const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *second = operands->count > 1 ? operands->items[1] : NULL;
    struct varve_message message = {""};
    struct progress progress = {0};
    const struct answer answer = {.out = context->out, .values = values, .progress = &progress};
    const char *wrong = command_query_check(values);
    if (wrong != NULL) {
        return command_fail(context, "%s", wrong);
    }
    if (second == NULL && !values->schema && !values->examples) {
        int status = command_fail(context, "missing argument SQL");
        help_print_usage(context->err, &command_query);
        return status;
    }
    if (second != NULL && values->examples) {
        return command_fail(context, "unexpected argument '%s'", second);
    }
    struct database *database;
    if (database_open(operands->items[0], DATABASE_ANY, &database, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    int result = VARVE_OK;
    if (values->examples) {
        fputs(strchr(query_questions_sql, '\n') + 1, context->out); /* without the line on its licence */
    } else if (values->schema) {
        result = answer_schema(&answer, database, second, &message);
    } else {
        result = answer_sql(context, &answer, database, operands, &message);
    }
    database_close(database);
    return result == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_query = {
    .name = "query",
    .arguments = "DB SQL",
    .summary = "run SQL over a trace, read-only: table, CSV or JSON",
    .purpose =
        "Runs SQL statements over a trace and prints their rows. SQL '-' reads them from standard "
        "input. --schema lists the views and what they mean, --schema NAME the columns of one, and --examples "
        "ten questions with their SQL. Begin with callsite_total, peak, total, timeline, allocations, events, leak and "
        "frame. Nothing can be written. SQL that computes longer than --timeout is ended. On a terminal texts are cut "
        "to its width; --vertical, CSV and JSON have them whole.",
    .examples =
        "  varve query trace.db 'SELECT user_function, user_line, bytes FROM peak ORDER BY bytes DESC LIMIT 5'\n"
        "  varve query trace.db --schema callsite_total\n",
    .options = options,
    .reads_database = true,
    .hides = true,
    .values_bytes = sizeof(struct values),
    .operands_min = 1,
    .operands_max = 2,
    .streams = true,
    .run = command_query_run,
};
