/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * The one lock of the recorder, of four bytes that may lie in a wiped page.
 */
#ifndef VARVE_TRACE_RECORDER_GUEST_LOCK_H
#define VARVE_TRACE_RECORDER_GUEST_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/// Lock of one process, 0 = free; who must wait sleeps. Taken only with signals blocked; not held across
/// calls that may wait for anything else.
void recorder_lock(uint32_t *lock);
/// The same; false: it could not be had within a second, since its holder is stopped.
bool recorder_lock_soon(uint32_t *lock);
void recorder_unlock(uint32_t *lock);

#endif
