/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the recorder into code that may come back to it: dlsym, the loader, a provider library. What
 * they do on this thread is not the program's.
 */
#ifndef VARVE_TRACE_GUEST_REENTRANT_H
#define VARVE_TRACE_GUEST_REENTRANT_H

#include "trace/guest/guest_signals.h"

#include <stdint.h>

/// Enter and leave code that may allocate by itself on this thread: its calls are not recorded.
/// Blocks all signals meanwhile, so that a handler's allocations are never taken for our own. Nests.
void recorder_reentrant_begin(struct recorder_signals *saved);
void recorder_reentrant_end(const struct recorder_signals *saved);

/// Above 0 between the two, on this thread: hooks must pass through.
extern __thread uint32_t recorder_reentrant_depth __attribute__((tls_model("initial-exec")));

#endif
