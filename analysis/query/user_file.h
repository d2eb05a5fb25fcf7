/* SPDX-License-Identifier: Apache-2.0 */
/* A file of patterns that the user has written: one of the configuration folder, or one that an option names. */
#ifndef VARVE_ANALYSIS_QUERY_USER_FILE_H
#define VARVE_ANALYSIS_QUERY_USER_FILE_H

#include <stddef.h>

struct varve_message;

/// NAME of $XDG_CONFIG_HOME/varve, or of ~/.config/varve. `*text_out` is NULL if there is none, or it is another
/// user's. Owner of the text: the caller, by free. `path`: where it was looked for, for messages. Errors: IO, INVALID
/// (larger than 1 MiB).
int user_file_of_config(const char *name, char *path, size_t path_bytes, char **text_out,
                        struct varve_message *message);
/// The file at `path`, which must be there. Errors: also NOT_FOUND.
int user_file_read(const char *path, char **text_out, struct varve_message *message);

#endif
