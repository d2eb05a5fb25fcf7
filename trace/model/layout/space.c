/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks and segments as such: making them, taking them away, and what can be done to the blocks in a range
 * of addresses. The sums and the bytes of each segment are kept here and nowhere else; nothing here knows of
 * events but by struct layout_change, which hears of what ends. layout.c and code.c call it.
 */
#include "trace/model/layout/layout.h"

#include <stdlib.h>

#define BLOCKS_PER_EVENT 4U

/* ---- slots ---- */

static int slots_grow(void **slots, uint32_t *capacity, uint32_t wanted, size_t bytes)
{
    if (wanted <= *capacity) {
        return VARVE_OK;
    }
    uint32_t larger = 2 * wanted + 12;
    void *grown = realloc(*slots, larger * bytes);
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *slots = grown;
    *capacity = larger;
    return VARVE_OK;
}

int layout_reserve(struct varve_layout *layout)
{
    int code = slots_grow((void **)&layout->blocks, &layout->block_capacity,
                          layout->block_limit + BLOCKS_PER_EVENT, sizeof *layout->blocks);
    if (code == VARVE_OK) {
        code = slots_grow((void **)&layout->segments, &layout->segment_capacity, layout->segment_limit + 1,
                          sizeof *layout->segments);
    }
    if (code == VARVE_OK) {
        code = slots_grow((void **)&layout->expandable, &layout->expandable_capacity,
                          layout->expandable_count + 1, sizeof *layout->expandable);
    }
    if (code == VARVE_OK) {
        code = ranges_reserve(&layout->ranges, BLOCKS_PER_EVENT);
    }
    return code == VARVE_OK ? ranges_reserve(&layout->unmapped, BLOCKS_PER_EVENT) : code;
}

void layout_clear(struct varve_layout *layout)
{
    ranges_clear(&layout->ranges);
    ranges_clear(&layout->unmapped);
    free(layout->blocks);
    free(layout->segments);
    free(layout->expandable);
    *layout = (struct varve_layout){0};
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
    for (uint32_t i = 0; i < layout->expandable_count; i++) {
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

void layout_segment_resize(struct varve_layout *layout, uint32_t number, uint64_t more, uint64_t less)
{
    struct layout_segment *segment = &layout->segments[number - 1];
    segment->mapped += more - less;
    if (!segment->is_implied) {
        layout->sums.reserved += more - less;
    }
}

uint32_t layout_block_add(struct varve_layout *layout, uint64_t start, uint64_t end,
                          const struct layout_block *block)
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
    layout_segment_resize(layout, block->segment, end - start, 0);
    return number;
}

/* The block goes; its segment stays, even without memory. */
void layout_block_drop(struct varve_layout *layout, const struct range *range)
{
    struct layout_block *block = &layout->blocks[range->id - 1];
    sums_add(layout, block, -1);
    layout_segment_resize(layout, block->segment, 0, range->end - range->start);
    ranges_remove(&layout->ranges, range->start);
    *block = (struct layout_block){.segment = layout->block_spare};
    layout->block_spare = (uint32_t)range->id;
}

/* A state or a size changes, the extent does not. */
void layout_block_set(struct varve_layout *layout, uint32_t number, uint8_t state, uint64_t size,
                      uint64_t requested)
{
    struct layout_block *block = &layout->blocks[number - 1];
    sums_add(layout, block, -1);
    block->state = state;
    block->size = size;
    block->requested = requested;
    sums_add(layout, block, 1);
}

/* ---- ranges of addresses ---- */

void layout_segment_settle(struct varve_layout *layout, uint32_t number, const struct layout_change *change)
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
void layout_span_clear(struct varve_layout *layout, uint64_t start, uint64_t end, uint32_t kept,
                       const struct layout_change *change)
{
    struct range range;
    while (ranges_first(&layout->ranges, start, end, &range)) {
        const struct layout_block old = *layout_block_of(layout, &range);
        struct layout_block rest = {.segment = old.segment};
        block_lose(&old, change);
        layout_block_drop(layout, &range);
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
            layout_segment_settle(layout, old.segment, change);
        }
    }
}

/* The end of what lies in [start, end) without a gap, all free and of one segment; `start` if nothing does.
 */
uint64_t layout_span_free_end(const struct varve_layout *layout, uint64_t start, uint64_t end,
                              struct range *last_out)
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
void layout_span_join(struct varve_layout *layout, uint64_t start, uint64_t end, uint64_t requested)
{
    struct range range;
    uint32_t segment = 0;
    if (layout_range_at(layout, start, &range) && range.start == start && range.end == end) {
        layout_block_of(layout, &range)->requested = requested; /* it is free: no sum changes */
        return;
    }
    while (ranges_first(&layout->ranges, start, end, &range)) {
        segment = layout_block_of(layout, &range)->segment;
        layout_block_drop(layout, &range);
    }
    const struct layout_block whole = {.segment = segment, .size = end - start, .requested = requested};
    layout_block_add(layout, start, end, &whole);
}

static bool block_joins(const struct varve_layout *layout, uint32_t segment, const struct range *neighbour)
{
    const struct layout_block *block = neighbour->id != 0 ? layout_block_of(layout, neighbour) : NULL;
    return block != NULL && block->segment == segment && block->state == VARVE_LAYOUT_FREE;
}

static void block_slot_drop(struct varve_layout *layout, uint64_t number)
{
    layout->blocks[number - 1] = (struct layout_block){.segment = layout->block_spare};
    layout->block_spare = (uint32_t)number;
}

/* A free block absorbs its free neighbours of the same segment: no sum changes. */
void layout_block_coalesce(struct varve_layout *layout, const struct range *range)
{
    struct layout_block *block = layout_block_of(layout, range);
    struct range before;
    struct range after;
    uint64_t end = range->end;
    assert(block->state == VARVE_LAYOUT_FREE);
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
uint32_t layout_block_carve(struct varve_layout *layout, struct range *place, uint64_t start, uint64_t end,
                            const struct layout_block *block)
{
    struct layout_block *old = layout_block_of(layout, place);
    uint64_t place_end = place->end;
    assert(old->state == VARVE_LAYOUT_FREE && place->start <= start && end <= place_end);
    layout_segment_resize(layout, old->segment, 0, end - start);
    old->row = 0;
    if (place->start == start) {
        place->start = end;
        old->size = place_end - end;
        return layout_block_add(layout, start, end, block);
    }
    place->end = start;
    old->size = start - place->start;
    old->requested = 0;
    if (end < place_end) {
        const struct layout_block rest = {.segment = old->segment, .size = place_end - end};
        layout_segment_resize(layout, old->segment, 0, place_end - end);
        layout_block_add(layout, end, place_end, &rest);
    }
    return layout_block_add(layout, start, end, block);
}

/* The end of the blocks of one segment that lie in [start, end) without a gap, at most `end`; one of them in
 * `range_out`; `start` if there are none. */
uint64_t layout_span_run_end(const struct varve_layout *layout, uint64_t start, uint64_t end,
                             struct range *range_out)
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

/* ---- the walker ---- */

struct walk {
    const struct varve_layout *layout;
    struct layout_sums sums;
    uint64_t *mapped; /* by segment */
};

static int walk_range(void *context, const struct range *range)
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
    int code =
        ranges_check(&layout->ranges) == VARVE_OK ? ranges_check(&layout->unmapped) : VARVE_ERROR_CORRUPT;
    if (code == VARVE_OK) {
        code = ranges_each(&layout->ranges, walk_range, &walk);
    }
    for (uint32_t i = 0; i < layout->segment_limit && code == VARVE_OK; i++) {
        code = layout->segments[i].mapped == walk.mapped[i] ? VARVE_OK : VARVE_ERROR_CORRUPT;
    }
    free(walk.mapped);
    bool is_equal =
        walk.sums.allocated == layout->sums.allocated && walk.sums.active == layout->sums.active &&
        walk.sums.requested == layout->sums.requested && walk.sums.reserved == layout->sums.reserved;
    return code == VARVE_OK && !is_equal ? VARVE_ERROR_CORRUPT : code;
}
