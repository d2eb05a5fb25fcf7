/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which segments of a history cannot lie in one pool, though they have the same stream and size class. Called by
 * pools.c.
 */
#ifndef VARVE_ANALYSIS_REPLAY_POOL_PROOFS_H
#define VARVE_ANALYSIS_REPLAY_POOL_PROOFS_H

#include "analysis/history/history.h"
#include "analysis/replay/reservations.h"
#include "analysis/replay/rounding.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A segment from the event that made it to the one that gave it back. */
struct replay_pool_segment {
    uint64_t addr, bytes;       /* bytes 0: an expandable one */
    size_t made_by;             /* event; REPLAY_NONE: it was there at the start */
    size_t first_use, last_use; /* events of its first and last alloc; REPLAY_NONE: never used */
    uint16_t stream;
    bool is_small, is_gone;
    bool is_private; /* it cannot be the default pool's */
    bool is_lone;    /* … nor that of the segments before it */
    uint16_t pool;   /* index into replay_pools.pools, at last */
};

struct replay_pool_proofs {
    struct replay_pool_segment *segments; /* those of the start first, then in order of their events */
    size_t count, capacity;
    uint64_t *differ; /* bit b of row a: not in one pool */
    size_t row_words;
    uint32_t *of_event; /* of allocs and segment events: number + 1; else 0 */
    bool
        has_plain_releases; /* no garbage collection, no oversize blocks: empty_cache's order holds for all */
    uint32_t
        first_reservation; /* number of the first expandable segment, behind all of the start's segments */
};

/// Replay blocks without any policy: an alloc that passes over a free block that it should have taken shows
/// that the block was in another pool. Errors: VARVE_ERROR_FORMAT, UNSUPPORTED.
int replay_pool_prove(const struct history_device *trace, const struct varve_alloc_snapshot *start,
                      const struct history *history, const struct replay_reservations *reservations,
                      const struct replay_rounding *rounding, struct replay_pool_proofs *proofs,
                      struct varve_message *message);
void replay_pool_proofs_free(struct replay_pool_proofs *proofs);

static inline bool replay_pool_differ(const struct replay_pool_proofs *proofs, size_t a, size_t b)
{
    return (proofs->differ[a * proofs->row_words + b / 64] >> (b % 64) & 1) != 0;
}

#ifdef __cplusplus
}
#endif

#endif
