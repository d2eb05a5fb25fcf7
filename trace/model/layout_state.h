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

#endif
