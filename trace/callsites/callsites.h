/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call sites of all processes of a recording, numbered: equal stacks have equal numbers. The collector announces the
 * call-site files (format/callsite_format.h) and asks for the number of each event's call site. Once the frames have
 * their names, stacks that are the same line by line become one row of the database.
 */
#ifndef VARVE_TRACE_CALLSITES_CALLSITES_H
#define VARVE_TRACE_CALLSITES_CALLSITES_H

#include "trace/store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct store;
struct store_symbol;
struct varve_message;

struct callsites;

int callsites_open(struct callsites **callsite_file_out);
void callsites_close(struct callsites *callsites);

struct callsite_file_entry;

/// Called with each sound entry of a call-site file (format/callsite_format.h), in the order of the file. Borrowed.
typedef void callsites_listener(void *context, uint32_t process_id, const struct callsite_file_entry *entry,
                                const uint8_t *payload);
void callsites_listen(struct callsites *callsites, callsites_listener *listener, void *context);
/// Hand the listener once more all entries that were taken of files that are still there.
void callsites_replay(const struct callsites *callsites);

/// Announce the call-site file of a process (it may not exist yet, or never).
int callsites_process(struct callsites *callsites, uint32_t process_id, const char *path);
/// What that file holds, read so far or not, is now found in `path` from `base` on, `bytes` of it at most; 0: all that
/// follows.
int callsites_moved(struct callsites *callsites, uint32_t process_id, const char *path, uint64_t base, uint64_t bytes);
/// The process of a file that was announced, while it lives: its modules are held as they are, for names that are
/// looked up later. `pid`: its number here.
void callsites_process_lives(struct callsites *callsites, uint32_t process_id, int32_t pid);
/// A program is about to be started: its file is held as well.
void callsites_program(struct callsites *callsites, const char *path);
/// Done with the file of a process: reads what is left and closes it.
void callsites_process_end(struct callsites *callsites, uint32_t process_id);

/// Number of a call site, equal for equal stacks (module, address in the module, Python frames) of all
/// processes; `local` is varve_record.callsite, 0 gives 0. 0 also for a number that the file does not hold.
uint32_t callsites_global(struct callsites *callsites, uint32_t process_id, uint32_t local);

/// Before each store_commit: remembers where the call sites numbered since the last one were first seen
/// (table callsite_origin), so that an interrupted recording can be continued with the same numbers.
int callsites_commit(struct callsites *callsites, struct store *store);
/// After all processes of an interrupted recording were announced: takes the numbers from callsite_origin.
int callsites_resume(struct callsites *callsites, struct store *store, struct varve_message *message);
/// While the program runs, between rounds: a millisecond's work on names and rows of call sites that were read. Names
/// are looked up in a thread of low priority. `*more_out`: there is more that could be done at once. What goes wrong,
/// callsites_finish says. Not by who continues a recording.
void callsites_step(struct callsites *callsites, struct store *store, bool *more_out);
/// While the program runs: the frames that a call site is known by, as far as callsites_step has come: `user_out`, the
/// innermost that is not plumbing, and `symbol_out`, the innermost that is no allocation function. Texts are borrowed
/// until the next call of any function here. False: not yet, or not now, while the thread that looks names up is at it.
bool callsites_symbols(struct callsites *callsites, uint32_t callsite, struct store_symbol *user_out,
                       struct store_symbol *symbol_out);
/// After the last event, before callsites_merge_all: the remaining names are looked up in a thread while the caller
/// goes on.
int callsites_hurry(struct callsites *callsites, struct varve_message *message);
/// Before the first event: rows of call sites wait until callsites_join has said which are kept.
int callsites_hold(struct callsites *callsites, struct varve_message *message);
/// Until all names are known and all stacks have their rows, which go into the store with their nodes, and which
/// callsites_row then knows. May be called again after an error of the store.
int callsites_merge_all(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                        struct varve_message *message);

/// The row of `callsite` of a call site (callsites_global): stacks with the same lines have the same row, and rows are
/// numbered in the order of their first call sites. 0 for 0; UINT32_MAX while it is not known. Those of a smaller
/// number are known earlier.
uint32_t callsites_row(const struct callsites *callsites, uint32_t number);
/// The same of all that are known: of number n at [n], below `*limit_out`. Borrowed until the next call of any function
/// here but callsites_row.
const uint32_t *callsites_rows(const struct callsites *callsites, size_t *limit_out);
uint32_t callsites_row_count(const struct callsites *callsites);
/// After callsites_merge_all, before callsites_finish: rows that are small give up their stacks. `sizes[n]`: enum
/// join_size (model/derive_join.h) of row n, from 1 to callsites_row_count; `joined[n]` becomes the row whose figures
/// have its own from then on: itself, or the one that all small ones share which leave the kept stacks at the same
/// frame. The unused go. To be called once; callsites_row then says which row is left.
int callsites_join(struct callsites *callsites, const uint8_t *sizes, uint32_t *joined, struct varve_message *message);
/// Write what callsites_merge_all has not: module, symbol, and all rows of what was held back. Native and Python frames
/// are merged: each run of interpreter-loop frames stands for its Python frames.
int callsites_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                     struct varve_message *message);

#endif
