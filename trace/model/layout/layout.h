/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * The state behind struct varve_layout: which memory one allocator has, and what each part of it is.
 *
 * Every byte that is mapped belongs to exactly one block, every block to one segment; `ranges` has the blocks
 * by address (range.id is the block's number, from 1). Invariants (layout_check):
 *   segment.mapped = sum of its blocks' extents; sums = what the blocks and segments add up to
 *   a segment that is not mapped anywhere does not exist
 */
#ifndef VARVE_TRACE_MODEL_LAYOUT_LAYOUT_H
#define VARVE_TRACE_MODEL_LAYOUT_LAYOUT_H

#include "trace/base/ranges.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;

struct layout_block {
    uint64_t size;      /* as the event said: of a contradictory trace not the extent */
    uint64_t requested; /* of a free block what its object was last asked for, as PyTorch leaves it */
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

struct varve_layout {
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

void layout_clear(struct varve_layout *layout);
bool layout_reserve(struct varve_layout *layout); /* for one event; false without memory */
/// After layout_reserve it cannot fail. Events that contradict the state change nothing, or as much as is
/// known.
void layout_apply(struct varve_layout *layout, const struct event *event, struct layout_change *change);
int layout_check(const struct varve_layout *layout);

static inline struct layout_block *layout_block_of(const struct varve_layout *layout,
                                                   const struct range *range)
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
uint32_t layout_block_add(struct varve_layout *layout, uint64_t start, uint64_t end,
                          const struct layout_block *block);
/// The block goes; its segment stays, even without memory.
void layout_block_drop(struct varve_layout *layout, const struct range *range);
/// A state or a size changes, the extent does not.
void layout_block_set(struct varve_layout *layout, uint32_t number, uint8_t state, uint64_t size,
                      uint64_t requested);
/// A free block absorbs its free neighbours of the same segment.
void layout_block_coalesce(struct varve_layout *layout, const struct range *range);
/// A block in a free one that is larger; what is left of that stays free. `free_range` is what ranges_at gave.
uint32_t layout_block_carve(struct varve_layout *layout, struct range *free_range, uint64_t start,
                            uint64_t end, const struct layout_block *block);
/// The bytes of a segment change without a block that comes or goes.
void layout_segment_resize(struct varve_layout *layout, uint32_t number, uint64_t more, uint64_t less);
/// A segment without memory goes, and `change` is notified.
void layout_segment_drop_empty(struct varve_layout *layout, uint32_t number,
                               const struct layout_change *change);
/// All of them go, and nobody is notified.
void layout_segments_tidy(struct varve_layout *layout);

/// Nothing is known of [start, end) afterwards; parts of blocks outside it are free. Segment `kept` stays
/// even without memory.
void layout_span_clear(struct varve_layout *layout, uint64_t start, uint64_t end, uint32_t kept,
                       const struct layout_change *change);
/// The end of what lies in [start, end) without a gap, all free and of one segment; `start` if nothing does.
uint64_t layout_span_free_end(const struct varve_layout *layout, uint64_t start, uint64_t end,
                              struct range *last_out);
/// The end of the blocks of one segment that lie in [start, end) without a gap, at most `end`, and the last
/// of them; `start` if there are none.
uint64_t layout_span_run_end(const struct varve_layout *layout, uint64_t start, uint64_t end,
                             struct range *last_out);
/// The free blocks that tile [start, end) become one.
void layout_span_join(struct varve_layout *layout, uint64_t start, uint64_t end, uint64_t requested);

#endif
