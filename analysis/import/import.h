/* SPDX-License-Identifier: Apache-2.0 */
/* What cli/command_import.c hands on, by kind of source. */
#ifndef VARVE_ANALYSIS_IMPORT_IMPORT_H
#define VARVE_ANALYSIS_IMPORT_IMPORT_H

#include "analysis/history/history.h"
#include "analysis/history/history_read.h"
#include "analysis/history/infer_device.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdint.h>
#include <stdio.h>

struct input_stream;
struct progress;
struct varve_writer;

struct import_result {
    uint64_t events, callsites, segments;
    bool starts_late;
    char inferred[HISTORY_WORDS_BYTES]; /* what was (history_inferred_words); "": nothing */
};

/// A snapshot of PyTorch into a database: its state at the beginning if it was recorded late, its events,
/// call sites, settings and final segments. The writer's own errors stick to it. Errors: VARVE_ERROR_FORMAT.
int import_pytorch(const struct history *history, struct varve_writer *writer, struct progress *progress,
                   struct import_result *result, struct varve_message *message);

/// The same of what was read from `path` into a new database; nothing is left behind by an error. The caller owes
/// varve_writer_finish, for which the history is not needed any more. Errors: that, and those of the writer.
int import_pytorch_begin(const struct history *history, const char *path, const char *output, bool may_replace,
                         struct progress *progress, struct import_result *result, struct varve_writer **writer_out,
                         struct varve_message *message);
/// The same from a stream, which is taken, into a new database; nothing is left behind by an error. Errors: those of
/// history_read_pytorch and of the writer.
int import_pytorch_stream(struct input_stream *input, const char *path, const char *output, bool may_replace,
                          struct progress *progress, struct import_result *result, struct varve_message *message);
/// The same from a file into a new database; nothing is left behind by an error. Errors: those of
/// history_read_pytorch and of the writer.
int import_pytorch_file(const char *path, const char *output, bool may_replace, struct progress *progress,
                        struct import_result *result, struct varve_message *message);

/* cli/record_histories.c: what a recorded PyTorch left of its own history */

/// Make a database of each PREFIX.PID.pickle: PREFIX.PID.db, in place of the pickle, or nothing if no memory was asked
/// for. One that can't be read is left as it is, with a line on `err`. `largest`: path of the database with the most
/// events; "": there is none. False: there is no such pickle.
bool record_histories(const char *prefix, bool may_replace, struct progress *progress, FILE *err, char *largest,
                      size_t largest_bytes);
/// That some were expected, in a line.
void record_histories_missing(const char *prefix, FILE *err);

/*
 * The pools of an imported snapshot: the allocator's own, or a private one of a CUDA graph or a MemPool. Newer events
 * name theirs; of others the segments at the end do, and what is gone by then is worked out: by following the history,
 * as a replay does, or, where it does not come out, by the events alone. Called by import_pytorch.c.
 */

struct import_pools;

/// Of all devices of the history, which is borrowed; where events contradict each other, all pools are the allocator's
/// own. Owner: the caller, by import_pools_free.
struct import_pools *import_pools_new(const struct history *history, struct progress *progress);
void import_pools_free(struct import_pools *pools);
/// The state before the first event with the pools of its segments; NULL: there are no private ones. Owner: `pools`.
const struct varve_alloc_snapshot *import_pools_start(const struct import_pools *pools, unsigned device);
/// The number in the database of the pool of an event.
uint16_t import_pools_of_event(const struct import_pools *pools, unsigned device, size_t event, bool is_small);
/// The same of a segment of the start.
uint16_t import_pools_of_segment(const struct import_pools *pools, unsigned device,
                                 const struct varve_segment_info *segment);
/// What `number` means, if the database does not have it yet.
void import_pools_write(struct import_pools *pools, struct varve_writer *writer, unsigned device, uint16_t number);

#endif
