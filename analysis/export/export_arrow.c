/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A statement's rows, column by column, in the buffers that Arrow wants, which the consumer then owns. The types of the
 * columns are fixed with the first batch, before which nobody is told of them. SQLite's own interface is used for
 * values, since a call for each through database.c would cost more than the value; and where a key is known, an
 * aggregate function gets the rows of a range at once, since a sqlite3_step and a sqlite3_column_value for each cost a
 * third of the time.
 */
#include "analysis/export/export_arrow.h"

#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "base/monotonic.h"

#include <errno.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_ROWS_MAX (INT64_C(1) << 24)
/* A batch ends with the row that reaches this. Offsets have 31 bits; a wrong byte becomes three. */
#define BATCH_TEXT_BYTES ((size_t)1 << 28)
#define VALUE_BYTES_MAX (1 << 28)
#define PROGRESS_STEPS 100000
#define UNDECIDED '\0'

struct column {
    char *name;
    char type;        /* l, g, u, z, or UNDECIDED: nothing but NULL up to now */
    bool is_fixed;    /* its type no longer changes */
    int64_t nulls;    /* in this batch, as all of these: */
    uint8_t *present; /* a bit a row */
    union {
        int64_t *integers; /* l */
        double *reals;     /* g */
        int32_t *offsets;  /* u, z: one more than rows */
    };
    char *bytes; /* u, z */
    size_t used, capacity;
};

struct stream {
    struct database *database;
    struct cursor cursor;
    struct column *columns;
    int column_count;
    size_t batch_rows, rows; /* rows: in this batch, */
    uint64_t rows_before;    /* and in all before it */
    int64_t timeout_ns, begin_ns;
    struct cursor ranges, keys; /* with a key: the rows of a range as one aggregate; the first key from one on */
    bool has_key;
    int64_t next, last;
    bool has_ended, has_first; /* has_first: the first batch waits to be fetched */
    int error;
    struct varve_message message;
};

static int export_arrow_fail(struct stream *stream, int error, const char *reason)
{
    stream->error = varve_message_set(&stream->message, error, "%s: %s", database_path(stream->database), reason);
    return stream->error;
}

/* ---- buffers ---- */

static void column_drop(struct column *column)
{
    free(column->present);
    free(column->integers);
    free(column->bytes);
    column->present = NULL;
    column->integers = NULL;
    column->bytes = NULL;
    column->used = column->capacity = 0;
    column->nulls = 0;
}

/* Values of an undecided column take no memory. */
static bool column_allocate(struct column *column, size_t rows)
{
    if (column->present == NULL) {
        column->present = calloc(rows / 8 + 1, 1);
    }
    if (column->type != UNDECIDED && column->integers == NULL) {
        column->integers = calloc(rows + 1, sizeof(*column->integers));
    }
    return column->present != NULL && (column->type == UNDECIDED || column->integers != NULL);
}

static bool has_text(const struct column *column)
{
    return column->type == 'u' || column->type == 'z';
}

static void column_set_null(struct column *column, size_t row)
{
    column->nulls++;
    if (has_text(column)) {
        column->offsets[row + 1] = (int32_t)column->used;
    } else if (column->type != UNDECIDED) {
        column->integers[row] = 0;
    }
}

static bool column_reserve(struct column *column, size_t bytes)
{
    if (column->bytes == NULL || column->capacity - column->used < bytes) {
        size_t capacity = 2 * (column->capacity + bytes) + 4096;
        char *grown = realloc(column->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        column->bytes = grown;
        column->capacity = capacity;
    }
    return true;
}

static bool export_arrow_is_ascii(const char *text, size_t bytes)
{
    uint64_t word, all = 0;
    size_t i;
    for (i = 0; i + sizeof(word) <= bytes; i += sizeof(word)) {
        memcpy(&word, text + i, sizeof(word));
        all |= word;
    }
    for (; i < bytes; i++) {
        all |= (uint64_t)(unsigned char)text[i];
    }
    return (all & UINT64_C(0x8080808080808080)) == 0;
}

static bool column_set_text(struct column *column, size_t row, const char *text, size_t bytes)
{
    bool is_copied = column->type == 'z' || export_arrow_is_ascii(text, bytes);
    if (!column_reserve(column, is_copied ? bytes : 3 * bytes)) {
        return false;
    }
    if (!is_copied) {
        column->used += format_utf8(column->bytes + column->used, text, bytes, true);
    } else if (bytes > 0) {
        memcpy(column->bytes + column->used, text, bytes);
        column->used += bytes;
    }
    column->offsets[row + 1] = (int32_t)column->used;
    return true;
}

static bool column_set_hexadecimal(struct column *column, size_t row, const unsigned char *blob, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (!column_reserve(column, 2 * bytes)) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        column->bytes[column->used++] = digits[blob[i] >> 4];
        column->bytes[column->used++] = digits[blob[i] & 15];
    }
    column->offsets[row + 1] = (int32_t)column->used;
    return true;
}

/* ---- types ---- */

static bool is_present(const struct column *column, size_t row)
{
    return (column->present[row / 8] >> row % 8 & 1) != 0;
}

/* Numbers of the rows before `row` as text: as SQLite writes integers, and doubles so that they read back the same. */
static bool numbers_to_text(struct column *column, size_t rows, size_t row)
{
    struct column made = {.type = 'u'};
    made.integers = calloc(rows + 1, sizeof(*made.integers));
    if (made.integers == NULL) {
        return false;
    }
    bool is_done = true;
    char text[40];
    for (size_t i = 0; i < row && is_done; i++) {
        int length = 0;
        if (is_present(column, i)) {
            length = column->type == 'l' ? snprintf(text, sizeof(text), "%" PRId64, column->integers[i])
                                         : snprintf(text, sizeof(text), "%.17g", column->reals[i]);
        }
        is_done = column_set_text(&made, i, text, (size_t)length);
    }
    free(column->integers);
    column->integers = made.integers;
    column->bytes = made.bytes;
    column->used = made.used;
    column->capacity = made.capacity;
    column->type = 'u';
    return is_done;
}

/* Give a column of the first batch the type that a value of SQLite's type `found` needs too. */
static bool column_widen(struct column *column, size_t rows, size_t row, int found)
{
    static const char types[] = {
        [SQLITE_INTEGER] = 'l', [SQLITE_FLOAT] = 'g', [SQLITE_TEXT] = 'u', [SQLITE_BLOB] = 'z'};
    if (column->type == UNDECIDED) {
        column->type = types[found];
        return column_allocate(column, rows);
    }
    if (found == SQLITE_FLOAT) {
        for (size_t i = 0; i < row; i++) {
            column->reals[i] = (double)column->integers[i];
        }
        column->type = 'g';
        return true;
    }
    return numbers_to_text(column, rows, row);
}

static bool export_arrow_fits(const struct column *column, int found)
{
    return has_text(column) || (column->type == 'l' && found == SQLITE_INTEGER) ||
           (column->type == 'g' && (found == SQLITE_INTEGER || found == SQLITE_FLOAT));
}

static int refuse_value(struct stream *stream, const struct column *column, int found)
{
    static const char *const names[] = {[SQLITE_INTEGER] = "an integer",
                                        [SQLITE_FLOAT] = "a real number",
                                        [SQLITE_TEXT] = "text",
                                        [SQLITE_BLOB] = "a blob"};
    char reason[300];
    snprintf(reason, sizeof(reason),
             "row %" PRIu64 ": column %.100s has %s among %s; CAST(… AS TEXT) or AS REAL makes them alike",
             stream->rows_before + stream->rows + 1, column->name, names[found],
             column->type == 'l' ? "integers" : "real numbers");
    return export_arrow_fail(stream, VARVE_ERROR_DATABASE, reason);
}

/* ---- rows ---- */

/* A value that is no integer of an integer column. */
static int append_other(struct stream *stream, struct column *column, sqlite3_value *value, int found)
{
    size_t row = stream->rows;
    if (found == SQLITE_NULL) {
        column_set_null(column, row);
        return VARVE_OK;
    }
    bool is_done = true;
    if (column->type == UNDECIDED || !export_arrow_fits(column, found)) {
        if (column->is_fixed) {
            return refuse_value(stream, column, found);
        }
        is_done = column_widen(column, stream->batch_rows, row, found);
    }
    if (!is_done) {
        return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
    }
    column->present[row / 8] |= (uint8_t)(1U << row % 8);
    if (column->type == 'l') {
        column->integers[row] = sqlite3_value_int64(value);
    } else if (column->type == 'g') {
        column->reals[row] = sqlite3_value_double(value);
    } else if (found == SQLITE_BLOB && column->type == 'u') {
        const unsigned char *blob = sqlite3_value_blob(value);
        is_done = column_set_hexadecimal(column, row, blob, (size_t)sqlite3_value_bytes(value));
    } else {
        const char *text = sqlite3_value_blob(value);
        is_done = column_set_text(column, row, text, (size_t)sqlite3_value_bytes(value));
    }
    return is_done ? VARVE_OK : export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
}

static void export_arrow_append(struct stream *stream, int index, sqlite3_value *value)
{
    struct column *column = &stream->columns[index];
    size_t row = stream->rows;
    int found = sqlite3_value_type(value);
    if (found == SQLITE_INTEGER && column->type == 'l') {
        column->integers[row] = sqlite3_value_int64(value);
        column->present[row / 8] |= (uint8_t)(1U << row % 8);
    } else {
        append_other(stream, column, value, found);
    }
}

/* Nobody else uses the connection, so values may be read where they are. */
static void append_row(struct stream *stream)
{
    for (int i = 0; i < stream->column_count && stream->error == VARVE_OK; i++) {
        export_arrow_append(stream, i, sqlite3_column_value(stream->cursor.statement, i));
    }
    stream->rows++;
}

/* The step of the aggregate function. */
static void export_arrow_take_row(sqlite3_context *context, int count, sqlite3_value **values)
{
    struct stream *stream = sqlite3_user_data(context);
    if (stream->error == VARVE_OK && (stream->rows >= stream->batch_rows || count != stream->column_count)) {
        export_arrow_fail(stream, VARVE_ERROR_DATABASE, "the key has the same value twice");
    }
    for (int i = 0; i < count && stream->error == VARVE_OK; i++) {
        export_arrow_append(stream, i, values[i]);
    }
    stream->rows++;
}

static void export_arrow_take_end(sqlite3_context *context)
{
    sqlite3_result_null(context);
}

static bool export_arrow_is_full(const struct stream *stream)
{
    if (stream->rows >= stream->batch_rows) {
        return true;
    }
    for (int i = 0; i < stream->column_count; i++) {
        if (stream->columns[i].used >= BATCH_TEXT_BYTES) {
            return true;
        }
    }
    return false;
}

static int watch(void *context)
{
    const struct stream *stream = context;
    return stream->timeout_ns > 0 && (int64_t)monotonic_computed_ns() - stream->begin_ns > stream->timeout_ns;
}

static int fail_step(struct stream *stream, int code)
{
    if (stream->error != VARVE_OK) {
        return stream->error;
    }
    char reason[200];
    if (code == SQLITE_INTERRUPT) {
        snprintf(reason, sizeof(reason), "no end after %g s of computing: a larger timeout gives it more",
                 (double)stream->timeout_ns / 1e9);
        return export_arrow_fail(stream, VARVE_ERROR_DATABASE, reason);
    }
    return export_arrow_fail(stream, code == SQLITE_NOMEM ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_DATABASE,
                             sqlite3_errmsg(sqlite3_db_handle(stream->cursor.statement)));
}

static void export_arrow_read_rows(struct stream *stream)
{
    int code = SQLITE_ROW;
    while (!export_arrow_is_full(stream) && stream->error == VARVE_OK) {
        code = sqlite3_step(stream->cursor.statement);
        if (code != SQLITE_ROW) {
            break;
        }
        append_row(stream);
    }
    if (stream->error == VARVE_OK && code != SQLITE_ROW) {
        stream->has_ended = true;
        if (code != SQLITE_DONE) {
            fail_step(stream, code);
        }
    }
}

/* One row of a statement about keys; false: there is none, or an error. */
static bool step_once(struct stream *stream, struct cursor *cursor, int64_t from, int64_t to)
{
    cursor_reset(cursor);
    sqlite3_bind_int64(cursor->statement, 1, from);
    sqlite3_bind_int64(cursor->statement, 2, to);
    int code = sqlite3_step(cursor->statement);
    if (code != SQLITE_ROW) {
        fail_step(stream, code);
    }
    return code == SQLITE_ROW && stream->error == VARVE_OK;
}

/* Ranges of as many keys as a batch has rows, without the gaps between them. */
static void export_arrow_read_range(struct stream *stream)
{
    int64_t width = (int64_t)stream->batch_rows - 1;
    while (stream->rows == 0 && !stream->has_ended) {
        if (!step_once(stream, &stream->keys, stream->next, stream->last) ||
            sqlite3_column_type(stream->keys.statement, 0) != SQLITE_INTEGER) {
            stream->has_ended = true;
        } else {
            int64_t from = cursor_integer(&stream->keys, 0);
            bool is_last = (uint64_t)stream->last - (uint64_t)from <= (uint64_t)width;
            int64_t to = is_last ? stream->last : from + width;
            stream->has_ended = !step_once(stream, &stream->ranges, from, to) || is_last;
            stream->next = stream->has_ended ? stream->next : to + 1;
        }
    }
}

/* The next batch into the columns; none of their rows is anybody's yet. */
static int read_batch(struct stream *stream)
{
    stream->rows = 0;
    stream->begin_ns = (int64_t)monotonic_computed_ns(); /* another thread may call this time */
    for (int i = 0; i < stream->column_count; i++) {
        if (!column_allocate(&stream->columns[i], stream->batch_rows)) {
            return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
        }
    }
    if (stream->has_key) {
        export_arrow_read_range(stream);
    } else {
        export_arrow_read_rows(stream);
    }
    return stream->error;
}

/* ---- what Arrow's consumers get ---- */

static void release_column(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_buffers; i++) {
        free((void *)array->buffers[i]);
    }
    free(array->buffers);
    array->release = NULL;
}

static void release_batch(struct ArrowArray *array)
{
    for (int64_t i = 0; array->children != NULL && i < array->n_children; i++) {
        if (array->children[i]->release != NULL) { /* the consumer may have taken it out */
            array->children[i]->release(array->children[i]);
        }
    }
    free(array->children);
    free(array->buffers);
    free(array->private_data);
    array->release = NULL;
}

/* The column's buffers become the array's. */
static bool give_column(struct column *column, int64_t rows, struct ArrowArray *array)
{
    const void **buffers = calloc(3, sizeof(*buffers));
    if (buffers == NULL || (has_text(column) && !column_reserve(column, 1))) {
        free(buffers);
        return false;
    }
    buffers[0] = column->present;
    buffers[1] = column->integers;
    buffers[2] = column->bytes;
    *array = (struct ArrowArray){.length = rows,
                                 .null_count = column->nulls,
                                 .n_buffers = has_text(column) ? 3 : 2,
                                 .buffers = buffers,
                                 .release = release_column};
    column->present = NULL;
    column->integers = NULL;
    column->bytes = NULL;
    column_drop(column);
    return true;
}

static bool give_batch(struct stream *stream, struct ArrowArray *out)
{
    size_t count = (size_t)stream->column_count;
    struct ArrowArray *arrays = calloc(count, sizeof(*arrays));
    *out = (struct ArrowArray){.length = (int64_t)stream->rows,
                               .n_buffers = 1,
                               .buffers = calloc(1, sizeof(*out->buffers)),
                               .children = calloc(count, sizeof(*out->children)),
                               .release = release_batch,
                               .private_data = arrays};
    if (arrays == NULL || out->buffers == NULL || out->children == NULL) {
        release_batch(out);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!give_column(&stream->columns[i], (int64_t)stream->rows, &arrays[i])) {
            release_batch(out);
            return false;
        }
        out->children[out->n_children++] = &arrays[i];
    }
    stream->rows_before += stream->rows;
    return true;
}

static int get_next(struct ArrowArrayStream *arrow, struct ArrowArray *out)
{
    struct stream *stream = arrow->private_data;
    *out = (struct ArrowArray){.release = NULL};
    if (stream->error == VARVE_OK && !stream->has_first && !stream->has_ended) {
        read_batch(stream);
    } else if (!stream->has_first) {
        stream->rows = 0;
    }
    stream->has_first = false;
    if (stream->error == VARVE_OK && stream->rows > 0 && !give_batch(stream, out)) {
        export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
    }
    return stream->error == VARVE_OK ? 0 : stream->error == VARVE_ERROR_NO_MEMORY ? ENOMEM : EIO;
}

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; schema->children != NULL && i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    free(schema->children);
    free((char *)schema->name);
    free(schema->private_data);
    schema->release = NULL;
}

static const char *format_of(const struct column *column)
{
    return column->type == 'g' ? "g" : column->type == 'u' ? "u" : column->type == 'z' ? "z" : "l";
}

static int get_schema(struct ArrowArrayStream *arrow, struct ArrowSchema *out)
{
    struct stream *stream = arrow->private_data;
    size_t count = (size_t)stream->column_count;
    struct ArrowSchema *schemas = calloc(count, sizeof(*schemas));
    *out = (struct ArrowSchema){.format = "+s",
                                .name = strdup(""),
                                .children = calloc(count, sizeof(*out->children)),
                                .release = release_schema,
                                .private_data = schemas};
    if (schemas == NULL || out->name == NULL || out->children == NULL) {
        release_schema(out);
        return ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        schemas[i] = (struct ArrowSchema){.format = format_of(&stream->columns[i]),
                                          .name = strdup(stream->columns[i].name),
                                          .flags = ARROW_FLAG_NULLABLE,
                                          .release = release_schema};
        out->children[out->n_children++] = &schemas[i];
        if (schemas[i].name == NULL) {
            release_schema(out);
            return ENOMEM;
        }
    }
    return 0;
}

static const char *get_last_error(struct ArrowArrayStream *arrow)
{
    const struct stream *stream = arrow->private_data;
    return stream->error != VARVE_OK ? stream->message.text : NULL;
}

static void stream_close(struct stream *stream)
{
    for (int i = 0; i < stream->column_count; i++) {
        column_drop(&stream->columns[i]);
        free(stream->columns[i].name);
    }
    free(stream->columns);
    if (stream->database != NULL) {
        cursor_close(&stream->cursor);
        cursor_close(&stream->ranges);
        cursor_close(&stream->keys);
        database_close(stream->database);
    }
    free(stream);
}

static void release_stream(struct ArrowArrayStream *arrow)
{
    stream_close(arrow->private_data);
    arrow->release = NULL;
}

/* ---- opening ---- */

static int bind(struct stream *stream, const struct varve_query_options *options)
{
    sqlite3_stmt *statement = stream->cursor.statement;
    int expected = sqlite3_bind_parameter_count(statement);
    if ((size_t)expected != options->parameter_count) {
        char reason[120];
        snprintf(reason, sizeof(reason), "the statement has %d parameter(s), but got %zu value(s)", expected,
                 options->parameter_count);
        return export_arrow_fail(stream, VARVE_ERROR_INVALID, reason);
    }
    for (int i = 0; i < expected; i++) {
        const struct varve_query_value *value = &options->parameters[i];
        if (value->type == VARVE_QUERY_INTEGER) {
            sqlite3_bind_int64(statement, i + 1, value->integer);
        } else if (value->type == VARVE_QUERY_REAL) {
            sqlite3_bind_double(statement, i + 1, value->real);
        } else if (value->type == VARVE_QUERY_TEXT &&
                   sqlite3_bind_text(statement, i + 1, value->text, -1, SQLITE_TRANSIENT) == SQLITE_NOMEM) {
            return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
        }
    }
    return VARVE_OK;
}

static char declared_type(const char *name)
{
    static const struct {
        const char *name;
        char type;
    } types[] = {{"INTEGER", 'l'}, {"REAL", 'g'}, {"TEXT", 'u'}, {"BLOB", 'z'}};
    for (size_t i = 0; name != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(name, types[i].name) == 0) {
            return types[i].type;
        }
    }
    return UNDECIDED;
}

static int make_columns(struct stream *stream, const char *types)
{
    sqlite3_stmt *statement = stream->cursor.statement;
    int count = sqlite3_column_count(statement);
    stream->columns = calloc((size_t)count, sizeof(*stream->columns));
    if (stream->columns == NULL) {
        return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
    }
    if (types != NULL && strlen(types) != (size_t)count) {
        return export_arrow_fail(stream, VARVE_ERROR_INVALID, "not one type for each column of the statement");
    }
    for (int i = 0; i < count; i++) {
        struct column *column = &stream->columns[i];
        const char *name = cursor_column_name(&stream->cursor, i);
        bool is_given = types != NULL && types[i] != '?';
        if (is_given && strchr("lguz", types[i]) == NULL) {
            return export_arrow_fail(stream, VARVE_ERROR_INVALID, "a column's type is none of l, g, u, z, ?");
        }
        column->name = calloc(3 * strlen(name) + 1, 1);
        if (column->name == NULL) {
            return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
        }
        format_utf8(column->name, name, strlen(name), true);
        column->is_fixed = is_given;
        column->type = is_given ? types[i] : declared_type(sqlite3_column_decltype(statement, i));
        stream->column_count = i + 1;
    }
    return VARVE_OK;
}

/* The name in quotes, at `to`. */
static size_t quote(char *to, const char *name)
{
    size_t used = 0;
    to[used++] = '"';
    for (; *name != '\0'; name++) {
        to[used++] = *name;
        if (*name == '"') {
            to[used++] = '"';
        }
    }
    to[used++] = '"';
    to[used] = '\0';
    return used;
}

static bool open_keyed(struct stream *stream, struct cursor *cursor, const char *sql)
{
    const char *rest = sql;
    int error = cursor_open_user(cursor, stream->database, &rest, &stream->message);
    if (error != VARVE_OK) {
        stream->error = error;
    }
    return error == VARVE_OK;
}

/* The key is a column, all columns are numbers, and no two have the same name: SQLite would take the first of them, and
 * what is no name for text. Returns the length of their names, quoted; 0 after an error. */
static size_t check_names(struct stream *stream, const char *key)
{
    size_t bytes = 0;
    bool has_key = false;
    for (int i = 0; i < stream->column_count; i++) {
        const char *name = stream->columns[i].name;
        for (int other = 0; other < i; other++) {
            if (strcmp(name, stream->columns[other].name) == 0) {
                export_arrow_fail(stream, VARVE_ERROR_INVALID, "with a key all columns need different names");
                return 0;
            }
        }
        if (stream->columns[i].type != 'l' && stream->columns[i].type != 'g') {
            export_arrow_fail(stream, VARVE_ERROR_INVALID, "with a key all types must be given, and be l or g");
            return 0;
        }
        has_key = has_key || strcmp(name, key) == 0;
        bytes += 2 * strlen(name) + 8;
    }
    if (!has_key) {
        export_arrow_fail(stream, VARVE_ERROR_INVALID, "the key is none of the columns");
        return 0;
    }
    return bytes;
}

/* SELECT varve_rows("a", "b", …) FROM (…) WHERE "a" BETWEEN ?1 AND ?2, and the first "a" of such. */
static int prepare_key(struct stream *stream, const struct varve_query_options *options)
{
    sqlite3 *sqlite = sqlite3_db_handle(stream->cursor.statement);
    size_t names = check_names(stream, options->key);
    size_t bytes = names + 2 * strlen(options->key) + strlen(options->sql) + 200;
    if (names == 0) {
        return stream->error;
    }
    char *key = malloc(2 * strlen(options->key) + 3);
    char *sql = malloc(bytes);
    if (key == NULL || sql == NULL ||
        sqlite3_create_function_v2(sqlite, "varve_rows", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY, stream, NULL,
                                   export_arrow_take_row, export_arrow_take_end, NULL) != SQLITE_OK) {
        export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
    } else {
        quote(key, options->key);
        snprintf(sql, bytes, "SELECT min(%s) FROM (%s) WHERE %s BETWEEN ?1 AND ?2", key, options->sql, key);
        open_keyed(stream, &stream->keys, sql);
        size_t used = (size_t)sprintf(sql, "SELECT varve_rows(");
        for (int i = 0; i < stream->column_count; i++) {
            used += (size_t)sprintf(sql + used, i > 0 ? ", " : "");
            used += quote(sql + used, stream->columns[i].name);
        }
        snprintf(sql + used, bytes - used, ") FROM (%s) WHERE %s BETWEEN ?1 AND ?2", options->sql, key);
        if (stream->error == VARVE_OK) {
            open_keyed(stream, &stream->ranges, sql);
        }
    }
    free(key);
    free(sql);
    stream->has_key = true;
    stream->next = options->first;
    stream->last = options->last;
    stream->has_ended = options->first > options->last;
    return stream->error;
}

static int export_arrow_prepare(struct stream *stream, const struct varve_query_options *options)
{
    const char *sql = options->sql;
    int error = cursor_open_user(&stream->cursor, stream->database, &sql, &stream->message);
    if (error != VARVE_OK) {
        stream->error = error;
        return error;
    }
    if (stream->cursor.statement == NULL || sqlite3_column_count(stream->cursor.statement) == 0 ||
        sql[strspn(sql, " \t\r\n;")] != '\0') {
        return export_arrow_fail(stream, VARVE_ERROR_INVALID, "not one statement that has rows");
    }
    sqlite3 *sqlite = sqlite3_db_handle(stream->cursor.statement);
    sqlite3_limit(sqlite, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    sqlite3_progress_handler(sqlite, PROGRESS_STEPS, watch, stream);
    if (bind(stream, options) != VARVE_OK || make_columns(stream, options->types) != VARVE_OK) {
        return stream->error;
    }
    return options->key != NULL ? prepare_key(stream, options) : VARVE_OK;
}

static int export_arrow_start(struct stream *stream, const struct varve_query_options *options)
{
    if (options->batch_rows < 1 || options->batch_rows > BATCH_ROWS_MAX) {
        return export_arrow_fail(stream, VARVE_ERROR_INVALID, "a batch has 1 to 2^24 rows");
    }
    stream->batch_rows = (size_t)options->batch_rows;
    stream->timeout_ns = options->timeout_ns;
    if (export_arrow_prepare(stream, options) != VARVE_OK || read_batch(stream) != VARVE_OK) {
        return stream->error;
    }
    stream->has_first = true;
    for (int i = 0; i < stream->column_count; i++) {
        struct column *column = &stream->columns[i];
        column->is_fixed = true;
        if (column->type == UNDECIDED) {
            column->type = 'l'; /* all of them NULL */
            if (!column_allocate(column, stream->batch_rows)) {
                return export_arrow_fail(stream, VARVE_ERROR_NO_MEMORY, "out of memory");
            }
        }
    }
    return VARVE_OK;
}

int varve_query_arrow(const char *path, const struct varve_query_options *options, struct ArrowArrayStream *stream_out,
                      struct varve_message *message)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "%s: out of memory", path);
    }
    int error = database_open(path, DATABASE_ANY, &stream->database, message);
    if (error == VARVE_OK) {
        error = export_arrow_start(stream, options);
        if (error != VARVE_OK) {
            varve_message_set(message, error, "%s", stream->message.text);
        }
    }
    if (error != VARVE_OK) {
        stream_close(stream);
        return error;
    }
    *stream_out = (struct ArrowArrayStream){.get_schema = get_schema,
                                            .get_next = get_next,
                                            .get_last_error = get_last_error,
                                            .release = release_stream,
                                            .private_data = stream};
    return VARVE_OK;
}
