/* SPDX-License-Identifier: Apache-2.0 */
/* What a recording under way says of itself, as tables. */
#ifndef VARVE_ANALYSIS_TOP_TOP_FIGURES_H
#define VARVE_ANALYSIS_TOP_TOP_FIGURES_H

#include <stddef.h>
#include <stdint.h>

struct database;
struct varve_message;

/// The document of varve_watch_read; `path`: for messages. `*figures_out`: NULL if it is that of moment `known`, or on
/// an error. Owner: the caller, by database_close. Errors: VARVE_ERROR_FORMAT, VERSION, and those of the database.
int figures_open(const char *path, const void *bytes, size_t count, int64_t known, struct database **figures_out,
                 struct varve_message *message);
/// More rows, of a document that has arrays of the same names. Between PRAGMA query_only = 0 and 1; errors:
/// database_error.
void figures_extend(struct database *figures, const char *document);

#endif
