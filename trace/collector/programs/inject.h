/* SPDX-License-Identifier: Apache-2.0 */
/* A function call in another process, by one of its threads, which is traced for the time of it. */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_INJECT_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_INJECT_H

#include "trace/collector/programs/thread_look.h"
#include "trace/collector/programs/attach_target.h"

#include <stdbool.h>
#include <stdint.h>

struct varve_message;

struct inject_call {
    const char *function; /* of libvarve_preload.so */
    uint64_t function_at; /* its address in the file; 0: it is looked up there */
    const char *argument; /* a text, or NULL */
    const char *library;  /* path of libvarve_preload.so, to be loaded first if it is not there yet */
    unsigned avoids;      /* enum place: where the thread that makes it must not be */
    bool needs_quiet;     /* only once no thread is inside the library */
    void (*idle)(
        void *context); /* called every few milliseconds meanwhile: threads may wait for the collector; or NULL */
    void *idle_context;
};

struct inject_result {
    int answer;          /* of the function */
    uint64_t stopped_ns; /* how long one thread was held */
};

/// Let a thread of `target` make the call, all other threads running; then it goes on where it was. A fault of the call
/// that the program handles is left to it. Made by a child of this process, whose end leaves nothing traced; where that
/// is killed (SIGKILL, to it alone) in the milliseconds of the call, the program dies. Errors, with the process as it
/// was: VARVE_ERROR_NOT_FOUND (it has ended), PERMISSION (it may not be traced), BUSY (no thread was at a place where
/// it may call, one was inside the loader all the time, somebody else traces one, or a lock was not let go of),
/// UNSUPPORTED (the library can't be loaded there). IO, and BUSY after 30 s: the call was ended midway; the thread goes
/// on where it was, but what the call had locked stays so, and the message says it.
int inject_call(const struct target *target, const struct inject_call *call, struct inject_result *result,
                struct varve_message *message);

#endif
