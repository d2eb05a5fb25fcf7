/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end: a new file gets what SQLite has written, then the pages of the large tables (row_pages.c), then indexes and
 * statistics, and takes the place of the database, which is untouched until then: whoever continues a recording whose
 * collector died on the way begins there again.
 */
#include "trace/store/store.h"

#include "trace/store/event_log.h"
#include "trace/store/function_totals.h"
#include "trace/store/row_pages.h"
#include "trace/store/schema.h"
#include "trace/store/store_transaction.h"
#include "base/error.h"
#include "base/file_error.h"

#include "statements_generated.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PATH_BYTES (4096 + 16)

/* The file that is made. */
struct whole {
    char path[PATH_BYTES];
    int fd;
    sqlite3 *db;
};

static void store_report(store_progress progress, void *context, uint64_t done)
{
    if (progress != NULL) {
        progress(context, "summarising", done, 3);
    }
}

/* Leave WAL, whose files would be taken for those of the new one. Only possible when no reader has the database open,
 * so it waits for them, but not for ever. */
static int journal_leave(struct store *store, struct varve_message *message)
{
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    sqlite3_stmt *statement;
    if (store->is_private) {
        return VARVE_OK;
    }
    if (sqlite3_prepare_v2(store->db, sql_journal_leave, -1, &statement, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot checkpoint the write-ahead log", message);
    }
    int error = VARVE_OK;
    if (sqlite3_step(statement) != SQLITE_ROW) {
        error = schema_error(store->db, store->path, "cannot be completed while it is read", message);
    } else if (sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "delete") != 0) {
        error = varve_message_set(message, VARVE_ERROR_BUSY, "%s: cannot be completed while it is read", store->path);
    }
    sqlite3_finalize(statement);
    return error;
}

/* ---- the new file ---- */

static int whole_error(const struct whole *whole, int reason, struct varve_message *message)
{
    return varve_message_set(message, file_error(reason), "%s: %s", whole->path, strerror(reason));
}

static int whole_create(struct whole *whole, struct varve_message *message)
{
    unlink(whole->path); /* of a collector that died */
    whole->fd = open(whole->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return whole->fd >= 0 && flock(whole->fd, LOCK_EX | LOCK_NB) == 0 ? VARVE_OK : whole_error(whole, errno, message);
}

/* All pages as they are now. */
static int whole_copy(const struct whole *whole, struct store *store, struct varve_message *message)
{
    sqlite3_backup *backup = sqlite3_backup_init(whole->db, "main", store->db, "main");
    int result = backup != NULL ? sqlite3_backup_step(backup, -1) : SQLITE_ERROR;
    if (backup != NULL && sqlite3_backup_finish(backup) != SQLITE_OK) {
        result = SQLITE_ERROR;
    }
    return result == SQLITE_DONE ? VARVE_OK : schema_error(whole->db, whole->path, "cannot write", message);
}

static int root_find(const struct whole *whole, const char *table, uint32_t *root_out)
{
    sqlite3_stmt *query = NULL;
    sqlite3_prepare_v2(whole->db, sql_root, -1, &query, NULL);
    sqlite3_bind_text(query, 1, table, -1, SQLITE_STATIC);
    const bool is_found = sqlite3_step(query) == SQLITE_ROW;
    *root_out = is_found ? (uint32_t)sqlite3_column_int64(query, 0) : 0;
    sqlite3_finalize(query);
    return is_found ? VARVE_OK : VARVE_ERROR_DATABASE;
}

static void whole_database_close(struct whole *whole)
{
    sqlite3_close(whole->db);
    whole->db = NULL;
}

/* The small tables, then the pages of the others, while SQLite does not look. */
static int whole_fill(struct whole *whole, struct store *store, struct varve_message *message)
{
    int64_t page_count = 0;
    uint32_t roots[ROW_TABLE_LIMIT] = {0};
    int error = schema_open(whole->path, &whole->db, message);
    VARVE_THEN(error, schema_pragmas(whole->db, whole->path, true, message));
    VARVE_THEN(error, whole_copy(whole, store, message));
    VARVE_THEN(error, schema_query(whole->db, whole->path, sql_pages, &page_count, message));
    for (unsigned i = 0; i < ROW_TABLE_LIMIT && error == VARVE_OK; i++) {
        error = root_find(whole, row_table_names[i], &roots[i]);
    }
    whole_database_close(whole);
    if (error == VARVE_OK) {
        uint32_t pages = (uint32_t)page_count;
        error = row_pages_append(store->pages, whole->fd, &pages, roots);
        VARVE_THEN(error, row_pages_append(store->allocations.pages, whole->fd, &pages, roots));
        if (error != VARVE_OK) {
            varve_message_set(message, error, "%s: cannot write: %s", store->path, varve_strerror(error));
        }
    }
    return error;
}

static int whole_execute(const struct whole *whole, const char *sql, struct varve_message *message)
{
    return schema_execute(whole->db, whole->path, sql, "cannot write", message);
}

static int statistics_gather(const struct whole *whole, struct varve_message *message)
{
    int error = whole_execute(whole, "PRAGMA analysis_limit = 1000", message);
    sqlite3_stmt *statement = NULL;
    if (error == VARVE_OK && (sqlite3_prepare_v2(whole->db, sql_analyze, -1, &statement, NULL) != SQLITE_OK ||
                              sqlite3_step(statement) != SQLITE_ROW)) {
        error = schema_error(whole->db, whole->path, "cannot gather statistics", message);
    }
    VARVE_THEN(error, whole_execute(whole, (const char *)sqlite3_column_text(statement, 0), message));
    sqlite3_finalize(statement);
    VARVE_THEN(error, whole_execute(whole, sql_analyze_numbered, message));
    return error;
}

/* What follows from the rows. */
static int whole_complete(struct whole *whole, store_progress progress, void *context, struct varve_message *message)
{
    int error = schema_open(whole->path, &whole->db, message);
    VARVE_THEN(error, schema_pragmas(whole->db, whole->path, true, message));
    VARVE_THEN(error, whole_execute(whole, "BEGIN", message));
    VARVE_THEN(error, whole_execute(whole, sql_remat_values, message));
    VARVE_THEN(error, schema_index(whole->db, whole->path, message));
    store_report(progress, context, 2);
    VARVE_THEN(error, statistics_gather(whole, message));
    VARVE_THEN(error, whole_execute(whole, sql_complete, message));
    VARVE_THEN(error, whole_execute(whole, "COMMIT", message));
    VARVE_THEN(error, whole_execute(whole, sql_journal_unlock, message));
    return error;
}

/* The store is of the new file from here on. */
static int whole_take(struct whole *whole, struct store *store, struct varve_message *message)
{
    if (rename(whole->path, store->path) != 0) {
        return whole_error(whole, errno, message);
    }
    sqlite3_close(store->db);
    close(store->lock_fd);
    store->db = whole->db;
    store->lock_fd = whole->fd;
    return VARVE_OK;
}

static int whole_make(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    struct whole whole = {.fd = -1};
    snprintf(whole.path, sizeof(whole.path), "%s-whole", store->path);
    int error = whole_create(&whole, message);
    VARVE_THEN(error, whole_fill(&whole, store, message));
    store_report(progress, context, 1);
    VARVE_THEN(error, whole_complete(&whole, progress, context, message));
    VARVE_THEN(error, whole_take(&whole, store, message));
    if (error != VARVE_OK) {
        whole_database_close(&whole);
        unlink(whole.path);
        if (whole.fd >= 0) {
            close(whole.fd);
        }
    }
    return error;
}

int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    if (store->is_complete) {
        return VARVE_OK;
    }
    if (!store->has_derived) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: derive_finish comes before", store->path);
    }
    store_report(progress, context, 0);
    int error = functions_write(store); /* while a thread writes what was committed before */
    VARVE_THEN(error, store_sync(store, message));
    VARVE_THEN(error, journal_leave(store, message));
    VARVE_THEN(error, whole_make(store, progress, context, message));
    if (error == VARVE_OK && store->event_log != NULL) {
        event_log_remove(store->event_log);
    }
    store->is_complete = error == VARVE_OK;
    store_report(progress, context, 3);
    return error;
}
