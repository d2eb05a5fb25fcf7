/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * Who can dump its state when asked: sources that were added by varve_state_source_add.
 */
#ifndef VARVE_TRACE_RECORDER_STATE_SOURCES_H
#define VARVE_TRACE_RECORDER_STATE_SOURCES_H

#include "trace/sink.h"

/// Ask every source that is there now, one after the other; one dump at a time, the next ones wait. Nothing
/// in a fork child but what was added there. Threads: any, with no lock in hand that a source could want.
void state_sources_dump(const struct varve_state_sink *sink);

#endif
