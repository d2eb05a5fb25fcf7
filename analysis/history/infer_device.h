/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one device's history leaves out, worked out before it is played: the state that it began with, the address
 * ranges of expandable segments, private pools, and how much memory the device may have had. Called by replay.c and
 * analysis/import; what is found is read only while it is played.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_DEVICE_H
#define VARVE_ANALYSIS_HISTORY_INFER_DEVICE_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"
#include "analysis/history/infer_hints.h"
#include "analysis/history/infer_limit.h"
#include "analysis/history/infer_pools.h"
#include "analysis/history/infer_reservations.h"
#include "analysis/history/infer_scan.h"

/* Calls of empty_cache that gave something back, by the first event of each. */
struct replay_calls {
    bool are_known; /* the history came out again */
    size_t *events;
    size_t count;
};

struct replay_device {
    struct history_device trace; /* borrowed, without its first events (hints.first) */
    struct replay_scan scan;
    struct varve_alloc_snapshot start;       /* without segments if the history begins with nothing */
    struct replay_reservations reservations; /* only if the start or private pools need them */
    struct replay_pools pools;
    uint64_t total;            /* bytes of the device */
    struct replay_hints hints; /* answers to what is open, found by playing */
    struct replay_calls calls; /* likewise; of a replay under other rules */
    struct replay_limit limit; /* likewise, if it was looked for */
};

/// Everything but the hints, which it goes by, the calls and the limit; may be called again with others. Errors:
/// VARVE_ERROR_FORMAT, UNSUPPORTED, INVALID (settings).
int replay_infer_device(const struct history *history, unsigned index, const char *conf, uint64_t capacity, bool follow,
                        struct replay_device *inferred, struct varve_message *message);
/// Release all but the hints and the calls.
void replay_device_clear(struct replay_device *inferred);

/// Its segments at the end, or its events, name private pools.
bool replay_has_pools(const struct history_device *trace);
/// Bytes in segments before the first event.
int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out, struct varve_message *message);
/// The start with the history's own settings; the caller frees segments and blocks with free.
int replay_start_of(const struct history *history, const struct history_device *trace,
                    struct varve_alloc_snapshot *start_out, struct varve_message *message);

#endif
