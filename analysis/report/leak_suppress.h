/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suppressions of leaks, as LeakSanitizer's: lines `leak:PATTERN`. A pattern matches a part of a function, a file or a
 * module of any frame; `*` is any text, `^` at its beginning and `$` at its end stand for those of the name. Blank
 * lines and those that begin with # say nothing.
 */
#ifndef VARVE_ANALYSIS_REPORT_LEAK_SUPPRESS_H
#define VARVE_ANALYSIS_REPORT_LEAK_SUPPRESS_H

#include <stdbool.h>
#include <stdint.h>

struct database;
struct suppressions;
struct varve_message;

/// Those of the file at `path` (NULL: none) and of [suppressions] in the user's files. `*out` is NULL if there are
/// none. Owner: the caller, by suppressions_free. Errors: those of reading, INVALID for a line that is none.
int suppressions_load(struct suppressions **out, const char *path, struct varve_message *message);
/// Does one of them match a frame of the call site?
bool suppressions_match(const struct suppressions *suppressions, struct database *database, int64_t callsite_id);
void suppressions_free(struct suppressions *suppressions);

#endif
