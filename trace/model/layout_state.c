/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and blocks of one allocator as they follow from its events. Traces differ in
 * what they hold: ours have every split and merge, PyTorch's have none, the size of a block is then only the
 * request's, and either may begin in the middle. So an event is taken for what it says about a range of
 * addresses, and whatever contradicts it there gives way: an allocation in the middle of a free block cuts
 * it, one where no segment is known implies a segment, and frees merge where no merge was ever recorded.
 * model/derive_blocks.c keeps one for each allocator; analysis/ replays events on one from a keyframe.
 */
#include "trace/model/layout_state.h"

#include "base/grown_array.h"
#include "base/range_set.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/record_fold.h"
#include "base/error.h"
#include "trace/layout.h"

#include <assert.h>
#include <stdlib.h>

#define BLOCKS_PER_EVENT 4U

/* ---- slots ---- */

bool layout_reserve(struct varve_layout *layout)
{
    return ARRAY_GROW(layout->blocks, layout->block_capacity, layout->block_limit + BLOCKS_PER_EVENT) &&
           ARRAY_GROW(layout->segments, layout->segment_capacity, layout->segment_limit + 1) &&
           ARRAY_GROW(layout->expandable, layout->expandable_capacity, layout->expandable_count + 1) &&
           ranges_reserve(&layout->ranges, BLOCKS_PER_EVENT) && ranges_reserve(&layout->unmapped, BLOCKS_PER_EVENT) &&
           (layout->islands == NULL || islands_reserve(layout->islands));
}

void layout_clear(struct varve_layout *layout)
{
    struct islands *islands = layout->islands;
    if (islands != NULL) {
        islands_clear(islands);
    }
    ranges_clear(&layout->ranges);
    ranges_clear(&layout->unmapped);
    free(layout->blocks);
    free(layout->segments);
    free(layout->expandable);
    *layout = (struct varve_layout){.islands = islands};
}

uint32_t layout_segment_add(struct varve_layout *layout, const struct layout_segment *segment)
{
    uint32_t number = layout->segment_spare;
    if (number != 0) {
        layout->segment_spare = layout->segments[number - 1].number;
    } else {
        assert(layout->segment_limit < layout->segment_capacity);
        number = ++layout->segment_limit;
    }
    layout->segments[number - 1] = *segment;
    layout->segments[number - 1].mapped = 0;
    if (segment->is_expandable) {
        assert(layout->expandable_count < layout->expandable_capacity);
        layout->expandable[layout->expandable_count++] = number;
    }
    return number;
}

static void segment_drop(struct varve_layout *layout, uint32_t number)
{
    for (size_t i = 0; i < layout->expandable_count; i++) {
        if (layout->expandable[i] == number) {
            layout->expandable[i] = layout->expandable[--layout->expandable_count];
        }
    }
    layout->segments[number - 1] = (struct layout_segment){.number = layout->segment_spare};
    layout->segment_spare = number;
}

void layout_segments_tidy(struct varve_layout *layout)
{
    layout->segment_spare = 0;
    for (uint32_t i = layout->segment_limit; i > 0; i--) {
        if (layout->segments[i - 1].mapped == 0) {
            segment_drop(layout, i);
        }
    }
}

static void sums_add(struct varve_layout *layout, const struct layout_block *block, int sign)
{
    uint64_t factor = (uint64_t)(int64_t)sign;
    if (block->state != VARVE_LAYOUT_FREE) {
        layout->sums.active += factor * block->size;
        layout->sums.requested += factor * block->requested;
    }
    if (block->state == VARVE_LAYOUT_USED) {
        layout->sums.allocated += factor * block->size;
    }
}

/* The ladder's share of a block that is there now, or no longer. */
static void islands_follow(const struct varve_layout *layout, uint64_t start, uint64_t end,
                           const struct layout_block *block, int sign)
{
    if (layout->islands != NULL && !layout->segments[block->segment - 1].is_implied) {
        if (sign > 0) {
            islands_map(layout->islands, layout, block->segment, start, end);
        }
        islands_block(layout->islands, start, end, block, sign);
    }
}

static void segment_resize(struct varve_layout *layout, uint32_t number, uint64_t more, uint64_t less)
{
    struct layout_segment *segment = &layout->segments[number - 1];
    segment->mapped += more - less;
    if (!segment->is_implied) {
        layout->sums.reserved += more - less;
    }
}

uint32_t layout_block_add(struct varve_layout *layout, uint64_t start, uint64_t end, const struct layout_block *block)
{
    uint32_t number = layout->block_spare;
    if (number != 0) {
        layout->block_spare = layout->blocks[number - 1].segment;
    } else {
        assert(layout->block_limit < layout->block_capacity);
        number = ++layout->block_limit;
    }
    layout->blocks[number - 1] = *block;
    layout->blocks[number - 1].is_used = true;
    const struct range range = {.start = start, .end = end, .id = number};
    ranges_insert(&layout->ranges, &range);
    sums_add(layout, block, 1);
    segment_resize(layout, block->segment, end - start, 0);
    islands_follow(layout, start, end, block, 1);
    return number;
}

static void block_slot_drop(struct varve_layout *layout, uint64_t number)
{
    layout->blocks[number - 1] = (struct layout_block){.segment = layout->block_spare};
    layout->block_spare = (uint32_t)number;
}

/* The block goes; its segment stays, even without memory. */
static void block_drop(struct varve_layout *layout, const struct range *range)
{
    struct layout_block *block = &layout->blocks[range->id - 1];
    sums_add(layout, block, -1);
    segment_resize(layout, block->segment, 0, range->end - range->start);
    islands_follow(layout, range->start, range->end, block, -1);
    ranges_remove(&layout->ranges, range->start);
    block_slot_drop(layout, range->id);
}

/* A state or a size changes, the extent does not. */
static void block_set(struct varve_layout *layout, const struct range *range, const struct layout_block *now)
{
    struct layout_block *block = layout_block_of(layout, range);
    sums_add(layout, block, -1);
    islands_follow(layout, range->start, range->end, block, -1);
    block->state = now->state;
    block->size = now->size;
    block->requested = now->requested;
    block->rounded = now->rounded;
    sums_add(layout, block, 1);
    islands_follow(layout, range->start, range->end, block, 1);
}

/* ---- ranges of addresses ---- */

static void segment_drop_empty(struct varve_layout *layout, uint32_t number, const struct layout_change *change)
{
    if (layout->segments[number - 1].mapped == 0) {
        if (change->segment_ended != NULL) {
            change->segment_ended(change->context, &layout->segments[number - 1]);
        }
        segment_drop(layout, number);
    }
}

static void block_lose(const struct layout_block *block, const struct layout_change *change)
{
    if (block->state != VARVE_LAYOUT_FREE && change->lost != NULL) {
        change->lost(change->context, block->row);
    }
}

/* Nothing is known of [start, end) afterwards; parts of blocks outside it are free. `kept` stays even without
 * memory. */
static void layout_span_clear(struct varve_layout *layout, uint64_t start, uint64_t end, uint32_t kept,
                              const struct layout_change *change)
{
    struct range range;
    while (ranges_first(&layout->ranges, start, end, &range)) {
        const struct layout_block old = *layout_block_of(layout, &range);
        struct layout_block rest = {.segment = old.segment};
        block_lose(&old, change);
        block_drop(layout, &range);
        if (layout->islands != NULL) {
            islands_unmap(layout->islands, layout, range.start > start ? range.start : start,
                          range.end < end ? range.end : end);
        }
        if (range.start < start) {
            rest.size = start - range.start;
            layout_block_add(layout, range.start, start, &rest);
        }
        if (range.end > end) {
            rest.size = range.end - end;
            rest.requested = old.state == VARVE_LAYOUT_FREE && range.start >= start ? old.requested : 0;
            layout_block_add(layout, end, range.end, &rest);
        }
        if (old.segment != kept) {
            segment_drop_empty(layout, old.segment, change);
        }
    }
}

/* The end of what lies in [start, end) without a gap, all free and of one segment; `start` if nothing does.
 */
static uint64_t span_free_end(const struct varve_layout *layout, uint64_t start, uint64_t end, struct range *last_out)
{
    uint64_t at = start;
    uint32_t segment = 0;
    struct range range;
    while (at < end && layout_range_at(layout, at, &range)) {
        const struct layout_block *block = layout_block_of(layout, &range);
        if (range.start != at || range.end > end || block->state != VARVE_LAYOUT_FREE ||
            (segment != 0 && block->segment != segment)) {
            break;
        }
        segment = block->segment;
        at = range.end;
        *last_out = range;
    }
    return at;
}

/* The free blocks that tile [start, end) become one. */
static void span_join(struct varve_layout *layout, uint64_t start, uint64_t end, uint64_t requested)
{
    struct range range;
    if (layout_range_at(layout, start, &range) && range.start == start && range.end == end) {
        layout_block_of(layout, &range)->requested = requested; /* it is free: no sum changes */
        return;
    }
    uint32_t segment = 0;
    while (ranges_first(&layout->ranges, start, end, &range)) {
        segment = layout_block_of(layout, &range)->segment;
        block_drop(layout, &range);
    }
    const struct layout_block whole = {.segment = segment, .size = end - start, .requested = requested};
    layout_block_add(layout, start, end, &whole);
}

static bool block_joins(const struct varve_layout *layout, uint32_t segment, const struct range *neighbour)
{
    const struct layout_block *block = neighbour->id != 0 ? layout_block_of(layout, neighbour) : NULL;
    return block != NULL && block->segment == segment && block->state == VARVE_LAYOUT_FREE;
}

/* A free block absorbs its free neighbours of the same segment: no sum changes. */
static void block_coalesce(struct varve_layout *layout, const struct range *range)
{
    struct layout_block *block = layout_block_of(layout, range);
    uint64_t end = range->end;
    assert(block->state == VARVE_LAYOUT_FREE);
    struct range before;
    struct range after;
    ranges_around(&layout->ranges, range->start, &before, &after);
    if (after.start == range->end && block_joins(layout, block->segment, &after)) {
        ranges_absorb(&layout->ranges, range->start);
        block_slot_drop(layout, after.id);
        end = after.end;
        block->size = end - range->start;
    }
    if (before.end == range->start && block_joins(layout, block->segment, &before)) {
        struct layout_block *whole = layout_block_of(layout, &before);
        whole->size = end - before.start;
        whole->requested = block->requested;
        whole->row = 0;
        ranges_absorb(&layout->ranges, before.start);
        block_slot_drop(layout, range->id);
    }
}

/* An allocation in a free block: what is in front of it and behind it stays free. */
static uint32_t block_carve(struct varve_layout *layout, struct range *free_range, uint64_t start, uint64_t end,
                            const struct layout_block *block)
{
    struct layout_block *old = layout_block_of(layout, free_range);
    uint64_t range_end = free_range->end;
    assert(old->state == VARVE_LAYOUT_FREE && free_range->start <= start && end <= range_end);
    segment_resize(layout, old->segment, 0, end - start);
    old->row = 0;
    if (free_range->start == start) {
        free_range->start = end;
        old->size = range_end - end;
        return layout_block_add(layout, start, end, block);
    }
    free_range->end = start;
    old->size = start - free_range->start;
    old->requested = 0;
    if (end < range_end) {
        const struct layout_block rest = {.segment = old->segment, .size = range_end - end};
        segment_resize(layout, old->segment, 0, range_end - end);
        layout_block_add(layout, end, range_end, &rest);
    }
    return layout_block_add(layout, start, end, block);
}

/* The end of the blocks of one segment that lie in [start, end) without a gap, at most `end`; one of them in
 * `range_out`; `start` if there are none. */
static uint64_t span_run_end(const struct varve_layout *layout, uint64_t start, uint64_t end, struct range *range_out)
{
    struct range range;
    uint32_t segment = 0;
    uint64_t at = start;
    while (at < end && layout_range_at(layout, at, &range) &&
           (segment == 0 || layout_block_of(layout, &range)->segment == segment)) {
        segment = layout_block_of(layout, &range)->segment;
        at = range.end;
        *range_out = range;
    }
    return at < end ? at : end;
}

/* ---- events about segments ---- */

static uint64_t layout_span_end(const struct event *event)
{
    uint64_t end = event->addr + event->size;
    return end < event->addr ? UINT64_MAX : end;
}

static struct layout_segment segment_of(const struct event *event)
{
    return (struct layout_segment){.id = event->id,
                                   .addr = event->addr,
                                   .number = (uint32_t)event->arg,
                                   .stream = event->stream,
                                   .pool = event->pool};
}

static void layout_segment_alloc(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    const struct layout_segment segment = segment_of(event);
    layout_span_clear(layout, event->addr, layout_span_end(event), 0, change);
    change->segment = layout_segment_add(layout, &segment);
    change->is_new_segment = true;
    const struct layout_block block = {.segment = change->segment, .size = layout_span_end(event) - event->addr};
    layout_block_add(layout, event->addr, layout_span_end(event), &block);
}

static void segment_free(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range range;
    uint64_t end = layout_span_end(event);
    if (!layout_range_at(layout, event->addr, &range)) {
        return;
    }
    change->segment = layout_block_of(layout, &range)->segment;
    const struct layout_segment *segment = &layout->segments[change->segment - 1];
    if (!segment->is_expandable && segment->addr == event->addr) {
        end = segment->addr + segment->mapped;
    }
    end = span_run_end(layout, event->addr, end, &range);
    layout_span_clear(layout, event->addr, end, change->segment, change);
}

/* The segment that a mapping at [addr, end) makes larger: by its number, else the one that ends or begins
 * there. */
static uint32_t layout_segment_find(const struct varve_layout *layout, const struct event *event)
{
    uint64_t end = layout_span_end(event);
    for (size_t i = 0; i < layout->expandable_count && event->arg != 0; i++) {
        if (layout->segments[layout->expandable[i] - 1].number == (uint32_t)event->arg) {
            return layout->expandable[i];
        }
    }
    struct range range;
    for (int side = 0; side < 2 && event->arg == 0; side++) {
        if (layout_range_at(layout, side == 0 ? event->addr - 1 : end, &range)) {
            uint32_t number = layout_block_of(layout, &range)->segment;
            const struct layout_segment *segment = &layout->segments[number - 1];
            if (segment->is_expandable && segment->stream == event->stream && segment->pool == event->pool) {
                return number;
            }
        }
    }
    return 0;
}

/* What the object of the unmapped block that begins at `start` was last asked for; what is left of it behind
 * `end` is a new object. */
static uint64_t unmapped_remove(struct varve_layout *layout, uint64_t start, uint64_t end)
{
    struct range range;
    uint64_t requested = 0;
    while (ranges_first(&layout->unmapped, start, end, &range)) {
        ranges_remove(&layout->unmapped, range.start);
        if (range.start == start) {
            requested = range.id - 1;
        } else if (range.start < start) {
            const struct range front = {.start = range.start, .end = start, .id = range.id};
            ranges_insert(&layout->unmapped, &front);
        }
        if (range.end > end) {
            const struct range rest = {.start = end, .end = range.end, .id = 1};
            ranges_insert(&layout->unmapped, &rest);
        }
    }
    return requested;
}

/* Where the addresses end that only this segment can have had: where the next one begins. */
static uint64_t segment_reach(const struct varve_layout *layout, const struct layout_segment *segment)
{
    uint64_t reach = UINT64_MAX;
    for (size_t i = 0; i < layout->expandable_count; i++) {
        uint64_t addr = layout->segments[layout->expandable[i] - 1].addr;
        reach = addr > segment->addr && addr < reach ? addr : reach;
    }
    return reach;
}

/* A segment without any memory is gone, and its unmapped blocks with it: a later one may get its addresses.
 */
static void unmapped_forget(struct varve_layout *layout, const struct layout_segment *segment)
{
    struct range range;
    uint64_t reach = segment_reach(layout, segment);
    while (ranges_first(&layout->unmapped, segment->addr, reach, &range)) {
        ranges_remove(&layout->unmapped, range.start);
        if (range.end > reach) {
            const struct range rest = {.start = reach, .end = range.end, .id = 1};
            ranges_insert(&layout->unmapped, &rest);
        }
    }
}

/* A mapping without a number joins two ranges of one expandable segment that were taken for two. */
static void segments_fuse(struct varve_layout *layout, uint64_t end, uint32_t number,
                          const struct layout_change *change)
{
    struct range range;
    if (!layout_range_at(layout, end, &range)) {
        return;
    }
    uint32_t other = layout_block_of(layout, &range)->segment;
    const struct layout_segment *one = &layout->segments[number - 1];
    const struct layout_segment *two = &layout->segments[other - 1];
    if (other == number || !two->is_expandable || two->stream != one->stream || two->pool != one->pool) {
        return;
    }
    uint64_t at = end;
    while (two->mapped > 0 && ranges_first(&layout->ranges, at, UINT64_MAX, &range)) {
        if (layout_block_of(layout, &range)->segment == other) {
            layout_block_of(layout, &range)->segment = number;
            segment_resize(layout, other, 0, range.end - range.start);
            segment_resize(layout, number, range.end - range.start, 0);
        }
        at = range.end;
    }
    if (layout->islands != NULL) {
        islands_rename(layout->islands, end, other, number);
    }
    segment_drop_empty(layout, other, change);
}

static void layout_segment_map(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t end = layout_span_end(event);
    uint32_t number = layout_segment_find(layout, event);
    layout_span_clear(layout, event->addr, end, number, change);
    if (number == 0) {
        struct layout_segment segment = segment_of(event);
        segment.is_expandable = true;
        number = layout_segment_add(layout, &segment);
        change->is_new_segment = true;
    }
    struct layout_segment *segment = &layout->segments[number - 1];
    segment->addr = event->addr < segment->addr ? event->addr : segment->addr;
    change->segment = number;
    if (event->arg == 0) {
        segments_fuse(layout, end, number, change);
    }
    const struct layout_block block = {
        .segment = number, .size = end - event->addr, .requested = unmapped_remove(layout, event->addr, end)};
    const struct range range = {
        .start = event->addr, .end = end, .id = layout_block_add(layout, event->addr, end, &block)};
    block_coalesce(layout, &range);
}

static void segment_unmap(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range range;
    struct range gone = {.start = event->addr, .end = layout_span_end(event)};
    if (!layout_range_at(layout, event->addr, &range)) {
        return;
    }
    change->segment = layout_block_of(layout, &range)->segment;
    uint64_t requested = layout_block_of(layout, &range)->requested;
    gone.id = requested < UINT64_MAX ? requested + 1 : requested; /* 0 is no id */
    gone.end = span_run_end(layout, gone.start, gone.end, &range);
    layout_span_clear(layout, gone.start, gone.end, change->segment, change);
    struct range side;
    /* the parts of the block on both sides are new objects */
    if (range.end > gone.end && layout_range_at(layout, gone.end, &side)) {
        layout_block_of(layout, &side)->requested = 0;
    }
    /* neighbours that are unmapped too become one object with it, as far as they are of this segment */
    const struct layout_segment *segment = &layout->segments[change->segment - 1];
    uint64_t reach = segment_reach(layout, segment);
    uint64_t first = gone.start > segment->addr ? gone.start - 1 : gone.start;
    uint64_t last = gone.end < reach ? gone.end + 1 : gone.end;
    while (ranges_first(&layout->unmapped, first, last, &side)) {
        ranges_remove(&layout->unmapped, side.start);
        gone.start = side.start < gone.start ? side.start : gone.start;
        gone.end = side.end > gone.end ? side.end : gone.end;
    }
    ranges_insert(&layout->unmapped, &gone);
}

/* ---- blocks ---- */

/* What a free makes of the block where no event says so. */
static void block_release(struct varve_layout *layout, const struct range *range, uint32_t segment)
{
    if (layout->segments[segment - 1].is_implied) {
        block_drop(layout, range);
    } else if (!layout->has_merge_events) {
        block_coalesce(layout, range);
    }
}

static void layout_block_free(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range range;
    if (!layout_range_at(layout, event->addr, &range) || range.start != event->addr ||
        layout_block_of(layout, &range)->state == VARVE_LAYOUT_FREE) {
        return;
    }
    const struct layout_block *block = layout_block_of(layout, &range);
    if (event->kind == VARVE_KIND_FREE_REQUESTED && block->state != VARVE_LAYOUT_USED) {
        return;
    }
    change->block = (uint32_t)range.id;
    change->is_found = true;
    change->row = block->row;
    change->segment = block->segment;
    change->was_pending = block->state == VARVE_LAYOUT_PENDING;
    struct layout_block now = *block;
    if (event->kind == VARVE_KIND_FREE_REQUESTED) {
        now.state = VARVE_LAYOUT_PENDING;
    } else {
        now.state = VARVE_LAYOUT_FREE;
        now.size = range.end - range.start;
    }
    block_set(layout, &range, &now);
    if (event->kind == VARVE_KIND_FREE_COMPLETED) {
        change->block = 0;
        block_release(layout, &range, change->segment);
    }
}

/* No split prepared the range: make it free and of that size. Returns the segment. */
static uint32_t range_prepare(struct varve_layout *layout, const struct event *event, uint64_t *end,
                              struct layout_change *change)
{
    struct range range;
    uint32_t number = 0;
    uint64_t run_end = span_run_end(layout, event->addr, *end, &range);
    if (run_end > event->addr) {
        number = layout_block_of(layout, &range)->segment;
        *end = run_end; /* a segment ends where it ends */
        layout->has_cut = true;
    }
    layout_span_clear(layout, event->addr, *end, number, change);
    if (number == 0) {
        struct layout_segment segment = segment_of(event);
        segment.id = 0;
        segment.is_implied = true;
        number = layout_segment_add(layout, &segment);
    }
    return number;
}

/* The size that the rules made of the request: of a block that was given out whole its event has it in place of the
 * size of the free block that it was cut from, which is larger. */
static uint64_t rounded_size(const struct event *event)
{
    uint64_t rounded = (event->arg >> 32) * VARVE_FOLD_UNIT;
    return rounded != 0 && rounded < event->size ? rounded : event->size;
}

static void block_alloc(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t end = layout_span_end(event);
    struct range *free_range = ranges_at(&layout->ranges, event->addr);
    const struct layout_block *old = free_range != NULL ? layout_block_of(layout, free_range) : NULL;
    struct layout_block block = {
        .size = event->size, .requested = event->requested, .rounded = rounded_size(event), .state = VARVE_LAYOUT_USED};
    if (old == NULL || old->state != VARVE_LAYOUT_FREE || end > free_range->end) {
        block.segment = range_prepare(layout, event, &end, change);
        change->block = layout_block_add(layout, event->addr, end, &block);
    } else if (free_range->start == event->addr && free_range->end == end) {
        block.segment = old->segment;
        change->block = (uint32_t)free_range->id;
        block_set(layout, free_range, &block);
    } else {
        block.segment = old->segment;
        layout->has_cut = true;
        change->block = block_carve(layout, free_range, event->addr, end, &block);
    }
    change->segment = block.segment;
}

/* The front part of a free block. */
static void block_cut(struct varve_layout *layout, struct range *range, uint64_t middle)
{
    struct layout_block *block = layout_block_of(layout, range);
    const struct layout_block rest = {
        .segment = block->segment, .size = range->end - middle, .requested = block->requested};
    uint64_t end = range->end;
    block->size = middle - range->start;
    block->requested = 0; /* the front part is a new object, the remainder the old one */
    segment_resize(layout, block->segment, 0, end - middle);
    range->end = middle;
    layout_block_add(layout, middle, end, &rest);
}

static void block_split(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t middle = layout_span_end(event);
    uint64_t end = middle + event->requested;
    layout->has_merge_events = true;
    struct range last = {0};
    if (event->requested == 0 || end <= middle || span_free_end(layout, event->addr, end, &last) != end) {
        return;
    }
    change->segment = layout_block_of(layout, &last)->segment;
    if (last.start != event->addr) {
        span_join(layout, event->addr, end, layout_block_of(layout, &last)->requested);
    }
    block_cut(layout, ranges_at(&layout->ranges, event->addr), middle);
}

static void layout_block_merge(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t start = event->arg < event->addr ? event->arg : event->addr;
    uint64_t wanted = start + event->size;
    layout->has_merge_events = true;
    struct range last;
    /* A mapping's merge comes before the mapping itself: what is not there yet is left out. */
    uint64_t end = span_free_end(layout, start, wanted, &last);
    if (wanted < start || end <= start) {
        return;
    }
    struct range *first = ranges_at(&layout->ranges, start);
    struct layout_block *block = layout_block_of(layout, first);
    const struct layout_block absorbed = *layout_block_of(layout, &last);
    change->segment = block->segment;
    if (last.start != start && first->end == last.start) {
        block_drop(layout, &last);
        /* dropping may have moved ranges, and nothing else */
        ranges_at(&layout->ranges, start)->end = end;
        segment_resize(layout, absorbed.segment, end - last.start, 0);
        block->size = end - start;
        block->requested = event->cause == VARVE_CAUSE_PREVIOUS ? absorbed.requested : block->requested;
    } else {
        span_join(layout, start, end, event->cause == VARVE_CAUSE_PREVIOUS ? absorbed.requested : block->requested);
    }
}

void layout_apply(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    bool is_free = event->kind == VARVE_KIND_FREE_REQUESTED || event->kind == VARVE_KIND_FREE_COMPLETED;
    bool is_empty = !is_free && layout_span_end(event) <= event->addr;
    if (event->addr == 0 || is_empty || (event->flags & VARVE_FLAG_FAILED)) {
        return;
    }
    switch (event->kind) {
    case VARVE_KIND_ALLOC:
        block_alloc(layout, event, change);
        break;
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
        layout_block_free(layout, event, change);
        break;
    case VARVE_KIND_SPLIT:
        block_split(layout, event, change);
        break;
    case VARVE_KIND_MERGE:
        layout_block_merge(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_ALLOC:
        layout_segment_alloc(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_FREE:
        segment_free(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_MAP:
        layout_segment_map(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_UNMAP:
        segment_unmap(layout, event, change);
        break;
    default:
        break;
    }
    if (change->segment != 0) {
        const struct layout_segment *segment = &layout->segments[change->segment - 1];
        change->segment_id = segment->id;
        if (segment->mapped == 0) {
            if (segment->is_expandable) {
                unmapped_forget(layout, segment);
            }
            segment_drop_empty(layout, change->segment, change);
            change->segment = 0;
        }
    }
}

/* ---- the walker ---- */

struct walk {
    const struct varve_layout *layout;
    struct layout_sums sums;
    uint64_t *mapped; /* by segment */
};

static int layout_walk_range(void *context, const struct range *range)
{
    struct walk *walk = context;
    const struct varve_layout *layout = walk->layout;
    if (range->id > layout->block_limit || !layout_block_of(layout, range)->is_used) {
        return VARVE_ERROR_CORRUPT;
    }
    const struct layout_block *block = layout_block_of(layout, range);
    if (block->segment == 0 || block->segment > layout->segment_limit ||
        (block->state == VARVE_LAYOUT_FREE && block->size != range->end - range->start)) {
        return VARVE_ERROR_CORRUPT;
    }
    walk->mapped[block->segment - 1] += range->end - range->start;
    if (!layout->segments[block->segment - 1].is_implied) {
        walk->sums.reserved += range->end - range->start;
    }
    walk->sums.active += block->state != VARVE_LAYOUT_FREE ? block->size : 0;
    walk->sums.requested += block->state != VARVE_LAYOUT_FREE ? block->requested : 0;
    walk->sums.allocated += block->state == VARVE_LAYOUT_USED ? block->size : 0;
    return VARVE_OK;
}

int layout_check(const struct varve_layout *layout)
{
    struct walk walk = {.layout = layout, .mapped = calloc(layout->segment_limit + 1, sizeof(uint64_t))};
    if (walk.mapped == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = ranges_check(&layout->ranges) && ranges_check(&layout->unmapped) ? VARVE_OK : VARVE_ERROR_CORRUPT;
    VARVE_THEN(error, ranges_each(&layout->ranges, layout_walk_range, &walk));
    for (uint32_t i = 0; i < layout->segment_limit && error == VARVE_OK; i++) {
        error = layout->segments[i].mapped == walk.mapped[i] ? VARVE_OK : VARVE_ERROR_CORRUPT;
    }
    free(walk.mapped);
    bool is_equal = walk.sums.allocated == layout->sums.allocated && walk.sums.active == layout->sums.active &&
                    walk.sums.requested == layout->sums.requested && walk.sums.reserved == layout->sums.reserved;
    return error == VARVE_OK && !is_equal ? VARVE_ERROR_CORRUPT : error;
}
