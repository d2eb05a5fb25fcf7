/* SPDX-License-Identifier: Apache-2.0 */
/* The one lock of the recorder, and stages that threads wait for: four bytes each, which may lie in a wiped page. */
#ifndef VARVE_TRACE_GUEST_GUEST_LOCK_H
#define VARVE_TRACE_GUEST_GUEST_LOCK_H

#include "trace/guest/guest_signals.h"

#include <stdbool.h>
#include <stdint.h>

/// Lock of one process, 0 = free; who must wait sleeps. Taken only with signals blocked; not held across
/// calls that may wait for anything else.
void recorder_lock(uint32_t *lock);
/// The same; false: it could not be had within a second, since its holder is stopped.
bool recorder_lock_soon(uint32_t *lock);
void recorder_unlock(uint32_t *lock);

/// recorder_lock_soon with this thread's signals blocked; false: they are as they were.
bool recorder_lock_soon_blocked(uint32_t *lock, struct recorder_signals *saved);
void recorder_unlock_blocked(uint32_t *lock, const struct recorder_signals *saved);

/// A number that only grows. Wait until it is at least `wanted`: asleep, since the thread that is at it may have the
/// lower priority, and for a moment only, since that one may be stopped.
void recorder_stage_wait(const uint32_t *stage, uint32_t wanted);
void recorder_stage_set(uint32_t *stage, uint32_t value);

#endif
