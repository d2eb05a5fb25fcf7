/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last steps of a database: indexes, statistics for the query planner, and from two files one that opens
 * read-only anywhere. The collector calls it after derive_finish and sites_finish.
 */
#include "trace/store/store.h"

static void report(store_progress progress, void *context, const char *stage, uint64_t done)
{
    if (progress != NULL) {
        progress(context, stage, done, 3);
    }
}

/* Leave WAL. Only possible when no reader has the database open, so it waits for them, but not for ever. */
static int wal_fold(struct store *store, struct varve_message *message)
{
    sqlite3_stmt *statement;
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    if (sqlite3_prepare_v2(store->db, "PRAGMA journal_mode = DELETE", -1, &statement, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot fold the log in", message);
    }
    int result = sqlite3_step(statement);
    bool is_folded = result == SQLITE_ROW &&
                     sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "delete") == 0;
    int code = VARVE_OK;
    if (result != SQLITE_ROW) {
        code =
            schema_error(store->db, store->path, "complete, but its -wal file must stay beside it", message);
    } else if (!is_folded) {
        code = varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s: complete, but its -wal file must stay beside it", store->path);
    }
    sqlite3_finalize(statement);
    return code;
}

/* Statistics for the query planner. ANALYZE of everything would read all events again only to count them,
 * and they are numbered without a gap: the last number is the count. A sample of each index is enough to
 * choose between so few. */
static int statistics_gather(struct store *store, struct varve_message *message)
{
    static const char query[] = "SELECT group_concat('ANALYZE main.' || name, ';') FROM main.sqlite_schema"
                                " WHERE type = 'table' AND name <> 'event' AND name NOT LIKE 'sqlite%'";
    sqlite3_stmt *statement = NULL;
    char *analyze = NULL;
    int code = writer_execute(store, "PRAGMA analysis_limit = 1000", message);
    if (code != VARVE_OK) {
        return code;
    }
    if (sqlite3_prepare_v2(store->db, query, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        analyze = sqlite3_mprintf("%s;"
                                  "DELETE FROM main.sqlite_stat1 WHERE tbl = 'event';"
                                  "INSERT INTO main.sqlite_stat1(tbl, stat)"
                                  " SELECT 'event', CAST(max(seq) AS TEXT) FROM event HAVING max(seq) > 0",
                                  sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    code = analyze != NULL ? writer_execute(store, analyze, message)
                           : writer_fail(store, "cannot gather statistics", message);
    sqlite3_free(analyze);
    return code;
}

int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    if (store->is_complete) {
        return wal_fold(store, message); /* its collector died after the commit that ends this function */
    }
    if (!store->has_derived) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: derive_finish comes before", store->path);
    }
    report(progress, context, "indexes", 0);
    int code = writer_begin(store, message);
    if (code == VARVE_OK && schema_index(store->db, store->path, message) != VARVE_OK) {
        code = writer_fail(store, "cannot build indexes", message);
    }
    report(progress, context, "statistics", 1);
    if (code == VARVE_OK) {
        code = statistics_gather(store, message);
    }
    if (code == VARVE_OK) {
        code = writer_execute(store,
                              "DELETE FROM ring_position; DELETE FROM callsite_origin;"
                              "DELETE FROM meta WHERE key = '" STORE_META_COMMITS "';"
                              "INSERT OR REPLACE INTO meta VALUES ('complete', 1);",
                              message);
    }
    if (code == VARVE_OK) {
        code = store_commit(store, NULL, 0, message);
    }
    report(progress, context, "fold", 2);
    if (code == VARVE_OK) {
        code = wal_fold(store, message);
    }
    report(progress, context, "done", 3);
    return code;
}
