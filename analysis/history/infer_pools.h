/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools of a history whose events do not name them: which pool each event and segment belongs to. Called
 * by infer_device.c.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_POOLS_H
#define VARVE_ANALYSIS_HISTORY_INFER_POOLS_H

#include "analysis/history/history.h"
#include "analysis/history/infer_hints.h"
#include "analysis/history/infer_reservations.h"
#include "analysis/history/infer_scan.h"

/* A segment from the event that made it to the one that gave it back. */
struct replay_pool_segment {
    uint64_t addr, bytes;       /* bytes 0: an expandable one */
    size_t made_by;             /* event; REPLAY_NONE: it was there at the start */
    size_t first_use, last_use; /* events of its first and last alloc; REPLAY_NONE: never used */
    uint16_t stream;
    bool is_gone;
    bool is_private; /* it cannot be the default pool's */
    bool is_lone;    /* … nor that of the segments before it */
    uint16_t pool;   /* index into replay_pools.ids, at last */
};

struct replay_pools {
    uint16_t *of_event;        /* index into `ids` of allocs and segment events; NULL: the default pool for all */
    struct varve_pool_id *ids; /* 0: the default pool */
    size_t count;
    struct replay_pool_segment *segments; /* those that a pool was derived for */
    size_t segment_count;
    uint32_t *segment_of; /* of allocs and segment events: number in `segments` + 1; else 0 */
};

/// The events name the pools that they belong to.
bool replay_pools_are_named(const struct history_device *trace);
/// Sets the pools of the start's segments and of `reservations`, too. Errors: VARVE_ERROR_FORMAT (the events
/// contradict each other), UNSUPPORTED (too many segments).
int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_hints *hints, struct replay_pools *pools, struct varve_message *message);
/// The key of a segment in replay_hints.pools.
static inline uint64_t replay_pool_key(const struct replay_pool_segment *segment)
{
    return segment->made_by != REPLAY_NONE ? segment->made_by : UINT64_C(1) << 63 | segment->addr;
}
void replay_pools_free(struct replay_pools *pools);

#endif
