/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and blocks of one allocator as they follow from its events. The hard part is that traces differ in
 * what they tell: ours have every split and merge, PyTorch's have none, the size of a block is then only the
 * request's, and either may begin in the middle. So an event is taken for what it says about a range of
 * addresses, and whatever contradicts it there gives way: an allocation in the middle of a free block cuts
 * it, one where no segment is known implies a segment, and frees merge where no merge was ever told.
 * model/blocks.c keeps one for each allocator; analysis/ replays events on one from a keyframe.
 */
#include "trace/model/layout/layout.h"

/* ---- segments ---- */

static uint64_t span_end(const struct event *event)
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

static void segment_alloc(struct varve_layout *layout, const struct event *event,
                          struct layout_change *change)
{
    const struct layout_segment segment = segment_of(event);
    layout_span_clear(layout, event->addr, span_end(event), 0, change);
    change->segment = layout_segment_add(layout, &segment);
    change->is_new_segment = true;
    const struct layout_block block = {.segment = change->segment, .size = span_end(event) - event->addr};
    layout_block_add(layout, event->addr, span_end(event), &block);
}

static void segment_free(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range range;
    uint64_t end = span_end(event);
    if (!layout_range_at(layout, event->addr, &range)) {
        return;
    }
    change->segment = layout_block_of(layout, &range)->segment;
    const struct layout_segment *segment = &layout->segments[change->segment - 1];
    if (!segment->is_expandable && segment->addr == event->addr) {
        end = segment->addr + segment->mapped;
    }
    end = layout_span_run_end(layout, event->addr, end, &range);
    layout_span_clear(layout, event->addr, end, change->segment, change);
}

/* The segment that a mapping at [addr, end) makes larger: by its number, else the one that ends or begins
 * there. */
static uint32_t segment_find(const struct varve_layout *layout, const struct event *event)
{
    struct range range;
    uint64_t end = span_end(event);
    for (uint32_t i = 0; i < layout->expandable_count && event->arg != 0; i++) {
        if (layout->segments[layout->expandable[i] - 1].number == (uint32_t)event->arg) {
            return layout->expandable[i];
        }
    }
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
static uint64_t unmapped_take(struct varve_layout *layout, uint64_t start, uint64_t end)
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
    for (uint32_t i = 0; i < layout->expandable_count; i++) {
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
            layout_segment_resize(layout, other, 0, range.end - range.start);
            layout_segment_resize(layout, number, range.end - range.start, 0);
        }
        at = range.end;
    }
    layout_segment_settle(layout, other, change);
}

static void segment_map(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t end = span_end(event);
    uint32_t number = segment_find(layout, event);
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
        .segment = number, .size = end - event->addr, .requested = unmapped_take(layout, event->addr, end)};
    const struct range range = {
        .start = event->addr, .end = end, .id = layout_block_add(layout, event->addr, end, &block)};
    layout_block_coalesce(layout, &range);
}

static void segment_unmap(struct varve_layout *layout, const struct event *event,
                          struct layout_change *change)
{
    struct range range;
    struct range side;
    struct range gone = {.start = event->addr, .end = span_end(event)};
    if (!layout_range_at(layout, event->addr, &range)) {
        return;
    }
    change->segment = layout_block_of(layout, &range)->segment;
    gone.id = 1 + layout_block_of(layout, &range)->requested;
    gone.end = layout_span_run_end(layout, gone.start, gone.end, &range);
    layout_span_clear(layout, gone.start, gone.end, change->segment, change);
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

/* What a free makes of the block where no event will tell. */
static void block_release(struct varve_layout *layout, const struct range *range, uint32_t segment)
{
    if (layout->segments[segment - 1].is_implied) {
        layout_block_drop(layout, range);
    } else if (!layout->tells_merges) {
        layout_block_coalesce(layout, range);
    }
}

static void block_free(struct varve_layout *layout, const struct event *event, struct layout_change *change)
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
    if (event->kind == VARVE_KIND_FREE_REQUESTED) {
        layout_block_set(layout, change->block, VARVE_LAYOUT_PENDING, block->size, block->requested);
    } else {
        layout_block_set(layout, change->block, VARVE_LAYOUT_FREE, range.end - range.start, block->requested);
    }
    if (event->kind == VARVE_KIND_FREE_COMPLETED) {
        change->block = 0;
        block_release(layout, &range, change->segment);
    }
}

/* No split prepared the place: make it free and of that size. Returns the segment. */
static uint32_t place_make(struct varve_layout *layout, const struct event *event, uint64_t *end,
                           struct layout_change *change)
{
    struct range range;
    uint32_t number = 0;
    uint64_t run_end = layout_span_run_end(layout, event->addr, *end, &range);
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

static void block_alloc(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    uint64_t end = span_end(event);
    struct range *place = ranges_at(&layout->ranges, event->addr);
    const struct layout_block *old = place != NULL ? layout_block_of(layout, place) : NULL;
    struct layout_block block = {
        .size = event->size, .requested = event->requested, .state = VARVE_LAYOUT_USED};
    if (old == NULL || old->state != VARVE_LAYOUT_FREE || end > place->end) {
        block.segment = place_make(layout, event, &end, change);
        change->block = layout_block_add(layout, event->addr, end, &block);
    } else if (place->start == event->addr && place->end == end) {
        block.segment = old->segment;
        change->block = (uint32_t)place->id;
        layout_block_set(layout, change->block, VARVE_LAYOUT_USED, event->size, event->requested);
    } else {
        block.segment = old->segment;
        layout->has_cut = true;
        change->block = layout_block_carve(layout, place, event->addr, end, &block);
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
    layout_segment_resize(layout, block->segment, 0, end - middle);
    range->end = middle;
    layout_block_add(layout, middle, end, &rest);
}

static void block_split(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range last;
    uint64_t middle = span_end(event);
    uint64_t end = middle + event->requested;
    layout->tells_merges = true;
    if (event->requested == 0 || end <= middle ||
        layout_span_free_end(layout, event->addr, end, &last) != end) {
        return;
    }
    change->segment = layout_block_of(layout, &last)->segment;
    if (last.start != event->addr) {
        layout_span_join(layout, event->addr, end, layout_block_of(layout, &last)->requested);
    }
    block_cut(layout, ranges_at(&layout->ranges, event->addr), middle);
}

static void block_merge(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    struct range last;
    uint64_t start = event->arg < event->addr ? event->arg : event->addr;
    uint64_t wanted = start + event->size;
    layout->tells_merges = true;
    /* A mapping's merge comes before the mapping itself: what is not there yet is left out. */
    uint64_t end = layout_span_free_end(layout, start, wanted, &last);
    if (wanted < start || end <= start) {
        return;
    }
    struct range *first = ranges_at(&layout->ranges, start);
    struct layout_block *block = layout_block_of(layout, first);
    const struct layout_block absorbed = *layout_block_of(layout, &last);
    change->segment = block->segment;
    if (last.start != start && first->end == last.start) {
        layout_block_drop(layout, &last);
        /* dropping may have moved ranges, and nothing else */
        ranges_at(&layout->ranges, start)->end = end;
        layout_segment_resize(layout, absorbed.segment, end - last.start, 0);
        block->size = end - start;
        block->requested = event->cause == VARVE_CAUSE_PREVIOUS ? absorbed.requested : block->requested;
    } else {
        layout_span_join(layout, start, end,
                         event->cause == VARVE_CAUSE_PREVIOUS ? absorbed.requested : block->requested);
    }
}

void layout_apply(struct varve_layout *layout, const struct event *event, struct layout_change *change)
{
    bool is_free = event->kind == VARVE_KIND_FREE_REQUESTED || event->kind == VARVE_KIND_FREE_COMPLETED;
    bool is_empty = !is_free && span_end(event) <= event->addr;
    if (event->addr == 0 || is_empty || (event->flags & VARVE_FLAG_FAILED)) {
        return;
    }
    switch (event->kind) {
    case VARVE_KIND_ALLOC:
        block_alloc(layout, event, change);
        break;
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
        block_free(layout, event, change);
        break;
    case VARVE_KIND_SPLIT:
        block_split(layout, event, change);
        break;
    case VARVE_KIND_MERGE:
        block_merge(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_ALLOC:
        segment_alloc(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_FREE:
        segment_free(layout, event, change);
        break;
    case VARVE_KIND_SEGMENT_MAP:
        segment_map(layout, event, change);
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
            layout_segment_settle(layout, change->segment, change);
            change->segment = 0;
        }
    }
}
