/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CSV (RFC 4180) of tables and views, column by column as SQL has them: NULL is an empty field, an empty text is
 * quoted, blobs are X'…'. Nearly all values of a trace are integers, so these are written here, without asking
 * SQLite for their text.
 */
#include "analysis/export/export.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What SQL users rely on. Keyframes are blobs for varve itself; views that rebuild a state (hole, ladder) are
 * asked for by --view. */
static const char *const names[] = {
    "help",
    "meta",
    "recording",
    "process",
    "thread",
    "device",
    "module",
    "symbol",
    "stack_node",
    "callsite",
    "events",
    "allocations",
    "segment",
    "storages",
    "mark",
    "oom",
    "oom_retry",
    "block_op",
    "op",
    "eviction",
    "rematerialization",
    "total",
    "total_process",
    "size_total",
    "callsite_total",
    "callsite_total_process",
    "timeline",
    "timeline_process",
    "rss",
    "rss_total",
    "peak",
    "peak_time",
    "fragmentation",
    "ladder_peak",
    "device_call",
    "device_failure",
    "stream_total",
    "data_loss",
    "stats",
};

/* A piece of the file that is being filled. */
struct row_buffer {
    char text[1 << 16];
    size_t used;
    FILE *out;
};

static void flush(struct row_buffer *buffer)
{
    fwrite(buffer->text, 1, buffer->used, buffer->out);
    buffer->used = 0;
}

static void export_csv_put_integer(struct row_buffer *buffer, int64_t value)
{
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char digits[20];
    if (buffer->used + sizeof(digits) + 2 > sizeof(buffer->text)) {
        flush(buffer);
    }
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        buffer->text[buffer->used++] = '-';
    }
    while (count > 0) {
        buffer->text[buffer->used++] = digits[--count];
    }
}

static void put_byte(struct row_buffer *buffer, char byte)
{
    if (buffer->used == sizeof(buffer->text)) {
        flush(buffer);
    }
    buffer->text[buffer->used++] = byte;
}

static bool export_csv_is_ascii(const char *text, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && (signed char)text[i] > 0) {
        i++;
    }
    return i == bytes;
}

/* Readers of tables take files as UTF-8, and most of them stop at NUL. */
static void put_utf8(struct row_buffer *buffer, const struct value *value)
{
    char *copy = memory_resize(NULL, 3 * value->bytes);
    size_t bytes = format_utf8(copy, value->text, value->bytes, false);
    flush(buffer);
    csv_text(buffer->out, copy, bytes);
    free(copy);
}

static void export_csv_put_text(struct row_buffer *buffer, const struct value *value)
{
    if (!export_csv_is_ascii(value->text, value->bytes)) {
        put_utf8(buffer, value);
        return;
    }
    if (buffer->used + value->bytes > sizeof(buffer->text)) {
        flush(buffer);
    }
    if (value->bytes <= sizeof(buffer->text) && csv_is_plain(value->text, value->bytes)) {
        memcpy(buffer->text + buffer->used, value->text, value->bytes);
        buffer->used += value->bytes;
    } else {
        flush(buffer);
        csv_text(buffer->out, value->text, value->bytes);
    }
}

static void export_csv_put_value(struct row_buffer *buffer, struct cursor *cursor, int column)
{
    struct value value;
    int64_t integer;
    char *digits;
    switch (cursor_scalar(cursor, column, &integer)) {
    case VALUE_NULL:
        return;
    case VALUE_INTEGER:
        export_csv_put_integer(buffer, integer);
        return;
    case VALUE_BLOB:
        flush(buffer);
        value = cursor_value(cursor, column);
        digits = hexadecimal(value.text, value.bytes);
        fprintf(buffer->out, "X'%s'", digits);
        free(digits);
        return;
    case VALUE_REAL:
    case VALUE_TEXT:
        value = cursor_value(cursor, column);
        export_csv_put_text(buffer, &value);
        return;
    }
}

static void export_csv_write_rows(struct cursor *cursor, FILE *out)
{
    struct row_buffer *buffer = memory_resize(NULL, sizeof(*buffer));
    int count = cursor_column_count(cursor);
    buffer->out = out;
    buffer->used = 0;
    for (int i = 0; i < count; i++) {
        csv_field(out, cursor_column_name(cursor, i));
        fputc(i + 1 < count ? ',' : '\n', out);
    }
    while (cursor_next(cursor)) {
        for (int i = 0; i < count; i++) {
            export_csv_put_value(buffer, cursor, i);
            put_byte(buffer, i + 1 < count ? ',' : '\n');
        }
    }
    flush(buffer);
    free(buffer);
}

static int write_view(struct database *database, const char *name, FILE *out, struct varve_message *message)
{
    if (strchr(name, '"') != NULL || !database_has(database, name, NULL)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "%s has no table or view '%.100s'; varve query --schema lists them",
                                 database_path(database), name);
    }
    char sql[256];
    snprintf(sql, sizeof(sql), "SELECT * FROM \"%.200s\"", name);
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    if (cursor.statement != NULL) {
        export_csv_write_rows(&cursor, out);
    }
    cursor_close(&cursor);
    return database_error(database, message);
}

static int export_csv(const void *request_untyped, FILE *out, struct varve_message *message)
{
    const struct export_request *request = request_untyped;
    return write_view(request->database, request->view, out, message);
}

static int export_csv_folder(const void *request_untyped, const char *folder, struct varve_message *message)
{
    const struct export_request *request = request_untyped;
    int error = VARVE_OK;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && error == VARVE_OK; i++) {
        char path[4096 + 64];
        snprintf(path, sizeof(path), "%s/%s.csv", folder, names[i]);
        FILE *out = fopen(path, "wbxe");
        error = out != NULL ? write_view(request->database, names[i], out, message) : VARVE_OK;
        bool is_whole = out != NULL && !ferror(out);
        is_whole = out != NULL && fclose(out) == 0 && is_whole;
        if (!is_whole && error == VARVE_OK) {
            error =
                varve_message_set(message, VARVE_ERROR_IO, "%s.csv: cannot be written: %s", names[i], strerror(errno));
        }
    }
    return error;
}

const struct export_format export_format_csv = {
    .name = "csv",
    .meaning = "A folder with a file NAME.csv for each table and view that readers of databases rely on, or one of "
               "any name (--view). RFC 4180 with a line of names; NULL is an empty field, an empty text is quoted.",
    .write = export_csv,
    .write_folder = export_csv_folder,
};
