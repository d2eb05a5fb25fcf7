/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the small tables on their way into the database: they wait, packed, until a commit binds them to prepared
 * statements. store.c, small_tables.c and derived_tables.c write them, commit_behind.c commits them.
 */
#include "trace/store/store_transaction.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"

#include "statements_generated.h"

#include <string.h>

/* ---- statements ---- */

#define STATEMENT_ROW(name, table, sql) {table, sql},
static const struct {
    const char *table, *sql;
} statements[] = {STATEMENT_LIST(STATEMENT_ROW)};

sqlite3_stmt *rows_statement(struct store *store, enum store_statement statement, unsigned count)
{
    sqlite3_stmt **prepared = &store->statements[statement];
    if (*prepared == NULL) {
        *prepared =
            schema_prepare(store->db, schema_row_sql(statements[statement].sql, statements[statement].table, count));
    }
    return *prepared;
}

/* ---- rows wait ---- */

/* At the end of a recording, and in an import, there are more rows than should wait. */
#define ROWS_BYTES_MAX ((size_t)4 << 20)

struct waiting_row {
    uint16_t statement;
    uint16_t count;
};

enum value_kind { VALUE_IS_NULL, VALUE_IS_INTEGER, VALUE_IS_TEXT, VALUE_IS_BLOB };

/* A value, without the bytes of a text or blob, which follow it. */
struct waiting_value {
    int64_t integer; /* or how many bytes follow */
    uint8_t kind;
};

#define WAITING_VALUE_BYTES 9U /* of these are kept */

static struct waiting_value waiting_of(const struct store_value *value)
{
    if (value->is_null) {
        return (struct waiting_value){.kind = VALUE_IS_NULL};
    }
    if (value->blob != NULL) {
        return (struct waiting_value){value->integer, VALUE_IS_BLOB};
    }
    return value->text != NULL ? (struct waiting_value){(int64_t)strlen(value->text), VALUE_IS_TEXT}
                               : (struct waiting_value){value->integer, VALUE_IS_INTEGER};
}

static size_t bytes_behind(const struct waiting_value *value)
{
    return value->kind >= VALUE_IS_TEXT ? (size_t)value->integer : 0;
}

static void rows_put(struct store_rows *rows, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(rows->bytes + rows->used, data, bytes);
        rows->used += bytes;
    }
}

static int rows_append(struct store_rows *rows, enum store_statement statement, const struct store_value *values,
                       unsigned count)
{
    struct waiting_value waiting[ROW_VALUES_MAX];
    const struct waiting_row row = {.statement = (uint16_t)statement, .count = (uint16_t)count};
    size_t bytes = sizeof(row) + (size_t)count * WAITING_VALUE_BYTES;
    for (unsigned i = 0; i < count; i++) {
        waiting[i] = waiting_of(&values[i]);
        bytes += bytes_behind(&waiting[i]);
    }
    if (!ARRAY_GROW(rows->bytes, rows->capacity, rows->used + bytes)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    rows_put(rows, &row, sizeof(row));
    for (unsigned i = 0; i < count; i++) {
        rows_put(rows, &waiting[i], WAITING_VALUE_BYTES);
        rows_put(rows, values[i].blob != NULL ? values[i].blob : values[i].text, bytes_behind(&waiting[i]));
    }
    return VARVE_OK;
}

int rows_write(struct store *store, enum store_statement statement, const struct store_value *values, unsigned count)
{
    int error = rows_append(&store->rows, statement, values, count);
    /* Events that wait must be committed with the positions of their rings. */
    const bool may_commit = store->event_log == NULL || store->pending == 0;
    return error == VARVE_OK && may_commit && store->rows.used >= ROWS_BYTES_MAX
               ? store_commit(store, NULL, 0, &store->failure)
               : error;
}

/* ---- and are written ---- */

static const char *value_bind(sqlite3_stmt *prepared, int at, const char *from)
{
    struct waiting_value value;
    memcpy(&value, from, WAITING_VALUE_BYTES);
    from += WAITING_VALUE_BYTES;
    switch ((enum value_kind)value.kind) {
    case VALUE_IS_NULL:
        sqlite3_bind_null(prepared, at);
        break;
    case VALUE_IS_INTEGER:
        sqlite3_bind_int64(prepared, at, value.integer);
        break;
    case VALUE_IS_TEXT:
        sqlite3_bind_text64(prepared, at, from, (sqlite3_uint64)value.integer, SQLITE_STATIC, SQLITE_UTF8);
        break;
    case VALUE_IS_BLOB:
        sqlite3_bind_blob64(prepared, at, from, (sqlite3_uint64)value.integer, SQLITE_STATIC);
        break;
    }
    return from + bytes_behind(&value);
}

bool rows_insert(struct store *store, const struct store_rows *rows)
{
    const char *at = rows->bytes;
    bool is_done = true;
    while (is_done && at < rows->bytes + rows->used) {
        struct waiting_row row;
        memcpy(&row, at, sizeof(row));
        at += sizeof(row);
        sqlite3_stmt *prepared = rows_statement(store, (enum store_statement)row.statement, row.count);
        for (int i = 1; prepared != NULL && i <= row.count; i++) {
            at = value_bind(prepared, i, at);
        }
        is_done = prepared != NULL && sqlite3_step(prepared) == SQLITE_DONE;
        /* After an error its reason is the connection's; the caller resets. */
        if (is_done) {
            sqlite3_reset(prepared);
        }
    }
    return is_done;
}

int writer_execute(struct store *store, const char *sql, struct varve_message *message)
{
    int error = store_sync(store, message);
    return error == VARVE_OK ? schema_execute(store->db, store->path, sql, "cannot write", message) : error;
}
