/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over a device's events before anything else: which frees other streams deferred and when they
 * completed, how much was reserved, and whether the history began with nothing. Events that cannot be are refused
 * here, so that the later passes need not test addresses again. Called by infer_device.c.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_SCAN_H
#define VARVE_ANALYSIS_HISTORY_INFER_SCAN_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_NONE SIZE_MAX /* no event, no segment */

/* A free that other streams deferred: events number `request` and `completion` (REPLAY_NONE: never). */
struct replay_deferred {
    size_t request, completion;
};

struct replay_scan {
    struct replay_deferred *deferred; /* by request */
    size_t deferred_count, deferred_capacity;
    size_t *early; /* completions of frees that were requested before the history began */
    size_t early_count, early_capacity;
    size_t allocations; /* events of that kind */
    uint64_t reserved_peak;
    uint64_t largest_bytes; /* of a segment, in an event or at the end */
    uint64_t largest_addr;
    int64_t reserved_start; /* bytes in segments before the first event; 0: it began with nothing */
    bool has_maps;
};

/// Errors: VARVE_ERROR_FORMAT, with the event that cannot be; the caller frees `scan` in any case.
int replay_scan(const struct history_device *trace, struct replay_scan *scan, struct varve_message *message);
void replay_scan_free(struct replay_scan *scan);
/// Number of the first event at or after `index` that is a decision (not a snapshot).
size_t replay_decision(const struct history_device *trace, size_t index);
/// The pool that the event names, the default one if it names none.
struct varve_pool_id replay_named_pool(const struct history *history, const struct history_event *event);
/// The free requested by event `index` was completed at once.
bool replay_is_immediate(const struct history_device *trace, size_t index);

#endif
