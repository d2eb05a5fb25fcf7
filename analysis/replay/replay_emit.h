/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay that is itself being recorded (varve record -- varve replay TRACE) emits its allocator's records into
 * that recording, as a program's own would be. Called by the command and replay_session.c.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_EMIT_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_EMIT_H

#include "trace/record.h"

typedef void (*replay_emit)(const struct varve_record *record);

/// Where a process that is being recorded puts its records; NULL: it is not, or by no recorder that takes
/// them. Threads: the calling thread is to make all calls of the result for one device.
replay_emit replay_emit_find(void);
/// varve_alloc_recorder.record of a replay with `emit`: replay_compare_record, then that.
void replay_emit_record(void *context, const struct varve_record *record);

#endif
