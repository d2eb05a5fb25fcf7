/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace database is: settings of the connection, tables and views, the vocabulary that explains its
 * codes, the indexes made at the end, and what SQLite's errors mean to our callers. store.c calls it.
 */
#include "trace/store/schema.h"

#include "trace/event_list.h"
#include "trace/event_names.h"
#include "trace/model/domain.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/writer.h"

#include <errno.h>
#include <stdio.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

/* Events are appended and never read again: a larger cache only makes more page faults. The sort of an index
 * takes as much memory as the cache may, so that gets more at the end. */
#define CACHE_KIB 8192
#define CACHE_SORT_KIB 49152

/* A quota, a limit on file sizes and a full tmpfs behind a memory map are full disks too, but to SQLite they
 * are errors like others; the reason is with the file that was written. */
static bool schema_is_full(sqlite3 *db, int extended)
{
    int reasons[3] = {sqlite3_system_errno(db), 0, 0};
    if (extended == SQLITE_IOERR_SHMSIZE) {
        return true;
    }
    sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &reasons[1]);
    sqlite3_file *log = NULL;
    sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    if (log != NULL && log->pMethods != NULL) {
        log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &reasons[2]);
    }
    for (int i = 0; i < 3; i++) {
        if (reasons[i] == ENOSPC || reasons[i] == EDQUOT || reasons[i] == EFBIG) {
            return true;
        }
    }
    return false;
}

int schema_error(sqlite3 *db, const char *path, const char *what, struct varve_message *message)
{
    int extended = sqlite3_extended_errcode(db);
    int error = VARVE_ERROR_DATABASE;
    switch (extended & 0xff) {
    case SQLITE_FULL:
        return varve_message_set(message, VARVE_ERROR_FULL, "%s: %s: no space left on the device", path, what);
    case SQLITE_IOERR:
        error = schema_is_full(db, extended) ? VARVE_ERROR_FULL : VARVE_ERROR_IO;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        error = VARVE_ERROR_BUSY;
        break;
    case SQLITE_NOMEM:
        error = VARVE_ERROR_NO_MEMORY;
        break;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        error = VARVE_ERROR_FORMAT;
        break;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
        error = VARVE_ERROR_PERMISSION;
        break;
    default:
        break;
    }
    return varve_message_set(message, error, "%s: %s: %s", path, what,
                             error == VARVE_ERROR_FULL ? varve_strerror(error) : sqlite3_errmsg(db));
}

void schema_configure(void)
{
    /* One thread uses a connection at a time. Each saves a few percent; once SQLite is initialized they are
     * refused. */
    sqlite3_config(SQLITE_CONFIG_MULTITHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sqlite3_initialize();
}

static int schema_execute(sqlite3 *db, const char *path, const char *sql, const char *what,
                          struct varve_message *message)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return schema_error(db, path, what, message);
    }
    return VARVE_OK;
}

int schema_pragmas(sqlite3 *db, const char *path, bool is_private, struct varve_message *message)
{
    sqlite3_busy_timeout(db, SCHEMA_BUSY_MS); /* readers may watch; only the end of the recording must wait for them */
    int error = schema_execute(
        db, path,
        "PRAGMA page_size = " TEXT(
            SCHEMA_PAGE_BYTES) ";"
                               "PRAGMA synchronous = OFF;" /* safe against SIGKILL, not against a power loss */
                               "PRAGMA secure_delete = OFF;"
                               "PRAGMA cache_size = -" TEXT(CACHE_KIB) ";"
                                                                       "PRAGMA temp_store = FILE;",
        "cannot open the database", message);
    /* A log would write every page twice, for readers and for a rollback. The lock stays only on `main`: the
     * batch must be looked at again in each transaction. */
    return error != VARVE_OK
               ? error
               : schema_execute(db, path,
                                is_private ? "PRAGMA main.locking_mode = EXCLUSIVE; PRAGMA main.journal_mode = OFF;"
                                           : "PRAGMA journal_mode = WAL;",
                                "cannot open the database", message);
}

static int vocabulary_insert(sqlite3 *db, const char *sql, unsigned code, const char *const *texts, int count)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) {
        return VARVE_ERROR_DATABASE;
    }
    sqlite3_bind_int(statement, 1, (int)code);
    for (int i = 0; i < count; i++) {
        sqlite3_bind_text(statement, i + 2, texts[i], -1, SQLITE_STATIC);
    }
    int result = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return result == SQLITE_DONE ? VARVE_OK : VARVE_ERROR_DATABASE;
}

static const char *const domains[DOMAIN_LIMIT][3] = {
    [DOMAIN_HEAP] = {"heap", "the malloc family"},
    [DOMAIN_MMAP] = {"mmap", "memory that the program itself maps, not the C library"},
    [DOMAIN_DEVICE] = {"device", "the CUDA API: memory of a device"},
    [DOMAIN_BLOCK] = {"block", "blocks of a caching allocator", "device"},
    [DOMAIN_PINNED] = {"pinned", "the CUDA API: memory of the host that devices reach"},
    [DOMAIN_MANAGED] = {"managed", "the CUDA API: memory that moves between host and devices"},
    [DOMAIN_CUPTI] = {"cupti", "what domain device is, as CUPTI reports it beside the CUDA recorder", "device"},
    [DOMAIN_ADDRESS_SPACE] = {"address_space",
                              "mmap with PROT_NONE or MAP_NORESERVE: addresses, of which mprotect may make memory"},
    [DOMAIN_PYTHON] = {"python", "objects and buffers of Python interpreters: cut from heap and mmap", "heap"},
};

const char *schema_domain_name(unsigned domain)
{
    return domains[domain][0];
}

static int domains_insert(sqlite3 *db)
{
    int error = VARVE_OK;
    for (unsigned i = 1; i < DOMAIN_LIMIT && error == VARVE_OK; i++) {
        error = vocabulary_insert(db, "INSERT INTO domain VALUES (?1, ?2, ?3, ?4)", i, domains[i], 3);
    }
    return error;
}

static int vocabulary_fill(sqlite3 *db)
{
#define ELEMENT_ROW(code, NAME, name, bytes) [code] = {name, TEXT(bytes)},
    static const char *const elements[][2] = {VARVE_ELEMENT_LIST(ELEMENT_ROW)};
#undef ELEMENT_ROW
    int error = VARVE_OK;
    for (unsigned i = 0; i < VARVE_KIND_LIMIT && error == VARVE_OK; i++) {
        const struct event_kind_info *info = event_kind_info(i);
        if (info != NULL) {
            const char *texts[] = {info->name,      info->group, info->addr,   info->size,
                                   info->requested, info->arg,   info->meaning};
            error = vocabulary_insert(db,
                                      "INSERT INTO event_kind VALUES (?1, ?2, ?3, nullif(?4, ''), nullif(?5, ''),"
                                      " nullif(?6, ''), nullif(?7, ''), ?8)",
                                      i, texts, 7);
        }
    }
    for (unsigned i = 0; i < 256 && error == VARVE_OK; i++) {
        const char *text = event_cause_text(i);
        if (text != NULL) {
            error = vocabulary_insert(db, "INSERT INTO event_cause VALUES (?1, ?2)", i, &text, 1);
        }
    }
    VARVE_THEN(error, domains_insert(db));
    for (unsigned i = 0; i < sizeof(elements) / sizeof(elements[0]) && error == VARVE_OK; i++) {
        error =
            vocabulary_insert(db, "INSERT INTO element_type VALUES (?1, ?2, CAST(?3 AS INTEGER))", i, elements[i], 2);
    }
    return error;
}

int schema_create(sqlite3 *db, const char *path, struct varve_message *message)
{
    static const char what[] = "cannot create the tables";
    char identity[128];
    snprintf(identity, sizeof(identity),
             "PRAGMA application_id = %d; PRAGMA user_version = %d;"
             "INSERT INTO meta VALUES ('complete', 0);",
             VARVE_DATABASE_APPLICATION_ID, VARVE_DATABASE_SCHEMA_VERSION);
    int error = schema_execute(db, path, "BEGIN", what, message);
    VARVE_THEN(error, schema_execute(db, path, store_schema_sql, what, message));
    VARVE_THEN(error, schema_execute(db, path, store_views_sql, what, message));
    VARVE_THEN(error, schema_execute(db, path, store_help_sql, what, message));
    VARVE_THEN(error, schema_execute(db, path, identity, what, message));
    if (error == VARVE_OK && vocabulary_fill(db) != VARVE_OK) {
        error = schema_error(db, path, what, message);
    }
    return error == VARVE_OK ? schema_execute(db, path, "COMMIT", what, message) : error;
}

int schema_query(sqlite3 *db, const char *path, const char *sql, int64_t *value_out, struct varve_message *message)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK) {
        return schema_error(db, path, "cannot read", message);
    }
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        *value_out = sqlite3_column_int64(statement, 0);
    }
    int error =
        result == SQLITE_ROW || result == SQLITE_DONE ? VARVE_OK : schema_error(db, path, "cannot read", message);
    sqlite3_finalize(statement);
    return error;
}

int schema_verify(sqlite3 *db, const char *path, bool *is_empty_out, struct varve_message *message)
{
    int64_t application = 0;
    int64_t version = 0;
    int error = schema_query(db, path, "PRAGMA application_id", &application, message);
    VARVE_THEN(error, schema_query(db, path, "PRAGMA user_version", &version, message));
    int64_t tables = 0;
    VARVE_THEN(error, schema_query(db, path, "SELECT count(*) FROM sqlite_schema", &tables, message));
    if (error != VARVE_OK) {
        return error;
    }
    *is_empty_out = application == 0 && version == 0 && tables == 0;
    if (*is_empty_out) {
        return VARVE_OK;
    }
    if (application != VARVE_DATABASE_APPLICATION_ID) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: not a trace database", path);
    }
    if (version != VARVE_DATABASE_SCHEMA_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s: schema version %lld, this program writes %d: only the varve that began "
                                 "it can go on with it",
                                 path, (long long)version, VARVE_DATABASE_SCHEMA_VERSION);
    }
    /* Columns and tables may be added without another version, which matters to those who write all of them. */
    error = schema_query(db, path,
                         "SELECT count(*) FROM sqlite_schema WHERE name = 'remat_event' AND EXISTS"
                         " (SELECT 1 FROM pragma_table_info('storage') WHERE name = 'number')",
                         &tables, message);
    if (error == VARVE_OK && tables == 0) {
        return varve_message_set(
            message, VARVE_ERROR_VERSION,
            "%s: some of its tables are of an older varve: only the varve that began it can go on with it", path);
    }
    return error;
}

/* Those of storages, where there are any: what is alive, what phases are asked for, and from an allocation to
 * what lies in it. */
static int storages_index(sqlite3 *db, const char *path, struct varve_message *message)
{
    int64_t storages = 0;
    int64_t marks = 0;
    int error = schema_query(db, path, "SELECT EXISTS (SELECT 1 FROM storage)", &storages, message);
    VARVE_THEN(error, schema_query(db, path, "SELECT EXISTS (SELECT 1 FROM mark)", &marks, message));
    if (error == VARVE_OK && storages != 0) {
        error = schema_execute(
            db, path,
            "CREATE INDEX IF NOT EXISTS storage_alive ON storage(base_id, size) WHERE destroy_seq IS NULL;"
            "CREATE INDEX IF NOT EXISTS storage_allocation ON storage(allocation_id)"
            " WHERE allocation_id IS NOT NULL;",
            "cannot build indexes", message);
    }
    if (error == VARVE_OK && storages != 0 && marks != 0) {
        error =
            schema_execute(db, path, "CREATE INDEX IF NOT EXISTS storage_create ON storage(process_id, create_seq);",
                           "cannot build indexes", message);
    }
    return error;
}

/* The condition is `free_completed_seq IS NULL` as SQLite has it when it has put the column of the
 * view in its place. */
int schema_index(sqlite3 *db, const char *path, struct varve_message *message)
{
    int error = schema_execute(
        db, path,
        "PRAGMA cache_size = -" TEXT(
            CACHE_SORT_KIB) ";"
                            "CREATE INDEX IF NOT EXISTS allocation_leak ON allocation_row(callsite_id) WHERE"
                            " (alloc_seq + coalesce(lifetime_events, 0) + pending_events) COLLATE BINARY IS NULL;",
        "cannot build indexes", message);
    return error == VARVE_OK ? storages_index(db, path, message) : error;
}
