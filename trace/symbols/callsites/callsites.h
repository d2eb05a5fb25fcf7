/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * Call sites of all processes of a recording, numbered: equal stacks have equal numbers. The collector announces the
 * call-site files (format/callsite_file.h) and asks for the number of each event's call site; at the end the frames are
 * resolved and written.
 */
#ifndef VARVE_TRACE_SYMBOLS_CALLSITES_CALLSITES_H
#define VARVE_TRACE_SYMBOLS_CALLSITES_CALLSITES_H

#include "trace/store/store.h"

#include <stdint.h>

struct store;
struct varve_message;

struct callsites;

int callsites_open(struct callsites **callsite_file_out);
void callsites_close(struct callsites *callsites);

struct callsite_file_entry;

/// Called with each sound entry of a call-site file (format/callsite_file.h), in the order of the file. Borrowed.
typedef void callsites_listener(void *context, uint32_t process_id, const struct callsite_file_entry *entry,
                                const uint8_t *payload);
void callsites_listen(struct callsites *callsites, callsites_listener *listener, void *context);
/// Hand the listener once more all entries that were taken of files that are still there.
void callsites_replay(const struct callsites *callsites);

/// Announce the call-site file of a process (it may not exist yet, or never).
int callsites_process(struct callsites *callsites, uint32_t process_id, const char *path);
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
/// Write module, symbol, stack_node, callsite: symbols are resolved now, with elfutils, in parallel with
/// nothing. Native and Python frames are merged: each run of interpreter-loop frames stands for its Python
/// frames.
int callsites_finish(struct callsites *callsites, struct store *store, store_progress progress, void *context,
                     struct varve_message *message);

#endif
