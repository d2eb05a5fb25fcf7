/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a full ring grows by: pieces with packed records, in memory and then on the disk. Threads: each its own, with
 * signals blocked.
 */
#ifndef VARVE_TRACE_RECORDER_SPILL_H
#define VARVE_TRACE_RECORDER_SPILL_H

#include "trace/recorder/ring.h"

#include <stdbool.h>

/// All staging slots, which are full, into the newest piece. False: there is no room for them.
bool spill_flush(struct recorder_thread *thread);
/// The thread returns to its ring, which is empty. What it spills later is younger than what it will put there.
void spill_end(struct recorder_thread *thread);

#endif
