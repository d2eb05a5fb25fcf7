/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of other tools, recognised by their first bytes, as trace databases. Called by cli/command_import.c. */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_LOG_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_LOG_H

#include "analysis/import/import_requests.h"

struct input_stream;

enum import_source {
    IMPORT_SOURCE_UNKNOWN,
    IMPORT_SOURCE_PYTORCH,  /* a snapshot: a pickle, or its JSON */
    IMPORT_SOURCE_RMM,      /* import_rmm.h */
    IMPORT_SOURCE_PROFILER, /* import_profiler.h */
    IMPORT_SOURCE_DATABASE, /* SQLite: import_nsight.h, or a trace database */
};

/// What the stream's first bytes are; they stay in it. Errors: those of the stream.
int import_recognise(struct input_stream *input, enum import_source *source_out, struct varve_message *message);
/// A log into a new database; nothing is left behind by an error. `input` is that of the first path, and is taken.
/// Several are logs of RMM, one for each device: its number is in the name (NAME.devN.csv, as RMM makes them), else it
/// is the place in the list.
/// Errors: VARVE_ERROR_FORMAT (one is no log, or there is nothing in it), those of the streams and of the writer.
int import_log(const char *const *paths, size_t count, struct input_stream *input, enum import_source source,
               const char *output, bool may_replace, struct progress *progress, struct import_log_result *result,
               struct varve_message *message);

#endif
