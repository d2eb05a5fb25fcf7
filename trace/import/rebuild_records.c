/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of a rebuild's records. Its primary key is (ring, number), so records that come twice are dropped on the
 * way in, and reading in order needs no sorting. The file lies in the folder of the rebuild and goes with it: no
 * journal, no syncs. Called by rebuild.c and rebuild_finish.c.
 */
#include "trace/import/rebuild.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rebuild_records {
    sqlite3 *db;
    sqlite3_stmt *insert, *all, *one;
    sqlite3_stmt *reading; /* `all` or `one` */
};

static int rebuild_records_fail(const struct rebuild_records *records, struct varve_message *message)
{
    int reason = records->db != NULL ? sqlite3_system_errno(records->db) : 0;
    int code = records->db != NULL ? sqlite3_errcode(records->db) : SQLITE_NOMEM;
    int error = code == SQLITE_NOMEM                                                             ? VARVE_ERROR_NO_MEMORY
                : code == SQLITE_FULL || reason == ENOSPC || reason == EFBIG || reason == EDQUOT ? VARVE_ERROR_FULL
                                                                                                 : VARVE_ERROR_IO;
    return varve_message_set(message, error, "cannot store the records temporarily: %s%s%s",
                             records->db != NULL ? sqlite3_errmsg(records->db) : "no memory", reason != 0 ? ": " : "",
                             reason != 0 ? strerror(reason) : "");
}

int rebuild_records_open(const char *path, struct rebuild_records **records_out, struct varve_message *message)
{
    static const char setup[] =
        "PRAGMA page_size = 16384; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -65536;"
        "CREATE TABLE record (ring INTEGER, number INTEGER, bytes BLOB, PRIMARY KEY (ring, number)) WITHOUT ROWID;"
        "BEGIN";
    struct rebuild_records *records = calloc(1, sizeof(*records));
    *records_out = NULL;
    if (records == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to rebuild a recording");
    }
    if (sqlite3_open_v2(path, &records->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) != SQLITE_OK ||
        sqlite3_exec(records->db, setup, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(records->db, "INSERT OR IGNORE INTO record VALUES (?1, ?2, ?3)", -1, &records->insert,
                           NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(records->db, "SELECT ring, number, bytes FROM record ORDER BY ring, number", -1,
                           &records->all, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(records->db, "SELECT ring, number, bytes FROM record WHERE ring = ?1 ORDER BY number", -1,
                           &records->one, NULL) != SQLITE_OK) {
        int error = rebuild_records_fail(records, message);
        rebuild_records_close(records);
        return error;
    }
    *records_out = records;
    return VARVE_OK;
}

void rebuild_records_close(struct rebuild_records *records)
{
    if (records != NULL) {
        sqlite3_finalize(records->insert);
        sqlite3_finalize(records->all);
        sqlite3_finalize(records->one);
        sqlite3_close(records->db);
        free(records);
    }
}

int rebuild_records_add(struct rebuild_records *records, uint32_t ring, uint64_t number,
                        const struct varve_record *record, struct varve_message *message)
{
    sqlite3_bind_int64(records->insert, 1, ring);
    sqlite3_bind_int64(records->insert, 2, (int64_t)number);
    sqlite3_bind_blob(records->insert, 3, record, sizeof(*record), SQLITE_STATIC);
    int step = sqlite3_step(records->insert);
    sqlite3_reset(records->insert);
    return step == SQLITE_DONE ? VARVE_OK : rebuild_records_fail(records, message);
}

int rebuild_records_seek(struct rebuild_records *records, uint32_t ring, struct varve_message *message)
{
    records->reading = ring == REBUILD_RINGS_ALL ? records->all : records->one;
    sqlite3_reset(records->reading);
    if (ring != REBUILD_RINGS_ALL && sqlite3_bind_int64(records->reading, 1, ring) != SQLITE_OK) {
        return rebuild_records_fail(records, message);
    }
    return VARVE_OK;
}

int rebuild_records_next(struct rebuild_records *records, struct rebuild_row *row, struct varve_message *message)
{
    int step = sqlite3_step(records->reading);
    if (step == SQLITE_DONE) {
        sqlite3_reset(records->reading);
        return VARVE_ERROR_NOT_FOUND;
    }
    if (step != SQLITE_ROW) {
        return rebuild_records_fail(records, message);
    }
    if (sqlite3_column_bytes(records->reading, 2) != (int)sizeof(row->record)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "the records were changed by another program");
    }
    row->ring = (uint32_t)sqlite3_column_int64(records->reading, 0);
    row->number = (uint64_t)sqlite3_column_int64(records->reading, 1);
    memcpy(&row->record, sqlite3_column_blob(records->reading, 2), sizeof(row->record));
    return VARVE_OK;
}
