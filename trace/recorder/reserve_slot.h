/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory for a process that can't make files any more: it has changed its user or root, has no descriptor left,
 * or may write no file. The collector has it ready in slots (format/session_format.h). Threads: any, with signals
 * blocked.
 */
#ifndef VARVE_TRACE_RECORDER_RESERVE_SLOT_H
#define VARVE_TRACE_RECORDER_RESERVE_SLOT_H

#include "trace/format/session_format.h"

#include <stddef.h>
#include <stdint.h>

/// A slot for ring `ring` of `process`, or for the page of the process and its call sites: its first `bytes`, zeroed,
/// not mapped in fork children; the caller's, by recorder_unmap, and the slot is the collector's once what is in it has
/// ended. Waits a moment where the collector is about to make some ready. NULL: there is none.
void *recorder_reserve_take(enum reserve_state kind, uint32_t process, uint32_t ring, size_t bytes);

#endif
