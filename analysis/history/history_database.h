/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What import and replay write of a history into a trace database beyond its events: settings, the time origin,
 * and the segments at the end, as only a snapshot says how large its blocks were. The reader of databases
 * (history_read.h) takes them from there.
 *
 *   key of meta                            value
 *   allocator.conf                         settings in PyTorch's syntax
 *   allocator.max_split_size               bytes, -1: unlimited
 *   allocator.garbage_collection_threshold text of a fraction
 *   allocator.expandable_segments          0 or 1
 *   allocator.roundup_power2_divisions     16 numbers, separated by spaces
 *   history.begin_us                       time of ts_ns 0 in the source's clock
 *   history.segments.N                     final segments of device N: a line for each segment, followed by
 *                                          one for each of its blocks, all numbers hexadecimal:
 *     s ADDR SIZE STREAM POOL POOL SMALL EXPANDABLE ALLOCATED ACTIVE REQUESTED CALLSITE
 *     b ADDR SIZE REQUESTED STATE CALLSITE
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_DATABASE_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_DATABASE_H

#include "analysis/history/history.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct database;
struct varve_writer;

void history_write_settings(struct varve_writer *writer, const struct history_settings *settings, int64_t begin_us);
/// `callsites`: number in the database of each of the history's stacks; NULL: none.
void history_write_final(struct varve_writer *writer, const struct history *history, unsigned index,
                         const uint32_t *callsites);
/// A row of meta from what was printed to `out`, a stream into memory, with its `text`, which ends here.
void history_write_lines(struct varve_writer *writer, const char *key, FILE *out, char **text);
/// Each line of such a row to `take`, which may change it, until that says false: VARVE_ERROR_CORRUPT.
int history_read_lines(struct database *database, const char *key, bool (*take)(void *context, char *line),
                       void *context, bool *is_found_out, struct varve_message *message);

/*
 * A trace database without a caching allocator's decisions as a history all the same: of the requests that a program
 * made to something else, so that other policies can be tried on them. history_database.c asks.
 *
 * That is the case where `meta.history.requests` names the domain whose allocations are the requests (imports of other
 * tools' logs), and where there are no events of allocators, but allocations of device memory: what a program
 * asked of the driver.
 */

struct history;
struct history_stacks;
struct progress;
struct varve_message;

bool history_is_of_requests(struct database *database);
/// Into a history without events. Errors: VARVE_ERROR_UNSUPPORTED (of several processes), those of the
/// database come later.
int history_read_requests(struct database *database, struct history *history, struct history_stacks *stacks,
                          struct progress *progress, struct varve_message *message);

/*
 * Call sites of a trace database as stacks of a history, each when it is first asked for: a database may have many more
 * of them than its allocators' events name. It owns the nodes in memory. history_database.c asks.
 */

/// Both must outlive it. Errors of the database: database_error. Owner: the caller, by history_stacks_free.
struct history_stacks *history_stacks_new(struct database *database, struct history *history);
/// The stack of a call site; 0, the empty one, if there is none.
uint32_t history_stacks_of(struct history_stacks *stacks, uint64_t callsite);
/// VARVE_ERROR_UNSUPPORTED: the stacks asked for were too many to be kept, and some came out empty.
int history_stacks_error(const struct history_stacks *stacks, struct varve_message *message);
void history_stacks_free(struct history_stacks *stacks);

/*
 * What a snapshot has beside events, call sites, settings and segments, in the database that it is imported into: so
 * that an export of the database gives the snapshot back. A text of `meta` for each device and one for the whole.
 */

/* Numbers of events of one device, rising. */
struct history_numbers {
    size_t *items;
    size_t count, capacity;
};

/// `callsites`: of the history's stacks, by number; `moved`: by device, events that have another time in the database.
/// Nothing is written of a history that is from no snapshot.
void history_write_rests(struct varve_writer *writer, const struct history *history, const uint32_t *callsites,
                         const struct history_numbers *moved);
/// After the events were read. VARVE_ERROR_CORRUPT.
int history_read_rests(struct database *database, struct history *history, struct history_stacks *stacks,
                       struct varve_message *message);

#endif
