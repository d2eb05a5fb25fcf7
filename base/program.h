/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that varve runs for itself. */
#ifndef VARVE_BASE_PROGRAM_H
#define VARVE_BASE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/// Where PATH has the program `name`. False: nowhere, and `path` holds nothing of use.
bool program_find(const char *name, char *path, size_t path_bytes);

/// The environment of this process, changed: what "NAME=VALUE" of `changes` (NULL at the end) sets, and without what
/// "NAME" names. The entries are borrowed, the caller frees the array; NULL: no memory.
char **program_environment(const char *const *changes);

/// Start `argv`, of which the first is looked for in PATH if it has no slash, with that environment and the signals of
/// a fresh process, whatever ours are; `streams` become its first three descriptors, below 0: /dev/null. In a session
/// of its own Ctrl-C does not reach it. 0 or an errno; the caller waits for it.
int program_spawn(char *const *argv, char *const *environment, const int streams[3], bool has_own_session,
                  pid_t *pid_out);

#endif
