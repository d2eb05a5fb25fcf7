/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's monotonic clock (varve_clock_monotonic_ns of emit.h), the moment at which a process has
 * left the time stamp counter, and retries at rising intervals. Threads: any; async-signal-safe.
 */
#ifndef VARVE_TRACE_GUEST_GUEST_CLOCK_H
#define VARVE_TRACE_GUEST_GUEST_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/// A thread is about to lose the time stamp counter: from now on all ask varve_clock_ticks_elsewhere.
void recorder_clock_leave(void);
/// When this process last read its clock freely; 0: it still does.
uint64_t recorder_clock_left_ticks(void);

/* What failed is tried again, at rising intervals. */
struct recorder_retry {
    uint64_t next_ns; /* CLOCK_MONOTONIC, not before; 0: it has not failed. Atomic, like the next */
    uint64_t step_ns;
};

bool recorder_retry_is_due(const struct recorder_retry *retry);
void recorder_retry_later(struct recorder_retry *retry);

#endif
