/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of programs that confine themselves: after seccomp's strict mode, or a filter that kills, a system call of
 * ours ends the program, and after prctl(PR_SET_TSC) or in strict mode so does reading the time stamp counter.
 */
#ifndef VARVE_TRACE_GUEST_CONFINEMENT_H
#define VARVE_TRACE_GUEST_CONFINEMENT_H

#include "trace/format/session_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Such a thread is `confined`: recorder_syscall refuses every call with -EPERM without making it,
 * signals are not blocked, records go to the ring that was given all its memory beforehand, and what finds no
 * room there is counted as lost. The clock, where it can't be read, is what the collector has last written
 * into the session's page.
 *
 * What is known: hooks of prctl and syscall(2) see a confinement begin, on one thread or on all. A thread
 * that had a ring before anything was confined is free as long as it does not do it itself; of other threads
 * nobody knows who their parent was, so they count as confined. A process that begins with more filters than
 * the collector has (it was executed by a confined one) is confined from the start.
 */

enum recorder_confine {
    RECORDER_CONFINE_CALLS = 1, /* no system calls */
    RECORDER_CONFINE_CLOCK = 2, /* no time stamp counter */
};

/// May this thread make no system call for us? Threads: any; async-signal-safe.
bool recorder_is_confined(void);
/// The same of any of these bits.
bool recorder_is_confined_in(unsigned what);

/// This thread has its ring: if nothing is confined yet, it is known not to be. Threads: any.
void recorder_confine_thread_known(void);

/// Before the call that confines this thread, or all of them, in `what` (bits): waits until no thread is in
/// the middle of calls that it must finish (signals blocked). Returns what recorder_confine_undo takes.
uint32_t recorder_confine_begin(unsigned what, bool all_threads);
/// That call has failed.
void recorder_confine_undo(uint32_t before);

/// At the first look at the session: in what (bits) is this process confined from its start? `scratch`: room
/// for the text of /proc/self/status. Does only what the loader has done, unless nothing is confined.
unsigned recorder_confine_at_start(const struct session_control *session, char *scratch, size_t scratch_bytes);
/// From now on that holds, for all threads.
void recorder_confine_process(unsigned what);

/// Around a time with signals blocked. False: do not block them, the thread is confined, or about to be.
bool recorder_confine_section_begin(void);
void recorder_confine_section_end(void);

#endif
