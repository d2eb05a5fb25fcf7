/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve query`: a user's SQL over a trace, as an aligned table, CSV or JSON. All statements are compiled and
 * judged before the first runs, so that SQL which would write, or is wrong, gives one line and no rows. Rows
 * are written as they come; a table is aligned by the first rows.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/base/memory.h"
#include "analysis/output/progress.h"
#include "analysis/output/table.h"
#include "analysis/query/db.h"
#include "analysis/query/kept.h"
#include "trace/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_PER_PORTION 1000
#define SQL_BYTES_MAX (16U << 20)

struct values {
    const char *null_text;
    bool json;
    bool csv;
    bool no_header;
};

static const struct option_spec options[] = {
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values (RFC 4180; NULL is an empty field)",
     offsetof(struct values, csv), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "for each statement that gives rows an array of objects, a row on a line",
     offsetof(struct values, json), 0, 0, NULL},
    {"no-header", 0, OPTION_FLAG, NULL, "leave out the names of the columns",
     offsetof(struct values, no_header), 0, 0, NULL},
    {"null", 0, OPTION_TEXT, "TEXT", "show NULL as TEXT (default: NULL in tables, nothing in CSV)",
     offsetof(struct values, null_text), 0, 0, NULL},
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
static char *value_text(const struct value *value, const char *null_text)
{
    char *digits;
    char *text;

    if (value->type == VALUE_NULL) {
        return memory_copy_text(null_text);
    }
    if (value->type == VALUE_BLOB) {
        digits = hexadecimal(value->text, value->bytes);
        text = memory_resize(NULL, value->bytes * 2 + 4);
        sprintf(text, "X'%s'", digits);
        free(digits);
        return text;
    }
    return memory_copy_text(value->text);
}

static void print_table(const struct answer *answer, struct cursor *cursor)
{
    const struct values *values = answer->values;
    int count = cursor_column_count(cursor);
    struct table_column *columns = memory_resize(NULL, (size_t)count * sizeof(columns[0]));
    bool with_titles = !values->no_header;
    struct table table;

    for (int i = 0; i < count; i++) {
        columns[i] =
            (struct table_column){memory_copy_text(with_titles ? cursor_column_name(cursor, i) : ""), true};
    }
    table_init(&table, columns, (size_t)count);
    while (cursor_next(cursor)) {
        for (int i = 0; i < count; i++) {
            struct value value = cursor_value(cursor, i);
            char *text = value_text(&value, values->null_text != NULL ? values->null_text : "NULL");

            if (value.type == VALUE_TEXT || value.type == VALUE_BLOB) {
                columns[i].is_right = false;
            }
            table_add(&table, text);
            free(text);
        }
        if (table.cell_count == (size_t)count * ROWS_PER_PORTION) {
            begin_output(answer);
            table_print(&table, answer->out, with_titles);
            with_titles = false;
        }
    }
    if ((table.cell_count > 0 || with_titles) && database_error(cursor->database, NULL) == VARVE_OK) {
        begin_output(answer);
        table_print(&table, answer->out, with_titles);
    }
    table_free(&table);
    for (int i = 0; i < count; i++) {
        free((void *)(uintptr_t)columns[i].title);
    }
    free(columns);
}

static void print_csv(const struct answer *answer, struct cursor *cursor)
{
    const struct values *values = answer->values;
    FILE *out = answer->out;
    int count = cursor_column_count(cursor);
    bool is_row = cursor_next(cursor);

    begin_output(answer);
    for (int i = 0; i < count && !values->no_header && database_error(cursor->database, NULL) == VARVE_OK;
         i++) {
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
                char *text = value_text(&value, "");

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

static void print_json(const struct answer *answer, struct cursor *cursor)
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
                print_json(answer, &cursor);
            } else if (answer->values->csv) {
                print_csv(answer, &cursor);
            } else {
                print_table(answer, &cursor);
            }
        }
        cursor_close(&cursor);
        result = database_error(database, message);
        if (result != VARVE_OK) {
            return result;
        }
    }
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *sql = operands->items[1];
    char *from_stdin = NULL;
    struct database *database;
    struct varve_message message = {""};
    struct progress progress;
    char kept[240];
    const struct answer answer = {.out = context->out, .values = values, .progress = &progress};
    int result;

    if (values->json && values->csv) {
        return command_fail(context, "--json and --csv are mutually exclusive");
    }
    if (database_open(operands->items[0], DATABASE_ANY, &database, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    if (strcmp(sql, "-") == 0) {
        sql = from_stdin = read_stdin(&message);
    }
    result = sql == NULL ? VARVE_ERROR_IO : command_hide(context, database, operands, &message);
    if (result == VARVE_OK) {
        result = check_statements(database, sql, &message);
    }
    if (result == VARVE_OK) {
        if (!database_is_complete(database)) {
            fprintf(context->err,
                    "varve query: warning: the recording was cut off; derived tables may be empty\n");
        }
        report_kept_words(kept, sizeof(kept), database);
        if (kept[0] != '\0') {
            fprintf(context->err, "varve query: the database has %s\n", kept);
        }
        command_progress(context, &progress, false);
        database_watch(database, &progress, "query");
        result = run_statements(&answer, database, sql, &message);
        progress_end(&progress);
    }
    free(from_stdin);
    database_close(database);
    return result == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_query = {
    .name = "query",
    .arguments = "DB SQL",
    .summary = "run SQL over a trace, read-only: table, CSV or JSON",
    .purpose = "Runs SQL statements over a trace and prints their rows. SQL '-' reads them from standard "
               "input. The views are the place to begin: events, allocations, leak, total, peak, "
               "callsite_total, frame, timeline, data_loss; SELECT name, meaning FROM "
               "event_kind explains the events. Nothing can be written. SQL that "
               "computes longer than --timeout is ended.",
    .examples =
        "  varve query trace.db 'SELECT function, bytes FROM callsite_total ORDER BY bytes DESC LIMIT 5'\n"
        "  varve query --csv trace.db - < question.sql > answer.csv\n",
    .options = options,
    .reads_database = true,
    .hides = true,
    .values_bytes = sizeof(struct values),
    .operands_min = 2,
    .operands_max = 2,
    .streams = true,
    .run = run,
};
