/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder into and out of a process that runs already. Threads: one. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_RUN_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_ATTACH_RUN_H

#include "trace/collector/programs/attach_target.h"

#include <stdint.h>

struct varve_message;

struct attach {
    struct target target;
    char library[TARGET_PATH_BYTES]; /* libvarve_preload.so, absolute */
    uint64_t detach_at, release_at;  /* addresses of functions in it: the file may be replaced while it is loaded */
    uint64_t stopped_ns;             /* how long its thread was held by attach_start */
};

/// Can `pid` be attached to? Nothing is changed. Errors: those of target_open; VARVE_ERROR_BUSY: it is
/// recorded already.
int attach_check(struct attach *attach, int32_t pid, const char *library, struct varve_message *message);

/// From the return of this on the process is recorded into `directory`, absolute. What a recording whose collector died
/// has left in it goes first. Errors: those of inject_call; UNSUPPORTED.
int attach_start(struct attach *attach, const char *directory, struct varve_message *message);

/// Hooks out: nothing more is recorded of `pid`, a thread that is inside one now still is. `idle` (or NULL) is called
/// meanwhile, for threads that wait until the collector has made room. `attach` is that of the process or of its
/// parent; NULL: nobody has it.
/// Errors: those of inject_call.
int attach_stop(const struct attach *attach, int32_t pid, void (*idle)(void *context), void *idle_context,
                struct varve_message *message);
/// And its memory for the recording goes, once no thread is inside. Errors: those of inject_call.
int attach_release(const struct attach *attach, int32_t pid, struct varve_message *message);

/// The recording of `pid` by attach_start. Errors, with one line: those of target_open; NOT_FOUND: it has none;
/// UNSUPPORTED: it is one from its start.
int attach_find(int32_t pid, struct session_mapped *recording_out, struct varve_message *message);

/* Processes that have inherited the hooks of an attached one. */

/// Calls `take` for each process that has this recording mapped and was started at `since_ticks` (proc_file_started) or
/// later: of whatever user and namespace it is, and whether or not it has recorded anything. Reads all of /proc.
void hooked_each(uint64_t trace_id, uint64_t since_ticks, void (*take)(void *context, int32_t pid), void *context);

#endif
