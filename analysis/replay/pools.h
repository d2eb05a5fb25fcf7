/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools of a history whose events do not name them: which pool each event and segment belongs to. Called
 * by infer.c.
 */
#ifndef VARVE_ANALYSIS_REPLAY_POOLS_H
#define VARVE_ANALYSIS_REPLAY_POOLS_H

#include "analysis/history/history.h"
#include "analysis/replay/hints.h"
#include "analysis/replay/pool_proofs.h"
#include "analysis/replay/reservations.h"
#include "analysis/replay/rounding.h"
#include "analysis/replay/scan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct replay_pool {
    struct varve_pool_id id;
};

struct replay_pools {
    uint16_t *of_event; /* index into `pools` of allocs and segment events; NULL: the default pool for all */
    struct replay_pool *pools; /* 0: the default pool */
    size_t count;
    struct replay_pool_segment *segments; /* those that a pool was derived for */
    size_t segment_count;
};

/// The events name the pools that they belong to.
bool replay_pools_are_named(const struct history_device *trace);
/// Sets the pools of the start's segments and of `reservations`, too. Errors: VARVE_ERROR_FORMAT (the events
/// contradict each other), UNSUPPORTED (more segments than can be told apart).
int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_rounding *rounding, const struct replay_hints *hints,
                        struct replay_pools *pools, struct varve_message *message);
/// The key of a segment in replay_hints.pools.
static inline uint64_t replay_pool_key(const struct replay_pool_segment *segment)
{
    return segment->made_by != REPLAY_NONE ? segment->made_by : UINT64_C(1) << 63 | segment->addr;
}
void replay_pools_free(struct replay_pools *pools);

#ifdef __cplusplus
}
#endif

#endif
