/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state behind struct varve_layout: which memory one allocator has, and what each part of it is.
 *
 * Every byte that is mapped belongs to exactly one block, every block to one segment; `ranges` has the blocks
 * by address (range.id is the block's number, from 1). Invariants (layout_check):
 *   segment.mapped = sum of its blocks' extents; sums = what the blocks and segments add up to
 *   a segment that is not mapped anywhere does not exist
 */
#ifndef VARVE_TRACE_MODEL_LAYOUT_STATE_H
#define VARVE_TRACE_MODEL_LAYOUT_STATE_H

#include "base/range_set.h"
#include "trace/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The fragmentation ladder of one caching allocator, in bytes: why memory is reserved that no live request has. Each
 * reserved byte is of one rung, and reserved - live = the sum of the others. trace/store/views.sql defines the rungs;
 * model/layout_islands.c keeps them; views `ladder`, `ladder_change` and `ladder_peak` show them.
 */

/* External holes are what is left: reserved less all others. In the order of the columns of event_row: what
 * changes often first. */
enum ladder_rung {
    LADDER_LIVE,     /* requested bytes of blocks in use */
    LADDER_ROUNDING, /* of blocks in use: what the size rules add to the request */
    LADDER_PENDING,  /* blocks that were given back and wait for other streams */
    LADDER_POOLS,    /* holes in pools and streams other than the one that asked the device last */
    LADDER_QUANTUM,  /* ends of partly used memory that no block has had yet */
    LADDER_CACHED,   /* memory without any block in use or pending */
    LADDER_UNSPLIT,  /* of blocks in use: what they are larger than their rounded size */
    LADDER_RESERVED, /* all of it */
    LADDER_RUNGS,
};

struct ladder {
    uint64_t bytes[LADDER_RUNGS];
};

/* Of the moments with the most reserved the first one with the most in blocks in use. seq 0: nothing was reserved. */
struct ladder_peak {
    struct ladder ladder;
    uint64_t seq;
    int64_t ts_ns;
};

struct event;

struct layout_block {
    uint64_t size;      /* as the event said: of a contradictory trace not the extent */
    uint64_t requested; /* of a free block what its object was last asked for, as PyTorch leaves it */
    uint64_t rounded;   /* of a block in use: its size by the size rules, as far as the event said */
    uint64_t row;       /* derive's: number of the block row; 0: none */
    uint32_t segment;   /* number, from 1 */
    uint8_t state;      /* enum varve_layout_state */
    bool is_used;       /* the slot */
};

struct layout_segment {
    uint64_t id; /* row of `segment`; 0: implied */
    uint64_t addr;
    uint64_t mapped; /* bytes */
    uint32_t number; /* the allocator's */
    uint16_t stream;
    uint16_t pool;
    bool is_expandable;
    bool is_implied; /* a block was handed out where no segment was known */
};

struct layout_sums {
    uint64_t allocated, active, requested, reserved; /* requested: of active blocks */
};

struct islands;

struct varve_layout {
    struct islands *islands; /* the ladder of the allocator, its owner's; NULL: none is kept */
    struct ranges ranges;
    struct ranges unmapped; /* id: 1 + requested of the unmapped block object that begins there */
    struct layout_block *blocks;
    size_t block_capacity;
    uint32_t block_limit, block_spare; /* spare ones are linked through `segment` */
    struct layout_segment *segments;
    size_t segment_capacity;
    uint32_t segment_limit, segment_spare;
    uint32_t *expandable; /* numbers of the expandable ones */
    size_t expandable_count, expandable_capacity;
    struct layout_sums sums;
    bool has_merge_events; /* splits or merges were events: nothing must be implied by a free */
    bool has_cut;          /* an allocation cut a free block that no event had split */
};

/* One event on its way. */
struct layout_change {
    /* called for an allocation that ends without its free, and for a segment without any memory left */
    void (*lost)(void *context, uint64_t row);
    void (*segment_ended)(void *context, const struct layout_segment *segment);
    void *context;
    /* results: the block that the event is about (0: unknown, or free again) and what was known of it */
    uint32_t block;
    uint64_t row;
    bool is_found;
    bool was_pending; /* of a FREE_COMPLETED: it had been requested before */
    /* and the segment (0: unknown, or gone) */
    uint32_t segment;
    uint64_t segment_id;
    bool is_new_segment;
};

void layout_clear(struct varve_layout *layout);   /* and the ladder, which stays its owner's */
bool layout_reserve(struct varve_layout *layout); /* for one event; false without memory */
/// After layout_reserve it cannot fail. Events that contradict the state change nothing, or as much as is
/// known.
void layout_apply(struct varve_layout *layout, const struct event *event, struct layout_change *change);
int layout_check(const struct varve_layout *layout);

static inline struct layout_block *layout_block_of(const struct varve_layout *layout, const struct range *range)
{
    return &layout->blocks[range->id - 1];
}

static inline bool layout_range_at(const struct varve_layout *layout, uint64_t addr, struct range *range_out)
{
    const struct range *range = ranges_at(&layout->ranges, addr);
    if (range != NULL) {
        *range_out = *range;
    }
    return range != NULL;
}

/// A segment without memory yet, and a block of it; after layout_reserve they cannot fail.
uint32_t layout_segment_add(struct varve_layout *layout, const struct layout_segment *segment);
uint32_t layout_block_add(struct varve_layout *layout, uint64_t start, uint64_t end, const struct layout_block *block);
/// Segments without memory go, and nobody is notified.
void layout_segments_tidy(struct varve_layout *layout);

/* A layout as bytes: the keyframes of a database. */

/// The most bytes that the layout may take.
size_t layout_encode_bound(const struct varve_layout *layout);
/// Encode into so many bytes; returns how many it took.
size_t layout_encode(const struct varve_layout *layout, uint8_t *bytes);

/*
 * What of an allocator's reserved memory serves no request, and why: the ladder (trace/model/layout_state.h), kept
 * event by event beside a layout, which calls each function here as its blocks and segments change. An island is what
 * is mapped of one segment without a gap: the segment itself, or of an expandable one a run of mappings. Memory of
 * implied segments is no part of it.
 *
 * Invariants (islands_check): islands are the maximal runs of blocks of each segment; `active` = extents of their
 * blocks in use or pending; what is fresh was handed out to no block since it was mapped; the parts of an island and
 * the sums follow from these.
 */

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
/// The layout has taken the event: the ladder now, and `peak` moved along. Of a pool that asked the device, in vain
/// too, the holes are that pool's from now on.
struct ladder islands_event(struct islands *islands, const struct event *event, struct ladder_peak *peak);

int islands_check(const struct islands *islands, const struct varve_layout *layout);

#endif
