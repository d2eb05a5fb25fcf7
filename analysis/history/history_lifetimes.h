/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of a device's history as lifetimes: from the event that allocated a block up to the one that completed its
 * free, as other streams may use it until then. Placement, plans and what else looks at all blocks at
 * once work on these.
 */
#ifndef VARVE_ANALYSIS_HISTORY_HISTORY_LIFETIMES_H
#define VARVE_ANALYSIS_HISTORY_HISTORY_LIFETIMES_H

#include "analysis/history/history.h"

#define HISTORY_BEFORE INT64_C(-1)

struct history_lifetime {
    /* Numbers of events, lower < upper. HISTORY_BEFORE: it lives before the first event; event_count: it
     * does at the end. */
    int64_t lower, upper;
    uint64_t addr, size; /* as requested */
    uint32_t stack;      /* of the alloc, or of the block at the end; 0: unknown */
    uint16_t stream;     /* index into history.streams */
    uint16_t pool;       /* index into history_lifetimes.pools */
};

struct history_lifetimes {
    struct history_lifetime *items; /* by lower; those that live before the first event by address */
    size_t count, capacity;
    /* Ids of pools; number 0 is the default pool, {0, 0}. Where events do not name their pool, it is that of the
     * segment which has the address at the end. */
    uint64_t (*pools)[2];
    size_t pool_count, pool_capacity;
    size_t lost; /* blocks whose address was allocated again before they were freed: they are taken to end there */
};

/// Owner: the caller, by history_lifetimes_free. Threads: any.
void history_lifetimes_make(const struct history *history, const struct history_device *device,
                            struct history_lifetimes *lifetimes);
void history_lifetimes_free(struct history_lifetimes *lifetimes);

#endif
