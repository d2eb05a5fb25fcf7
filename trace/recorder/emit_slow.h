/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission off the fast path of emit.h: the first event of a thread or of a fork child, full rings, nested
 * events, threads that end.
 */
#ifndef VARVE_TRACE_RECORDER_EMIT_SLOW_H
#define VARVE_TRACE_RECORDER_EMIT_SLOW_H

#include <stdbool.h>

/// Find the session and prepare the process, before its first event and while it has one thread. False:
/// nothing is to be recorded, hooks can switch off.
bool recorder_prepare(void);

/// The recording of this process is over: rings and what threads keep for them go. No thread is inside the recorder,
/// and none comes before the next recording. Signals are blocked.
void recorder_threads_release(void);

/// This thread is about to confine itself (guest/confinement.h): what it may need later is made now.
void recorder_thread_prepare(void);

#endif
