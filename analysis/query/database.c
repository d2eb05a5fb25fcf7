/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace databases, opened to be read: the only file of this folder that knows SQLite. Nothing is ever
 * written, not even the shared-memory file of WAL mode. Our own statements go through cursor_open and must
 * compile; a user's SQL goes through cursor_open_user, which refuses what would write before anything runs.
 *
 * Errors of SQLite are kept in the database (the first one wins) and cursors just end: the commands print
 * nothing before they asked database_error, so that no half answer leaves them.
 *
 * A file may come from anybody, and its views may never end: what SQLite computes for one database is
 * limited. The limit is of computing, not of waiting, since rows may go into a pipe that nobody reads for an
 * hour.
 */
#include "analysis/query/database.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "base/error.h"
#include "base/monotonic.h"
#include "trace/writer.h"

#include <ctype.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROGRESS_STEPS 200000
#define NS_PER_S 1e9
#define NUMBERS_PER_ROW 16 /* of rows numbered from 1, for gaps that somebody may have made */
#define NUMBERS_SLACK 1024

#define STATEMENTS_KEPT 64

/* Answers ask the same of many rows: what was prepared once is kept for the next time. */
struct kept_statement {
    sqlite3_stmt *statement;
    bool is_open; /* a cursor has it */
};

struct database {
    sqlite3 *sqlite;
    struct kept_statement kept[STATEMENTS_KEPT];
    size_t kept_count;
    char *path;
    bool is_wal;
    bool is_complete;
    bool is_other;    /* of another tool */
    bool would_write; /* set by the authorizer, which can only answer yes or no */
    int error;        /* the first one */
    struct varve_message message;
    void (*progress)(void *context);
    void *progress_context;
    int64_t timeout_ns; /* 0: none */
    int64_t begin_ns;
};

static int64_t timeout_ns = DATABASE_TIMEOUT_NS;

static void set_error(struct database *database, bool is_user)
{
    int code = sqlite3_errcode(database->sqlite);
    bool is_damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR;
    if (database->error != VARVE_OK) {
        return;
    }
    if (code == SQLITE_INTERRUPT) {
        database->error =
            varve_message_set(&database->message, VARVE_ERROR_DATABASE,
                              "%.300s: no end after %g s of computing; --timeout SECONDS gives it more, 0 all it wants",
                              database->path, (double)database->timeout_ns / NS_PER_S);
        return;
    }
    if (is_user && code == SQLITE_ERROR) {
        database->error =
            varve_message_set(&database->message, VARVE_ERROR_INVALID, "%s", sqlite3_errmsg(database->sqlite));
        return;
    }
    /* Our statements fit the schema: if one does not compile, a table is missing or another one's. */
    int error = is_damaged ? VARVE_ERROR_CORRUPT : code == SQLITE_NOMEM ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_DATABASE;
    database->error = varve_message_set(&database->message, error, "%s %s (%s)", database->path,
                                        code == SQLITE_ERROR && database->is_other ? "has tables of another form"
                                        : code == SQLITE_ERROR                     ? "lacks a part of a trace database"
                                        : is_damaged                               ? "is damaged"
                                                                                   : "cannot be read",
                                        sqlite3_errmsg(database->sqlite));
}

int database_error(const struct database *database, struct varve_message *message)
{
    if (database->error != VARVE_OK) {
        varve_message_set(message, database->error, "%s", database->message.text);
    }
    return database->error;
}

static int progress_handler(void *context)
{
    struct database *database = context;
    if (database->progress != NULL) {
        database->progress(database->progress_context);
    }
    return database->timeout_ns > 0 && (int64_t)monotonic_computed_ns() - database->begin_ns > database->timeout_ns ? 1
                                                                                                                    : 0;
}

void database_on_progress(struct database *database, void (*step)(void *context), void *context)
{
    database->progress = step;
    database->progress_context = context;
}

void database_set_timeout(int64_t ns)
{
    timeout_ns = ns;
}

/* ---- what a user's SQL may do ---- */

static bool is_reading_pragma(const char *name)
{
    static const char *const names[] = {
        "application_id", "collation_list", "compile_options", "database_list", "encoding",     "foreign_key_list",
        "freelist_count", "function_list",  "index_info",      "index_list",    "index_xinfo",  "integrity_check",
        "journal_mode",   "module_list",    "page_count",      "page_size",     "pragma_list",  "quick_check",
        "schema_version", "table_info",     "table_list",      "table_xinfo",   "user_version",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Pragmas whose argument says what to look at; with the others an argument is a new value. */
static bool takes_name(const char *name)
{
    size_t length = strlen(name);
    return strstr(name, "_check") != NULL || strstr(name, "_info") != NULL || strstr(name, "_xinfo") != NULL ||
           (length > 5 && strcmp(name + length - 5, "_list") == 0);
}

/* What sqlite3_stmt_readonly takes for reading although it touches other files or settings. Everything else
 * that writes is refused by that function; virtual tables such as json_each declare themselves by CREATE
 * and must pass. */
static int authorize(void *context, int action, const char *first, const char *second, const char *schema,
                     const char *trigger)
{
    struct database *database = context;
    bool is_allowed = action != SQLITE_ATTACH && action != SQLITE_DETACH;
    (void)schema;
    (void)trigger;
    if (action == SQLITE_PRAGMA) {
        is_allowed = is_reading_pragma(first) && (second == NULL || takes_name(first));
    }
    database->would_write = database->would_write || !is_allowed;
    return is_allowed ? SQLITE_OK : SQLITE_DENY;
}

/* ---- opening ---- */

/* A URI, because only that way can SQLite be made to leave a file alone altogether (immutable). NULL: no memory. */
static char *make_uri(const char *path, bool is_wal)
{
    char *uri = malloc(strlen(path) * 3 + 64);
    if (uri == NULL) {
        return NULL;
    }
    char *to = uri + sprintf(uri, "file:");
    if (path[0] == '/') {
        to += sprintf(to, "//");
    }
    for (; *path != '\0'; path++) {
        unsigned char byte = (unsigned char)*path;
        if (isalnum(byte) || strchr("/._-", byte) != NULL) {
            *to++ = (char)byte;
        } else {
            to += sprintf(to, "%%%02X", byte);
        }
    }
    /* A database in WAL mode can't be read without writing its shared-memory file, unless nobody may change
     * it. */
    sprintf(to, "?mode=ro%s", is_wal ? "&immutable=1" : "");
    return uri;
}

static int check_completeness(struct database *database, enum database_use use, struct varve_message *message)
{
    int64_t is_complete = database_meta_integer(database, "complete", 0);
    if (database->error != VARVE_OK) {
        return database_error(database, message);
    }
    database->is_complete = is_complete == 1;
    if (!database->is_complete && use == DATABASE_DERIVED) {
        return varve_message_set(message, VARVE_ERROR_BUSY,
                                 "%s: the recording was cut off before its totals were made: run varve recover %s.d "
                                 "(varve info and varve query read it as it is)",
                                 database->path, database->path);
    }
    return VARVE_OK;
}

/* The file may come from anybody: its views and triggers get no functions with side effects, and an end. */
static void protect(struct database *database)
{
    sqlite3_progress_handler(database->sqlite, PROGRESS_STEPS, progress_handler, database);
    sqlite3_db_config(database->sqlite, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(database->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
}

/* Reading alone, whatever the file is. Errors, not the end of the process: libvarve_query.so comes this way. */
static int open_file(const char *path, bool is_wal, struct database **database_out, struct varve_message *message)
{
    struct database *database = malloc(sizeof(*database));
    char *uri = make_uri(path, is_wal);
    int code = SQLITE_NOMEM;
    *database_out = NULL;
    if (database != NULL) {
        *database = (struct database){.path = strdup(path),
                                      .is_wal = is_wal,
                                      .timeout_ns = timeout_ns,
                                      .begin_ns = (int64_t)monotonic_computed_ns()};
        if (database->path != NULL && uri != NULL) {
            const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
            code = sqlite3_open_v2(uri, &database->sqlite, flags, NULL);
        }
    }
    free(uri);
    if (code != SQLITE_OK) {
        const int error = code == SQLITE_NOMEM ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_DATABASE;
        (void)varve_message_set(message, error, "%s: %s", path,
                                code == SQLITE_NOMEM ? "out of memory" : sqlite3_errmsg(database->sqlite));
        database_close(database);
        return error;
    }
    protect(database);
    sqlite3_exec(database->sqlite, "PRAGMA query_only = 1; PRAGMA mmap_size = 268435456", NULL, NULL, NULL);
    *database_out = database;
    return VARVE_OK;
}

int database_open(const char *path, enum database_use use, struct database **database_out,
                  struct varve_message *message)
{
    struct database_file file;
    int error = database_file_check(path, &file, message);
    *database_out = NULL;
    VARVE_THEN(error, open_file(path, file.is_wal, database_out, message));
    VARVE_THEN(error, check_completeness(*database_out, use, message));
    if (error != VARVE_OK) {
        database_close(*database_out);
        *database_out = NULL;
    }
    return error;
}

bool database_has_own(struct database *database, const char *name)
{
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT 1 FROM temp.sqlite_schema WHERE ?1 IS NULL OR name = ?1");
    cursor_bind_text(&cursor, 1, name);
    bool has = cursor_next(&cursor);
    cursor_close(&cursor);
    return has;
}

struct database *database_open_again(struct database *database)
{
    struct varve_message message;
    const char *file = sqlite3_db_filename(database->sqlite, "main");
    struct database *again = NULL;
    if (!database_has_own(database, NULL) && file != NULL && file[0] != '\0' &&
        open_file(file, database->is_wal, &again, &message) == VARVE_OK) {
        database_call(again, database->path);
        again->is_complete = database->is_complete;
        again->is_other = database->is_other;
    }
    return again;
}

int database_open_other(const char *path, struct database **database_out, struct varve_message *message)
{
    struct database_file file;
    int error = database_file_check_other(path, &file, message);
    *database_out = NULL;
    VARVE_THEN(error, open_file(path, file.is_wal, database_out, message));
    if (error == VARVE_OK) {
        (*database_out)->is_other = true;
    }
    return error;
}

int database_open_memory(const char *path, struct database **database_out, struct varve_message *message)
{
    int error = open_file(":memory:", false, database_out, message);
    if (error == VARVE_OK) {
        database_call(*database_out, path);
        (*database_out)->is_other = true;
    }
    return error;
}

bool database_has(struct database *database, const char *table, const char *column)
{
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT 1 FROM pragma_table_info(?1) WHERE ?2 IS NULL OR name = ?2");
    cursor_bind_text(&cursor, 1, table);
    cursor_bind_text(&cursor, 2, column);
    bool has = cursor_next(&cursor);
    cursor_close(&cursor);
    return has;
}

static int database_attach(struct database *database, const char *path, const char *name, struct varve_message *message)
{
    struct database_file file;
    int result = database_file_check(path, &file, message);
    if (result != VARVE_OK) {
        return result;
    }
    char *uri = make_uri(path, file.is_wal);
    sqlite3_stmt *statement = NULL;
    if (uri == NULL) {
        memory_exhausted();
    }
    if (sqlite3_prepare_v2(database->sqlite, "ATTACH ?1 AS ?2", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, uri, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_bind_text(statement, 2, name, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_DONE) {
        result = varve_message_set(message, VARVE_ERROR_DATABASE, "%s: %s", path, sqlite3_errmsg(database->sqlite));
    }
    sqlite3_finalize(statement);
    free(uri);
    return result;
}

int database_open_two(const char *a, const char *b, struct database **database_out, struct varve_message *message)
{
    struct database *database = memory_resize(NULL, sizeof(*database));
    size_t bytes = strlen(a) + strlen(b) + sizeof(" or ");
    *database_out = NULL;
    *database = (struct database){
        .path = memory_resize(NULL, bytes), .timeout_ns = 2 * timeout_ns, .begin_ns = (int64_t)monotonic_computed_ns()};
    snprintf(database->path, bytes, "%s or %s", a, b);
    int result = VARVE_OK;
    if (sqlite3_open_v2("", &database->sqlite,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI,
                        NULL) != SQLITE_OK) {
        result = varve_message_set(message, VARVE_ERROR_DATABASE, "a temporary database: %s",
                                   sqlite3_errmsg(database->sqlite));
    } else {
        protect(database);
        result = database_attach(database, a, "a", message);
        result = result == VARVE_OK ? database_attach(database, b, "b", message) : result;
    }
    if (result != VARVE_OK) {
        database_close(database);
        return result;
    }
    database_execute(database, "PRAGMA main.journal_mode = OFF; PRAGMA main.cache_size = -65536;"
                               "PRAGMA a.mmap_size = 268435456; PRAGMA b.mmap_size = 268435456; BEGIN");
    *database_out = database;
    return VARVE_OK;
}

void database_execute(struct database *database, const char *sql)
{
    if (database->error == VARVE_OK && sqlite3_exec(database->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK) {
        set_error(database, false);
    }
}

/* A cursor takes the first statement only, whatever a damaged file has there. */
void database_copy_views(struct database *database, const char *name)
{
    static const char create[] = "CREATE VIEW ";
    struct cursor read;
    cursor_open(&read, database,
                "SELECT sql FROM main.sqlite_schema WHERE type = 'view' AND (?1 IS NULL OR name = ?1)");
    cursor_bind_text(&read, 1, name);
    struct cursor make;
    while (cursor_next(&read)) {
        const char *sql = cursor_name(&read, 0);
        size_t bytes = strlen(sql) + sizeof("CREATE TEMP VIEW ");
        if (strncmp(sql, create, strlen(create)) != 0) {
            continue;
        }
        char *text = memory_resize(NULL, bytes);
        snprintf(text, bytes, "CREATE TEMP VIEW %s", sql + strlen(create));
        cursor_open(&make, database, text);
        cursor_next(&make);
        cursor_close(&make);
        free(text);
    }
    cursor_close(&read);
}

void database_close(struct database *database)
{
    if (database != NULL) {
        for (size_t i = 0; i < database->kept_count; i++) {
            sqlite3_finalize(database->kept[i].statement);
        }
        sqlite3_close(database->sqlite);
        free(database->path);
        free(database);
    }
}

bool database_is_complete(const struct database *database)
{
    return database->is_complete;
}

void database_call(struct database *database, const char *path)
{
    free(database->path);
    database->path = memory_copy_text(path);
}

const char *database_path(const struct database *database)
{
    return database->path;
}

int64_t database_schema_version(struct database *database)
{
    return database_integer(database, "PRAGMA user_version", 0);
}

static void meta_find(struct cursor *cursor, struct database *database, const char *key)
{
    cursor_open(cursor, database, "SELECT CAST(value AS TEXT) FROM meta WHERE key = ?1");
    cursor_bind_text(cursor, 1, key);
}

char *database_meta(struct database *database, const char *key)
{
    struct cursor cursor;
    meta_find(&cursor, database, key);
    char *text = NULL;
    if (cursor_next(&cursor)) {
        text = memory_copy_text(cursor_text(&cursor, 0));
    }
    cursor_close(&cursor);
    return text;
}

const char *database_library_version(void)
{
    return sqlite3_libversion();
}

/* ---- cursors ---- */

/* NULL: the statement is new, or under way. */
static struct kept_statement *kept_find(struct database *database, const char *sql)
{
    for (size_t i = 0; i < database->kept_count; i++) {
        struct kept_statement *kept = &database->kept[i];
        if (!kept->is_open && strcmp(sqlite3_sql(kept->statement), sql) == 0) {
            return kept;
        }
    }
    return NULL;
}

void cursor_open(struct cursor *cursor, struct database *database, const char *sql)
{
    *cursor = (struct cursor){.database = database};
    if (database->error != VARVE_OK) {
        return;
    }
    cursor->kept = kept_find(database, sql);
    if (cursor->kept != NULL) {
        cursor->kept->is_open = true;
        cursor->statement = cursor->kept->statement;
    } else if (sqlite3_prepare_v2(database->sqlite, sql, -1, &cursor->statement, NULL) != SQLITE_OK) {
        set_error(database, false);
    } else if (cursor->statement != NULL && database->kept_count < STATEMENTS_KEPT) {
        cursor->kept = &database->kept[database->kept_count++];
        *cursor->kept = (struct kept_statement){cursor->statement, true};
    }
}

int cursor_open_user(struct cursor *cursor, struct database *database, const char **sql, struct varve_message *message)
{
    const char *begin = *sql + strspn(*sql, " \t\r\n;");
    *cursor = (struct cursor){.database = database, .is_user = true};
    database->would_write = false;
    sqlite3_set_authorizer(database->sqlite, authorize, database);
    int error = sqlite3_prepare_v2(database->sqlite, begin, -1, &cursor->statement, sql);
    sqlite3_set_authorizer(database->sqlite, NULL, NULL);
    if (database->would_write ||
        (error == SQLITE_OK && cursor->statement != NULL && !sqlite3_stmt_readonly(cursor->statement))) {
        size_t length = strcspn(begin, "\r\n;");
        cursor_close(cursor);
        char first[64];
        snprintf(first, sizeof(first), "%.*s", length > 40 ? 40 : (int)length, begin);
        return varve_message_set(
            message, VARVE_ERROR_PERMISSION,
            "refused: '%s' would modify the database; query is read-only (change a copy with sqlite3)", first);
    }
    if (error == SQLITE_CORRUPT || error == SQLITE_NOTADB || error == SQLITE_NOMEM) {
        set_error(database, true);
        return database_error(database, message);
    }
    if (error != SQLITE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s, in: %.100s", sqlite3_errmsg(database->sqlite),
                                 begin);
    }
    return VARVE_OK;
}

void cursor_bind_integer(struct cursor *cursor, int index, int64_t value)
{
    if (cursor->statement != NULL) {
        sqlite3_bind_int64(cursor->statement, index, value);
    }
}

void cursor_bind_text(struct cursor *cursor, int index, const char *value)
{
    if (cursor->statement != NULL) {
        sqlite3_bind_text(cursor->statement, index, value, -1, SQLITE_STATIC);
    }
}

bool cursor_next(struct cursor *cursor)
{
    int error = SQLITE_DONE;
    if (cursor->statement != NULL) {
        error = sqlite3_step(cursor->statement);
        if (error != SQLITE_ROW && error != SQLITE_DONE) {
            set_error(cursor->database, cursor->is_user);
        }
    }
    return error == SQLITE_ROW;
}

int64_t cursor_integer(struct cursor *cursor, int column)
{
    return sqlite3_column_int64(cursor->statement, column);
}

const char *cursor_text(struct cursor *cursor, int column)
{
    return (const char *)sqlite3_column_text(cursor->statement, column);
}

const char *cursor_name(struct cursor *cursor, int column)
{
    const char *text = cursor_text(cursor, column);
    return text != NULL ? text : "";
}

bool cursor_is_null(struct cursor *cursor, int column)
{
    return sqlite3_column_type(cursor->statement, column) == SQLITE_NULL;
}

void cursor_reset(struct cursor *cursor)
{
    sqlite3_reset(cursor->statement);
}

void cursor_close(struct cursor *cursor)
{
    if (cursor->kept != NULL) {
        sqlite3_reset(cursor->statement);
        sqlite3_clear_bindings(cursor->statement); /* texts are borrowed */
        cursor->kept->is_open = false;
    } else {
        sqlite3_finalize(cursor->statement);
    }
    cursor->kept = NULL;
    cursor->statement = NULL;
}

static int64_t first_integer(struct cursor *cursor, int64_t otherwise)
{
    if (cursor_next(cursor) && !cursor_is_null(cursor, 0)) {
        otherwise = cursor_integer(cursor, 0);
    }
    cursor_close(cursor);
    return otherwise;
}

int64_t database_integer(struct database *database, const char *sql, int64_t otherwise)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    return first_integer(&cursor, otherwise);
}

int64_t database_integer_of(struct database *database, const char *sql, int64_t bound)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, bound);
    return first_integer(&cursor, 0);
}

int64_t database_integer_named(struct database *database, const char *sql, const char *name, int64_t otherwise)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    cursor_bind_text(&cursor, 1, name);
    return first_integer(&cursor, otherwise);
}

int64_t database_meta_integer(struct database *database, const char *key, int64_t otherwise)
{
    struct cursor cursor;
    meta_find(&cursor, database, key);
    const char *text = cursor_next(&cursor) ? cursor_text(&cursor, 0) : NULL;
    const int64_t value = text != NULL ? strtoll(text, NULL, 10) : otherwise;
    cursor_close(&cursor);
    return value;
}

int64_t database_number_limit(struct database *database, const char *table)
{
    char sql[200];
    struct cursor cursor;
    /* each by itself is one look at an index, or a count of pages; asked for together they walk all rows */
    snprintf(sql, sizeof(sql), "SELECT (SELECT max(id) FROM %s WHERE id > 0), (SELECT count(*) FROM %s)", table, table);
    cursor_open(&cursor, database, sql);
    int64_t limit = 1;
    if (cursor_next(&cursor) && !cursor_is_null(&cursor, 0)) {
        int64_t most = NUMBERS_PER_ROW * cursor_integer(&cursor, 1) + NUMBERS_SLACK;
        limit = (cursor_integer(&cursor, 0) < most ? cursor_integer(&cursor, 0) : most) + 1;
    }
    cursor_close(&cursor);
    return limit;
}

int cursor_column_count(struct cursor *cursor)
{
    return sqlite3_column_count(cursor->statement);
}

const char *cursor_column_name(struct cursor *cursor, int column)
{
    const char *name = sqlite3_column_name(cursor->statement, column);
    return name != NULL ? name : "";
}

static enum value_type type_of(int sqlite_type)
{
    switch (sqlite_type) {
    case SQLITE_INTEGER:
        return VALUE_INTEGER;
    case SQLITE_FLOAT:
        return VALUE_REAL;
    case SQLITE_BLOB:
        return VALUE_BLOB;
    case SQLITE_TEXT:
        return VALUE_TEXT;
    default:
        return VALUE_NULL;
    }
}

/* One call that locks, where a type and an integer asked for one after the other were two. */
enum value_type cursor_scalar(struct cursor *cursor, int column, int64_t *integer_out)
{
    sqlite3_value *value = sqlite3_column_value(cursor->statement, column);
    enum value_type type = type_of(sqlite3_value_type(value));
    if (type == VALUE_INTEGER) {
        *integer_out = sqlite3_value_int64(value);
    }
    return type;
}

struct value cursor_value(struct cursor *cursor, int column)
{
    struct sqlite3_stmt *statement = cursor->statement;
    struct value value = {.type = type_of(sqlite3_column_type(statement, column))};
    switch (value.type) {
    case VALUE_INTEGER:
        value.integer = sqlite3_column_int64(statement, column);
        break;
    case VALUE_REAL:
        value.real = sqlite3_column_double(statement, column);
        break;
    case VALUE_BLOB:
        value.text = sqlite3_column_blob(statement, column);
        value.bytes = (size_t)sqlite3_column_bytes(statement, column);
        return value;
    case VALUE_TEXT:
        break;
    case VALUE_NULL:
        return value;
    }
    value.text = (const char *)sqlite3_column_text(statement, column);
    value.bytes = (size_t)sqlite3_column_bytes(statement, column);
    return value;
}

struct cJSON *value_json(const struct value *value)
{
    struct cJSON *json;
    char *digits;
    switch (value->type) {
    case VALUE_INTEGER:
        return json_integer_value(value->integer);
    case VALUE_REAL:
        return json_real_value(value->real);
    case VALUE_TEXT:
        return json_text_value(value->text, value->bytes);
    case VALUE_BLOB:
        digits = hexadecimal(value->text, value->bytes);
        json = json_text_value(digits, value->bytes * 2);
        free(digits);
        return json;
    default:
        return json_null_value();
    }
}

static void watch_step(void *context)
{
    struct progress *progress = context;
    progress_step(progress, progress->watched, 0, 0);
}

void database_watch(struct database *database, struct progress *progress, const char *what)
{
    progress->watched = what;
    if (progress->is_on) {
        database_on_progress(database, watch_step, progress);
    }
}
