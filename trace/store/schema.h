/* SPDX-License-Identifier: Apache-2.0 */
/* Connection, schema, vocabulary, errors. */
#ifndef VARVE_TRACE_STORE_SCHEMA_H
#define VARVE_TRACE_STORE_SCHEMA_H

#define ROW_VALUES_MAX 24U   /* of a row that a prepared statement writes */
#define SCHEMA_BUSY_MS 10000 /* how long to wait for others who have the database locked */

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct varve_message;

extern const char store_schema_sql[];
extern const char store_views_sql[];
extern const char store_help_sql[];

/// Message and code for the failure that the connection reports; full disks are VARVE_ERROR_FULL.
int schema_error(sqlite3 *db, const char *path, const char *what, struct varve_message *message);
/// Statements without results.
int schema_execute(sqlite3 *db, const char *path, const char *sql, const char *what, struct varve_message *message);
/// `sql` (sql_row_insert and its like) with a table and so many values; NULL if there is no memory.
char *schema_row_sql(const char *sql, const char *table, unsigned count);
/// A statement that is kept, of a text of sqlite3_malloc's, or NULL, which is freed; NULL on failure.
sqlite3_stmt *schema_prepare(sqlite3 *db, char *sql);
/// Settings that SQLite accepts only before its first use; a later call has no effect.
void schema_configure(void);
/// A database for writing. `*db_out` is the caller's to close even after an error.
int schema_open(const char *path, sqlite3 **db_out, struct varve_message *message);
/// `is_private`: no log, so no rollback; after an error the file is useless.
int schema_pragmas(sqlite3 *db, const char *path, bool is_private, struct varve_message *message);
/// Tables, views and the vocabulary of a new database.
int schema_create(sqlite3 *db, const char *path, struct varve_message *message);
/// As table `domain` has it; of a code below DOMAIN_LIMIT, not 0.
const char *schema_domain_name(unsigned domain);
/// An existing database is ours, of this program's version, and not complete. `*is_empty_out`: it has no
/// tables at all, since its collector died before it made them.
int schema_verify(sqlite3 *db, const char *path, bool *is_empty_out, struct varve_message *message);
/// Of one that is not empty: it has all columns, no other. They may be added without another version of the schema, but
/// who goes on with a database writes and reads all of them.
int schema_verify_columns(sqlite3 *db, const char *path, struct varve_message *message);
/// The one integer that a query gives, 0 for NULL; `*value_out` is untouched if there is no row.
int schema_query(sqlite3 *db, const char *path, const char *sql, int64_t *value_out, struct varve_message *message);
/// The last step before statistics.
int schema_index(sqlite3 *db, const char *path, struct varve_message *message);

#endif
