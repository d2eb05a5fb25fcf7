/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of PyTorch for commands that answer from databases: it is imported below TMPDIR, and the database goes
 * with the answer. Called by cli/ and top/.
 */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORTED_SNAPSHOT_H
#define VARVE_ANALYSIS_IMPORT_IMPORTED_SNAPSHOT_H

#include "analysis/history/history.h"

#include <stdbool.h>

struct database;
struct progress;
struct varve_message;

struct imported {
    struct database *database; /* borrowed by the commands; its path, for messages, is the snapshot's */
    char folder[4096];         /* of this command alone; "": none */
};

/// A folder below TMPDIR for this command alone, with its name in `folder`; "" on an error. The caller owes
/// varve_publish_folder_remove. Errors: those of varve_publish_folder_make.
int imported_folder_make(char *folder, size_t bytes, struct varve_message *message);
/// A regular file that begins as the pickles of PyTorch do, compressed or not. `history_out`: what it holds; NULL:
/// it begins otherwise. Owner: the caller, by history_free. Errors: those of history_read_pytorch.
int imported_read(const char *path, struct history **history_out, struct progress *progress,
                  struct varve_message *message);
/// The database of a history that was read from `path`; the history is taken, and gone before most memory is needed.
/// The caller owes imported_close in any case. Errors: those of import_pytorch and of the writer.
int imported_take(struct history *history, const char *path, struct imported *imported, struct progress *progress,
                  struct varve_message *message);
void imported_close(struct imported *imported);

#endif
