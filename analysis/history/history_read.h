/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files read as histories: a PyTorch snapshot (snapshot/) or a trace database (history_database.c). Called by the
 * commands. The result is the caller's, by history_free.
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_READ_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_READ_H

#include "analysis/history/history.h"
#include "base/error.h"

struct progress;

/// Read a PyTorch snapshot, plain or compressed. Executes nothing that the file says. Errors, each with file,
/// offset in the (uncompressed) stream and what is wrong: VARVE_ERROR_NOT_FOUND, PERMISSION, FORMAT, IO.
int history_read_pytorch(const char *path, struct history **history_out, struct progress *progress,
                         struct varve_message *message);
/// The blocks of caching allocators in a trace database.
int history_read_database(const char *path, struct history **history_out, struct progress *progress,
                          struct varve_message *message);
/// A file that begins as databases do.
bool history_is_database(const char *path);
/// Either of them, by what the file is.
int history_read(const char *path, struct history **history_out, struct progress *progress,
                 struct varve_message *message);

/*
 * PyTorch's recorder leaves actions out if it is asked to (skip_actions). Of a free that has only its request or only
 * its completion, the other one is put beside it. Called by the reader of snapshots.
 */

/// history_device.inferred says of which actions all events are made here; their times and stacks are those of the
/// events that they stand beside.
void history_infer_skipped(struct history *history);
#define HISTORY_WORDS_BYTES 600

/// What of the history was inferred, or could not be read, in words without a full stop; "": nothing.
void history_inferred_words(const struct history *history, char *text, size_t bytes);

#endif
