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

#include "columns_generated.h"
#include "statements_generated.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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

char *schema_row_sql(const char *sql, const char *table, unsigned count)
{
    static const char marks[] = "?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?";
    _Static_assert(sizeof(marks) == 2 * ROW_VALUES_MAX, "a mark for each value");
    assert(count > 0 && count <= ROW_VALUES_MAX);
    return sqlite3_mprintf(sql, table, (int)(2 * count - 1), marks);
}

sqlite3_stmt *schema_prepare(sqlite3 *db, char *sql)
{
    sqlite3_stmt *statement = NULL;
    if (sql != NULL) {
        sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    }
    sqlite3_free(sql);
    return statement;
}

int schema_execute(sqlite3 *db, const char *path, const char *sql, const char *what, struct varve_message *message)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return schema_error(db, path, what, message);
    }
    return VARVE_OK;
}

/* What an event holds as the bits of a double; NaN becomes NULL. */
static void real_of_bits(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    const int64_t bits = sqlite3_value_int64(values[0]);
    double real;
    memcpy(&real, &bits, sizeof(real));
    sqlite3_result_double(context, real);
}

/* A path in the working directory gets "./", so that no name means anything special to SQLite. */
int schema_open(const char *path, sqlite3 **db_out, struct varve_message *message)
{
    char name[4096 + 16];
    snprintf(name, sizeof(name), "%s%s", path[0] == '/' ? "" : "./", path);
    return sqlite3_open_v2(name, db_out, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK
               ? VARVE_OK
               : schema_error(*db_out, path, "cannot open", message);
}

int schema_pragmas(sqlite3 *db, const char *path, bool is_private, struct varve_message *message)
{
    sqlite3_create_function(db, "real_of_bits", 1, SQLITE_UTF8, NULL, real_of_bits, NULL, NULL);
    sqlite3_busy_timeout(db, SCHEMA_BUSY_MS); /* readers may watch; only the end of the recording must wait for them */
    int error = schema_execute(db, path, sql_connection_settings, "cannot open the database", message);
    /* A log would write every page twice, for readers and for a rollback. */
    VARVE_THEN(error, schema_execute(db, path, is_private ? sql_journal_private : sql_journal_log,
                                     "cannot open the database", message));
    return error;
}

/* A row: a code and texts, or NULL. */
static int vocabulary_insert(sqlite3 *db, const char *sql, const char *table, unsigned code, const char *const *texts,
                             int count)
{
    sqlite3_stmt *statement = schema_prepare(db, schema_row_sql(sql, table, (unsigned)count + 1));
    if (statement == NULL) {
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
        error = vocabulary_insert(db, sql_row_insert, "domain", i, domains[i], 3);
    }
    return error;
}

static int vocabulary_fill(sqlite3 *db)
{
#define ELEMENT_ROW(code, NAME, name, bytes) [code] = {name, #bytes},
    static const char *const elements[][2] = {VARVE_ELEMENT_LIST(ELEMENT_ROW)};
#undef ELEMENT_ROW
    int error = VARVE_OK;
    for (unsigned i = 0; i < VARVE_KIND_LIMIT && error == VARVE_OK; i++) {
        const struct event_kind_info *info = event_kind_info(i);
        if (info != NULL) {
            const char *texts[] = {info->name,      info->group, info->addr,   info->size,
                                   info->requested, info->arg,   info->meaning};
            error = vocabulary_insert(db, sql_event_kind, "event_kind", i, texts, 7);
        }
    }
    for (unsigned i = 0; i < 256 && error == VARVE_OK; i++) {
        const char *text = event_cause_text(i);
        if (text != NULL) {
            error = vocabulary_insert(db, sql_row_insert, "event_cause", i, &text, 1);
        }
    }
    VARVE_THEN(error, domains_insert(db));
    for (unsigned i = 0; i < sizeof(elements) / sizeof(elements[0]) && error == VARVE_OK; i++) {
        error = vocabulary_insert(db, sql_row_insert, "element_type", i, elements[i], 2);
    }
    return error;
}

int schema_create(sqlite3 *db, const char *path, struct varve_message *message)
{
    static const char what[] = "cannot create the tables";
    char identity[128];
    sqlite3_snprintf(sizeof(identity), identity, sql_identity, VARVE_DATABASE_APPLICATION_ID,
                     VARVE_DATABASE_SCHEMA_VERSION);
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
    return VARVE_OK;
}

int schema_verify_columns(sqlite3 *db, const char *path, struct varve_message *message)
{
    int64_t columns = 0;
    int error = schema_query(db, path, sql_all_columns, &columns, message);
    if (error == VARVE_OK && columns != DATABASE_COLUMNS) {
        return varve_message_set(message, VARVE_ERROR_VERSION,
                                 "%s: its tables have %lld columns, this program writes %d: only the varve that began "
                                 "it can go on with it",
                                 path, (long long)columns, DATABASE_COLUMNS);
    }
    return error;
}

int schema_index(sqlite3 *db, const char *path, struct varve_message *message)
{
    static const char what[] = "cannot build indexes";
    int64_t has_storages = 0;
    int64_t has_marks = 0;
    int error = schema_query(db, path, sql_has_storages, &has_storages, message);
    VARVE_THEN(error, schema_query(db, path, sql_has_marks, &has_marks, message));
    if (error == VARVE_OK && has_storages != 0) {
        error = schema_execute(db, path, sql_storage_indexes, what, message);
    }
    if (error == VARVE_OK && has_storages != 0 && has_marks != 0) {
        error = schema_execute(db, path, sql_phase_index, what, message);
    }
    return error;
}
