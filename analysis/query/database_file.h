/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is, judged before SQLite touches it. Called by database.c, and by history, which takes other files as
 * well. */
#ifndef VARVE_ANALYSIS_QUERY_DATABASE_FILE_H
#define VARVE_ANALYSIS_QUERY_DATABASE_FILE_H

#include <stdbool.h>

struct varve_message;

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
