/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user has set in files: defaults of options, frames that are plumbing, leaks that are known. The user's own
 * file is config in $XDG_CONFIG_HOME/varve or ~/.config/varve; behind it comes that of the project, varve.ini in the
 * working directory or the nearest one above. VARVE_CONFIG names one file in place of both; empty: none.
 *
 *     [record]                 a command: its options, but those that name files, and --force
 *     keep = totals
 *     [plumbing]               KIND = PATTERN, as trace/callsites/plumbing.txt has them
 *     [suppressions]           leak = PATTERN
 */
#ifndef VARVE_ANALYSIS_BASE_USER_CONFIG_H
#define VARVE_ANALYSIS_BASE_USER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#define CONFIG_FILES 2

struct varve_message;

struct config_file {
    char path[4096];
    bool is_there;
};

struct config_entry {
    char *section, *key, *value;
    const struct config_file *file;
    unsigned line;
};

struct user_config {
    struct config_file files[CONFIG_FILES]; /* where they are looked for; "": nowhere */
    struct config_entry *entries;           /* as they stand, one file behind the other */
    size_t count, capacity;
};

/// Owner: the caller, by user_config_free, after an error too; it stays where it is. A file that belongs to somebody
/// else who does not show it is none. Errors, which name file and line: VARVE_ERROR_INVALID (no such line may be), IO,
/// NOT_FOUND (the one that VARVE_CONFIG names).
int user_config_load(struct user_config *config, struct varve_message *message);
void user_config_free(struct user_config *config);
/// The next entry of a section behind `entry`, or the first behind NULL; NULL: there is none.
const struct config_entry *user_config_next(const struct user_config *config, const char *section,
                                            const struct config_entry *entry);
/// Sets a reason behind the place of an entry, and returns VARVE_ERROR_INVALID.
int user_config_refuse(const struct config_entry *entry, const char *reason, struct varve_message *message);

#endif
