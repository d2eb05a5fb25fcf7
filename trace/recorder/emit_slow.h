/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission off the fast path of emit.h: the first event of a thread or of a fork child, full rings, nested
 * events, threads that end.
 */
#ifndef VARVE_TRACE_RECORDER_EMIT_SLOW_H
#define VARVE_TRACE_RECORDER_EMIT_SLOW_H

#include "trace/record.h"
#include "trace/recorder/ring.h"

#include <stdbool.h>
#include <stdint.h>

/// Find the session and prepare the process, before its first event and while it has one thread. False:
/// nothing is to be recorded, hooks can switch off.
bool recorder_prepare(void);

/// The recording of this process is over: rings and what threads keep for them go. No thread is inside the recorder,
/// and none comes before the next recording. Signals are blocked.
void recorder_threads_release(void);
/// And the numbers of streams and devices (device_names.c).
void device_names_release(void);

/// This thread is about to confine itself (guest/confinement.h): what it may need later is made now.
void recorder_thread_prepare(void);

/*
 * The second sink (format/sink_provider.h) inside the workload: the provider library, and records on their
 * way to it.
 */

/// Open the provider library if the session asks for it. Once per process image, from a constructor.
void second_sink_open(void);
/// Report it a record that is about to be committed, and mark the record, if it wants that kind.
void second_sink_emit(struct recorder_thread *thread, struct varve_record *record);
/// Now and then: events may be enabled in a trace that has begun, of which there is no notice.
void second_sink_check(void);
/// From the program's exit handlers on: does this code belong to the provider, which now tidies up?
bool second_sink_owns_code(uintptr_t pc);
extern bool second_sink_is_closed;
/// This thread is one of the provider's own: it works for us, and nothing that it does is the program's.
bool second_sink_owns_thread(void);

#endif
