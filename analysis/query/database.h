/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database that is read, and cursors over it. database.c is the only file of analysis/ that knows SQLite; it never
 * writes. One thread uses a database. Cursors end on an error, which database_error gives afterwards.
 */
#ifndef VARVE_ANALYSIS_QUERY_DATABASE_H
#define VARVE_ANALYSIS_QUERY_DATABASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct database;
struct progress;
struct sqlite3_stmt;
struct varve_message;

#define DATABASE_TIMEOUT_NS INT64_C(60000000000)

enum database_use {
    DATABASE_ANY,     /* also a recording that was cut off before its totals were made */
    DATABASE_DERIVED, /* complete ones only: totals and call sites are there */
};

int database_open(const char *path, enum database_use use, struct database **database_out,
                  struct varve_message *message);
/// Is there a temporary table or view of the name, or any if it is NULL?
bool database_has_own(struct database *database, const char *name);
/// The file of `database` once more, for another thread. NULL: it can't be opened, or temporary tables and views stand
/// in front of its own, which another one would not see.
struct database *database_open_again(struct database *database);
/// An SQLite database of another tool. Statements about tables or columns that it lacks are errors, as of a damaged
/// file: database_has says what there is.
int database_open_other(const char *path, struct database **database_out, struct varve_message *message);
bool database_has(struct database *database, const char *table, const char *column); /* NULL: any */
/// An empty one in memory, for temporary tables, between PRAGMA query_only = 0 and 1; `path`: for messages.
int database_open_memory(const char *path, struct database **database_out, struct varve_message *message);
/// A temporary database, into which tables may be made, with two others attached as `a` and `b` for reading, each the
/// state of one moment. Both may be the same file. SQLite may compute for it as long as for the two of them.
int database_open_two(const char *a, const char *b, struct database **database_out, struct varve_message *message);
/// Statements whose rows nobody wants. Errors as of cursors: database_error gives them.
void database_execute(struct database *database, const char *sql);
/// Make the view `name` of the file (NULL: all views) once more, as a temporary one, from its text: names in it mean
/// the temporary tables and views that there are, and statements that come after see it in place of the file's. Between
/// PRAGMA query_only = 0 and 1.
void database_copy_views(struct database *database, const char *name);
/// How long SQLite may compute for each database that is opened from now on, by the clock of the thread; 0:
/// as long as it wants. Cursors end with an error then. At first DATABASE_TIMEOUT_NS.
void database_set_timeout(int64_t ns);
void database_close(struct database *database);
bool database_is_complete(const struct database *database);
const char *database_path(const struct database *database);
/// From now on database_path gives `path`, which is copied: that of what the database was made of.
void database_call(struct database *database, const char *path);
int64_t database_schema_version(struct database *database);
/// The first error of any cursor since it was opened, or 0. Cursors just end on an error: ask before
/// printing.
int database_error(const struct database *database, struct varve_message *message);
/// Called now and then while SQLite works.
void database_on_progress(struct database *database, void (*step)(void *context), void *context);
/// Have `progress` show `what` while SQLite works on `database`, which must not outlive it.
void database_watch(struct database *database, struct progress *progress, const char *what);
/// Text of a row of `meta`, NULL if there is none. Owner: the caller, by free.
char *database_meta(struct database *database, const char *key);

struct cursor {
    struct database *database;
    struct sqlite3_stmt *statement; /* NULL after an error */
    struct kept_statement *kept;    /* the database keeps it for the next time; NULL: it goes with the cursor */
    bool is_user;                   /* errors are the user's, not the file's */
};

/// `sql`: one of our own statements, over the views. Binding begins at 1.
void cursor_open(struct cursor *cursor, struct database *database, const char *sql);
void cursor_bind_integer(struct cursor *cursor, int index, int64_t value);
void cursor_bind_text(struct cursor *cursor, int index, const char *value); /* NULL is NULL; not copied */
bool cursor_next(struct cursor *cursor);                                    /* false at the end and on an error */
int64_t cursor_integer(struct cursor *cursor, int column);                  /* of NULL: 0 */
const char *cursor_text(struct cursor *cursor, int column); /* NULL if NULL; until the next cursor_next */
const char *cursor_name(struct cursor *cursor, int column); /* "" if NULL: a damaged file has that anywhere */
bool cursor_is_null(struct cursor *cursor, int column);
void cursor_reset(struct cursor *cursor); /* run it again, with other numbers bound */
void cursor_close(struct cursor *cursor);
/// One figure: column 0 of the first row, or `otherwise` if there is none or it is NULL.
int64_t database_integer(struct database *database, const char *sql, int64_t otherwise);
/// The same of a statement with a number bound to ?1; 0 if there is none.
int64_t database_integer_of(struct database *database, const char *sql, int64_t bound);
/// The same with a text as the one parameter.
int64_t database_integer_named(struct database *database, const char *sql, const char *name, int64_t otherwise);
/// Number of a row of `meta`.
int64_t database_meta_integer(struct database *database, const char *key, int64_t otherwise);

/// One more than the largest `id` of a table, for an array by number; less of a file whose numbers have gaps that
/// can't be: what is not below it must be left out.
int64_t database_number_limit(struct database *database, const char *table);

enum value_type {
    VALUE_NULL,
    VALUE_INTEGER,
    VALUE_REAL,
    VALUE_TEXT,
    VALUE_BLOB,
};

struct value {
    enum value_type type;
    int64_t integer;
    double real;
    const char *text; /* text, or the bytes of a blob; also the text of a number; until the next row */
    size_t bytes;
};

/// Compile the next statement of a user's SQL at `*sql` and move `*sql` behind it. cursor->statement is NULL
/// when there is nothing but space and comments left. Errors: VARVE_ERROR_PERMISSION (it would write),
/// VARVE_ERROR_INVALID (SQL is wrong), with one line.
int cursor_open_user(struct cursor *cursor, struct database *database, const char **sql, struct varve_message *message);
int cursor_column_count(struct cursor *cursor);
const char *cursor_column_name(struct cursor *cursor, int column);
struct value cursor_value(struct cursor *cursor, int column);
/// The type of a column, and its value if that is an integer, which most are: quicker than cursor_value.
enum value_type cursor_scalar(struct cursor *cursor, int column, int64_t *integer_out);
struct cJSON *value_json(const struct value *value); /* of a blob: its bytes in hexadecimal */
const char *database_library_version(void);

/* What a file is, judged before SQLite touches it. Called by database.c, and by history, which takes other files as
 * well. */

struct database_file {
    bool is_wal; /* left in WAL mode, or with a log beside it that is of no use: must be read as immutable */
};

/// Errors, each with one line that says what to do: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT (a directory,
/// no database, another tool's), VERSION (newer schema), CORRUPT (truncated), BUSY (incomplete or being
/// recorded).
int database_file_check(const char *path, struct database_file *file_out, struct varve_message *message);
/// The same of an SQLite database that is no trace. VARVE_ERROR_FORMAT, too, if it is one.
int database_file_check_other(const char *path, struct database_file *file_out, struct varve_message *message);

#endif
