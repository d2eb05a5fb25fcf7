/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns of the user's own: which frames reports pass over to name the user's line. A recording has the user's line
 * by the built-in table; with patterns beside it, symbols are ranked and the user's lines chosen again as the database
 * is opened, in temporary tables that stand in front of its own. Every view and every statement then says the same.
 */
#ifndef VARVE_ANALYSIS_QUERY_HIDDEN_LINES_H
#define VARVE_ANALYSIS_QUERY_HIDDEN_LINES_H

#include <stddef.h>

struct database;
struct varve_message;
struct varve_plumbing;

/// The built-in table with the file plumbing.txt of the configuration folder and `patterns`; NULL: there are none of
/// either. Owner: the caller, by varve_plumbing_close. Errors: VARVE_ERROR_INVALID (a pattern, or a line of the file),
/// those of reading the file.
int hidden_patterns(const char *const *patterns, size_t count, struct varve_plumbing **plumbing_out,
                    struct varve_message *message);
/// Choose the user's lines of `database` by these; without patterns nothing is done. `*all_out`: the number of call
/// sites, if none of them has a frame that is not hidden, else 0. Errors: those above and of the database.
int database_hide(struct database *database, const char *const *patterns, size_t count, size_t *all_out,
                  struct varve_message *message);

/* A file of patterns that the user has written: one of the configuration folder, or one that an option names. */

/// NAME of $XDG_CONFIG_HOME/varve, or of ~/.config/varve. `*text_out` is NULL if there is none, or it is another
/// user's. Owner of the text: the caller, by free. `path`: where it was looked for, for messages. Errors: IO, INVALID
/// (larger than 1 MiB).
int user_file_of_config(const char *name, char *path, size_t path_bytes, char **text_out,
                        struct varve_message *message);
/// The file at `path`, which must be there. Errors: also NOT_FOUND.
int user_file_read(const char *path, char **text_out, struct varve_message *message);

#endif
