/* SPDX-License-Identifier: Apache-2.0 */
/* A finished database moves to its place. The rest of publish.c is in trace.h. */
#ifndef VARVE_TRACE_STORE_PUBLISH_H
#define VARVE_TRACE_STORE_PUBLISH_H

#include <stdbool.h>

struct varve_message;

/// A copy of the file `from` grows beside `path` and moves there. Errors: as varve_publish_folder_make and _move.
int publish_copy(const char *from, const char *path, bool may_replace, struct varve_message *message);
/// Move trace.db of `folder` to `path`. Errors: as varve_publish_move.
int publish_file(const char *folder, const char *path, bool may_replace, struct varve_message *message);

#endif
