/* SPDX-License-Identifier: Apache-2.0 */
/* Full rings: spill, wait or drop, as the session says. Threads: each its own, with signals blocked. */
#ifndef VARVE_TRACE_RECORDER_OVERFLOW_H
#define VARVE_TRACE_RECORDER_OVERFLOW_H

#include "trace/recorder/ring.h"
#include "trace/record.h"

/// Put a record where the overflow policy says; `emitted` was counted already.
void overflow_put(struct recorder_thread *thread, const struct varve_record *record);

#endif
