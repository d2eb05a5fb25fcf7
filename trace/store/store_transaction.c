/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transaction under way, its prepared statements, and the log that repeats the rows of the small tables after a
 * rollback. store.c, small_tables.c and derived_tables.c call it.
 */
#include "trace/store/store_transaction.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/store/schema.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES_MAX 24U /* of a row */

/* ---- statements ---- */

/* What ends with VALUES takes the values of all columns, in the order of the schema. */
static const char *const statement_sql[STATEMENT_BATCH] = {
    [STATEMENT_META] = "INSERT OR REPLACE INTO meta VALUES",
    [STATEMENT_PROCESS] = "INSERT OR REPLACE INTO process VALUES",
    [STATEMENT_RSS] = "INSERT OR REPLACE INTO rss_sample VALUES",
    [STATEMENT_THREAD] = "INSERT OR REPLACE INTO thread VALUES",
    [STATEMENT_THREAD_GONE] =
        ("UPDATE thread SET emitted = ?2 + ?4, stored = ?2, spilled = ?3, lost = ?4, unreadable = ?4,"
         " uncommitted = 0, damage = ?6, end_ns = ?5 WHERE id = ?1"),
    [STATEMENT_STAT] = "INSERT OR REPLACE INTO stats VALUES",
    [STATEMENT_UNRECORDED] = ("INSERT INTO unrecorded_program VALUES (?, ?, ?)"
                              " ON CONFLICT(path, reason) DO UPDATE SET count = count + excluded.count"),
    [STATEMENT_UNRECORDED_NONE] = "DELETE FROM unrecorded_program WHERE count <= ?",
    [STATEMENT_ANCHOR] = "INSERT OR REPLACE INTO clock_anchor VALUES",
    [STATEMENT_ORIGIN] = "INSERT OR REPLACE INTO callsite_origin VALUES",
    [STATEMENT_DEVICE] = "INSERT OR REPLACE INTO device VALUES",
    [STATEMENT_STREAM] = "INSERT OR REPLACE INTO stream VALUES",
    [STATEMENT_POOL] = "INSERT OR REPLACE INTO pool VALUES",
    [STATEMENT_POSITION] = "INSERT OR REPLACE INTO ring_position VALUES",
    [STATEMENT_MODULE] = "INSERT OR REPLACE INTO module VALUES",
    [STATEMENT_SYMBOL] = "INSERT INTO symbol VALUES",
    [STATEMENT_MAIN_END] = "UPDATE process SET main_end_seq = ?2, main_end_ns = ?3 WHERE id = ?1",
    [STATEMENT_TOTAL_STAT] = "INSERT INTO total_stat VALUES",
    [STATEMENT_SIZE_STAT] = "INSERT INTO size_stat VALUES",
    [STATEMENT_GROWTH] = ("INSERT INTO callsite_growth VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                          " live_allocations = live_allocations + excluded.live_allocations,"
                          " live_bytes = live_bytes + excluded.live_bytes"),
    [STATEMENT_HOST_PEAK] = "INSERT INTO host_peak VALUES",
    [STATEMENT_WORK] = ("INSERT INTO work SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, 1.0 * (?8 - ?4) / (?6 - ?2),"
                        " 1.0 * (?9 - ?5) / (?6 - ?2)"),
    [STATEMENT_CALLSITE_STAT] = "INSERT INTO callsite_stat VALUES",
    [STATEMENT_CALLSITE_SHARE] =
        ("INSERT INTO callsite_share VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
         " ON CONFLICT DO UPDATE SET allocations = allocations + excluded.allocations,"
         " frees = frees + excluded.frees, bytes = bytes + excluded.bytes,"
         " live_allocations = live_allocations + excluded.live_allocations,"
         " live_bytes = live_bytes + excluded.live_bytes,"
         " peak_allocations = peak_allocations + excluded.peak_allocations,"
         " peak_bytes = peak_bytes + excluded.peak_bytes, temporary = temporary + excluded.temporary,"
         " lifetime_ns = lifetime_ns + excluded.lifetime_ns"),
    [STATEMENT_SAMPLE] = "INSERT INTO sample VALUES",
    [STATEMENT_SEGMENT] = "INSERT INTO segment VALUES",
    [STATEMENT_LADDER_PEAK] = "INSERT INTO ladder_peak_stat VALUES",
    [STATEMENT_OOM] = "INSERT INTO oom VALUES",
    [STATEMENT_MARK] = "INSERT INTO mark VALUES",
    [STATEMENT_KEYFRAME] = "INSERT INTO keyframe VALUES",
    [STATEMENT_PROCESS_DEVICE] = "INSERT OR REPLACE INTO process_device VALUES",
    [STATEMENT_DEVICE_CALL] = "INSERT INTO device_call_stat VALUES",
    [STATEMENT_DEVICE_MEMORY] = "INSERT INTO device_memory VALUES",
    [STATEMENT_STREAM_STAT] = "INSERT INTO stream_stat VALUES",
    [STATEMENT_DEVICE_EVENT] = "INSERT INTO device_event VALUES",
    [STATEMENT_REMAT_EVENT] = "INSERT INTO remat_event VALUES",
    [STATEMENT_OPERATOR] = "INSERT INTO operator_stat VALUES",
    [STATEMENT_EVICTION] = "INSERT INTO eviction_stat VALUES",
    [STATEMENT_REMAT_STORAGE] = "INSERT INTO remat_storage_stat VALUES",
    [STATEMENT_REMAT_BUDGET] = "INSERT INTO remat_budget VALUES",
    [STATEMENT_REMAT_FAILURE] = "INSERT INTO remat_failure_stat VALUES",
    [STATEMENT_REMAT_BLOCKED] = "INSERT INTO remat_blocked_stat VALUES",
};

sqlite3_stmt *rows_statement(struct store *store, enum store_statement statement, unsigned count)
{
    static const char marks[] = "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?";
    _Static_assert(sizeof(marks) == 2 * VALUES_MAX, "a mark for each value");
    const char *sql =
        statement >= STATEMENT_BATCH ? image_insert_sql(statement - STATEMENT_BATCH) : statement_sql[statement];
    if (store->statements[statement] != NULL) {
        return store->statements[statement];
    }
    assert(count <= VALUES_MAX);
    char whole[128];
    if (count > 0 && strchr(sql, '?') == NULL) {
        snprintf(whole, sizeof(whole), "%s (%.*s)", sql, (int)(2 * count - 1), marks);
        sql = whole;
    }
    sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &store->statements[statement], NULL);
    return store->statements[statement];
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
    struct store_value values[VALUES_MAX];
    int error = VARVE_OK;
    for (size_t at = 0; at < store->log.used && error == VARVE_OK;) {
        struct log_row row;
        memcpy(&row, store->log.bytes + at, sizeof(row));
        at += sizeof(row);
        assert(row.count <= VALUES_MAX);
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
    /* Not IMMEDIATE, which would begin to read the batch as well. */
    if (sqlite3_exec(store->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) {
        return writer_fail(store, "cannot begin to write", message);
    }
    store->is_in_transaction = true;
    if (!store->must_replay) {
        return VARVE_OK;
    }
    int error = rows_replay(store, message);
    store->must_replay = error != VARVE_OK;
    return error;
}

int writer_insert_batch(struct store *store, struct varve_message *message)
{
    int error = writer_begin(store, message);
    if (error != VARVE_OK) {
        return error;
    }
    image_seal(store->image);
    for (unsigned i = 0; i < IMAGE_TABLE_LIMIT; i++) {
        if (image_rows(store->image, i) > 0) {
            sqlite3_stmt *prepared = rows_statement(store, STATEMENT_BATCH + i, 0);
            if (prepared == NULL || sqlite3_step(prepared) != SQLITE_DONE) {
                return writer_fail(store, "cannot write", message);
            }
            sqlite3_reset(prepared);
        }
    }
    return VARVE_OK;
}

int writer_commit(struct store *store, struct varve_message *message)
{
    if (sqlite3_exec(store->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
        return writer_fail(store, "cannot commit", message);
    }
    store->is_in_transaction = false;
    store->log.used = 0;
    image_clear(store->image);
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
