/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that are there whole or not at all: they grow in a folder beside their place, and move.
 */
#ifndef VARVE_BASE_PUBLISH_H
#define VARVE_BASE_PUBLISH_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/// May a result be put at `path`? What is there must be a file, or a link (which is not followed: it would be
/// replaced itself) that does not lead to anything else. Errors: VARVE_ERROR_INVALID.
int varve_publish_check(const char *path, bool may_replace, struct varve_message *message);
/// A new folder beside `path`, for what will be moved there; its name into `folder`. Errors: as
/// varve_publish_check; VARVE_ERROR_INVALID (too long a name), NOT_FOUND, PERMISSION, FULL, IO.
int varve_publish_folder_make(const char *path, bool may_replace, char *folder, size_t folder_bytes,
                              struct varve_message *message);
/// The folder goes, with the files in it.
void varve_publish_folder_remove(const char *folder);
/// Move the file or folder `from` to `path`, a file to another file system by way of a copy beside `path`; without
/// may_replace nothing is ever overwritten. Errors: VARVE_ERROR_INVALID (something is there), FULL, IO;
/// `from` stays then.
int varve_publish_move(const char *from, const char *path, bool may_replace, struct varve_message *message);
/// The folder that is being filled goes: for those about to call _exit, and for handlers of signals. Needs no memory.
void varve_publish_abandon(void);
/// A copy of the file `from` grows beside `path` and moves there. Errors: as varve_publish_folder_make and _move.
int publish_copy(const char *from, const char *path, bool may_replace, struct varve_message *message);
/// Move trace.db of `folder` to `path`. Errors: as varve_publish_move.
int publish_file(const char *folder, const char *path, bool may_replace, struct varve_message *message);

#endif
