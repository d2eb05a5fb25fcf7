/* SPDX-License-Identifier: Apache-2.0 */
/* Blocked signals. Threads: any; async-signal-safe. */
#ifndef VARVE_TRACE_GUEST_GUEST_SIGNALS_H
#define VARVE_TRACE_GUEST_GUEST_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

struct recorder_signals {
    uint64_t mask;   /* the kernel's, not the larger one of the C library */
    bool is_blocked; /* false: they are as they were, the thread is confined */
};

/// Around what no handler may interrupt. A confined thread can't: its signals stay as they are.
void recorder_signals_block(struct recorder_signals *saved);
void recorder_signals_restore(const struct recorder_signals *saved);

#endif
