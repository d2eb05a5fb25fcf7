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

/// The built-in table with [plumbing] of the user's files and `patterns`; NULL: there are none of either. Owner: the
/// caller, by varve_plumbing_close. Errors: VARVE_ERROR_INVALID (a pattern), those of user_config_load.
int hidden_patterns(const char *const *patterns, size_t count, struct varve_plumbing **plumbing_out,
                    struct varve_message *message);
/// Choose the user's lines of `database` by these; without patterns nothing is done. `*all_out`: the number of call
/// sites, if none of them has a frame that is not hidden, else 0. Errors: those above and of the database.
int database_hide(struct database *database, const char *const *patterns, size_t count, size_t *all_out,
                  struct varve_message *message);

#endif
