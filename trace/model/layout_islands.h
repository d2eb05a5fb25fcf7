/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of an allocator's reserved memory serves no request, and why: the ladder (trace/model/ladder.h), kept event by
 * event beside a layout, which calls each function here as its blocks and segments change. An island is what is mapped
 * of one segment without a gap: the segment itself, or of an expandable one a run of mappings. Memory of implied
 * segments is no part of it.
 *
 * Invariants (islands_check): islands are the maximal runs of blocks of each segment; `active` = extents of their
 * blocks in use or pending; what is fresh was handed out to no block since it was mapped; the parts of an island and
 * the sums follow from these.
 */
#ifndef VARVE_TRACE_MODEL_LAYOUT_ISLANDS_H
#define VARVE_TRACE_MODEL_LAYOUT_ISLANDS_H

#include "base/range_set.h"
#include "trace/model/ladder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct layout_block;
struct varve_layout;

struct island {
    uint64_t active; /* bytes of blocks in use or pending */
    uint64_t fresh;  /* bytes that no block has had yet */
    /* free bytes: all of an island without blocks, or those that are not fresh; in a private pool those of an island
     * without blocks are open, too */
    uint64_t cached, open;
    uint32_t segment; /* number in the layout; 0: the slot is spare, and `pool` links it */
    uint32_t pool;
};

struct island_pool {
    uint32_t key; /* pool and stream */
    uint64_t open;
};

struct islands {
    struct ranges ranges; /* id: number of the island, from 1 */
    struct ranges fresh;  /* id: 1 */
    struct island *islands;
    size_t island_capacity;
    uint32_t island_limit, island_spare;
    struct island_pool *pools;
    size_t pool_count, pool_capacity;
    uint32_t wanted; /* number of the pool that asked the device last, from 0 */
    uint64_t open;   /* of all pools */
    struct ladder sums;
};

bool islands_reserve(struct islands *islands); /* for one event; false without memory */
void islands_clear(struct islands *islands);
/// The ladder after the last event.
struct ladder islands_ladder(const struct islands *islands);

/* After islands_reserve none of these can fail. */

/// Memory of the segment at [start, end), unless it is known.
void islands_map(struct islands *islands, const struct varve_layout *layout, uint32_t segment, uint64_t start,
                 uint64_t end);
/// It goes; no block in it is active any more.
void islands_unmap(struct islands *islands, const struct varve_layout *layout, uint64_t start, uint64_t end);
/// The islands of `segment` from address `from` on belong to `other`.
void islands_rename(struct islands *islands, uint64_t from, uint32_t segment, uint32_t other);
/// A block at [start, end) has this state now (`sign` 1), or no longer (-1).
void islands_block(struct islands *islands, uint64_t start, uint64_t end, const struct layout_block *block, int sign);
/// This pool and stream asked the device for memory.
void islands_want(struct islands *islands, uint16_t pool, uint16_t stream);

int islands_check(const struct islands *islands, const struct varve_layout *layout);

#endif
