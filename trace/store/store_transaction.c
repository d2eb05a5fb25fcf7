/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transaction under way, its prepared statements, and the log that repeats the rows of the small tables after a
 * rollback. store.c, small_tables.c and derived_tables.c call it.
 */
#include "trace/store/store_transaction.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/schema.h"
#include "trace/store/store.h"

#include "statements_generated.h"

#include <assert.h>
#include <string.h>

/* ---- statements ---- */

#define STATEMENT_ROW(name, table, sql) {table, sql},
static const struct {
    const char *table, *sql;
} rows[] = {STATEMENT_LIST(STATEMENT_ROW)};

sqlite3_stmt *rows_statement(struct store *store, enum store_statement statement, unsigned count)
{
    sqlite3_stmt **prepared = &store->statements[statement];
    if (*prepared == NULL) {
        *prepared = schema_prepare(store->db, schema_row_sql(rows[statement].sql, rows[statement].table, count));
    }
    return *prepared;
}

/* ---- failure ---- */

int writer_fail(struct store *store, const char *what, struct varve_message *message)
{
    int error = schema_error(store->db, store->path, what, message);
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_reset(store->statements[i]);
    }
    /* SQLite may have rolled back by itself; a second ROLLBACK would only report that. */
    if (!sqlite3_get_autocommit(store->db)) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    store->is_in_transaction = false;
    store->must_replay = true;
    store->has_derived = false;
    rows_forget_symbols(store);
    return error;
}

int writer_execute(struct store *store, const char *sql, struct varve_message *message)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return writer_fail(store, "cannot write", message);
    }
    return VARVE_OK;
}

/* ---- rows, and the log of them ---- */

static int row_execute(struct store *store, enum store_statement statement, const struct store_value *values,
                       unsigned count, struct varve_message *message)
{
    sqlite3_stmt *prepared = rows_statement(store, statement, count);
    if (prepared == NULL) {
        return writer_fail(store, "cannot write", message);
    }
    for (unsigned i = 0; i < count; i++) {
        if (values[i].is_null) {
            sqlite3_bind_null(prepared, (int)i + 1);
        } else if (values[i].blob != NULL) {
            sqlite3_bind_blob64(prepared, (int)i + 1, values[i].blob, (sqlite3_uint64)values[i].integer, SQLITE_STATIC);
        } else if (values[i].text != NULL) {
            sqlite3_bind_text(prepared, (int)i + 1, values[i].text, -1, SQLITE_STATIC);
        } else {
            sqlite3_bind_int64(prepared, (int)i + 1, values[i].integer);
        }
    }
    int result = sqlite3_step(prepared);
    if (result != SQLITE_DONE) {
        return writer_fail(store, "cannot write", message);
    }
    sqlite3_reset(prepared);
    return VARVE_OK;
}

struct log_row {
    uint32_t statement;
    uint32_t count;
};

static void log_put(struct store_log *log, const void *data, size_t bytes)
{
    memcpy(log->bytes + log->used, data, bytes);
    log->used += bytes;
}

static int log_append(struct store_log *log, enum store_statement statement, const struct store_value *values,
                      unsigned count)
{
    size_t bytes = sizeof(struct log_row) + count * sizeof(*values);
    for (unsigned i = 0; i < count; i++) {
        bytes += values[i].text != NULL ? strlen(values[i].text) + 1 : 0;
    }
    if (!ARRAY_GROW(log->bytes, log->capacity, log->used + bytes)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    const struct log_row row = {.statement = statement, .count = count};
    log_put(log, &row, sizeof(row));
    for (unsigned i = 0; i < count; i++) {
        log_put(log, &values[i], sizeof(values[i]));
        if (values[i].text != NULL) {
            log_put(log, values[i].text, strlen(values[i].text) + 1);
        }
    }
    return VARVE_OK;
}

static int rows_replay(struct store *store, struct varve_message *message)
{
    struct store_value values[ROW_VALUES_MAX];
    int error = VARVE_OK;
    for (size_t at = 0; at < store->log.used && error == VARVE_OK;) {
        struct log_row row;
        memcpy(&row, store->log.bytes + at, sizeof(row));
        at += sizeof(row);
        assert(row.count <= ROW_VALUES_MAX);
        for (unsigned i = 0; i < row.count; i++) {
            memcpy(&values[i], store->log.bytes + at, sizeof(values[i]));
            at += sizeof(values[i]);
            if (values[i].text != NULL) {
                values[i].text = store->log.bytes + at;
                at += strlen(values[i].text) + 1;
            }
        }
        error = row_execute(store, (enum store_statement)row.statement, values, row.count, message);
    }
    return error;
}

/* ---- begin and commit ---- */

int writer_begin(struct store *store, struct varve_message *message)
{
    if (store->is_in_transaction) {
        return VARVE_OK;
    }
    int error = store_wait(store, message);
    if (error != VARVE_OK) {
        return error;
    }
    /* Not IMMEDIATE, which would begin to read the image as well. */
    if (sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) {
        return writer_fail(store, "cannot begin to write", message);
    }
    store->is_in_transaction = true;
    if (!store->must_replay) {
        return VARVE_OK;
    }
    error = rows_replay(store, message);
    store->must_replay = error != VARVE_OK;
    return error;
}

int writer_commit(struct store *store, struct varve_message *message)
{
    if (store->behind.image != NULL) {
        commit_behind(store);
    } else if (commit_image(store, store->image)) {
        image_clear(store->image);
    } else {
        return writer_fail(store, "cannot write", message);
    }
    store->is_in_transaction = false;
    store->log.used = 0;
    return VARVE_OK;
}

int rows_write(struct store *store, enum store_statement statement, const struct store_value *values, unsigned count)
{
    int error = writer_begin(store, &store->failure);
    if (error == VARVE_OK && statement <= STATEMENT_POSITION) {
        error = log_append(&store->log, statement, values, count);
    }
    return error == VARVE_OK ? row_execute(store, statement, values, count, &store->failure) : error;
}
