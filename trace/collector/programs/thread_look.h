/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a process, looked at one after the other: is none where it must not be, and which may make a call?
 * Threads: one, in a process as thread_stop.h wants it.
 */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_LOOK_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_LOOK_H

#include "trace/collector/programs/thread_place.h"
#include "trace/collector/programs/attach_target.h"
#include "base/error.h"

#include <stdint.h>

struct look {
    const struct target *target;
    struct place_rules rules;
    struct symbols_running *running;
    struct varve_message *message;
    int32_t parent; /* without it, killed meanwhile, a search ends; 0: it goes on */
    int error;      /* what has ended the search; the message has it in words */
};

/// Returns once no thread is in `place`, PLACE_LOADER or PLACE_RECORDER. Of a thread that can't be looked at it is
/// taken that it is not inside the loader, and that it is inside the recorder. Errors: BUSY after 5 s, or somebody else
/// traces a thread; PERMISSION; NOT_FOUND: the process has ended.
int look_for_none(struct look *look, unsigned place);
/// A thread that is in none of the places `avoids`, a mask, which is stopped now, since `stopped_ns`. Errors: the same.
int look_for_caller(struct look *look, unsigned avoids, int32_t *tid_out, uint64_t *stopped_ns_out);

/// It is not what it was: it has ended, or has executed a program.
int look_say_gone(struct look *look);

#endif
