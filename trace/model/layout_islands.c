/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each change is counted once where it happens: in the island, from whose few figures its share of the ladder follows,
 * and in the sums. Only memory that goes from the middle of an island needs a walk over blocks, those of its smaller
 * part. Called by layout_state.c.
 */
#include "trace/model/layout_state.h"
#include "trace/model/model_event.h"
#include "trace/record.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ISLANDS_PER_EVENT 4U

static uint64_t layout_islands_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- slots ---- */

bool islands_reserve(struct islands *islands)
{
    return ARRAY_GROW(islands->islands, islands->island_capacity, islands->island_limit + ISLANDS_PER_EVENT) &&
           ARRAY_GROW(islands->pools, islands->pool_capacity, islands->pool_count + ISLANDS_PER_EVENT) &&
           ranges_reserve(&islands->ranges, ISLANDS_PER_EVENT) && ranges_reserve(&islands->fresh, ISLANDS_PER_EVENT);
}

void islands_clear(struct islands *islands)
{
    ranges_clear(&islands->ranges);
    ranges_clear(&islands->fresh);
    free(islands->islands);
    free(islands->pools);
    *islands = (struct islands){0};
}

static struct island *island_of(const struct islands *islands, uint64_t number)
{
    return &islands->islands[number - 1];
}

/* Allocators have few pools and streams, and new islands are rare. */
static uint32_t layout_islands_pool_find(struct islands *islands, uint16_t pool, uint16_t stream)
{
    uint32_t key = (uint32_t)pool << 16 | stream;
    for (size_t i = 0; i < islands->pool_count; i++) {
        if (islands->pools[i].key == key) {
            return (uint32_t)i;
        }
    }
    assert(islands->pool_count < islands->pool_capacity);
    islands->pools[islands->pool_count] = (struct island_pool){.key = key};
    return (uint32_t)islands->pool_count++;
}

static void island_add(struct islands *islands, uint64_t start, uint64_t end, const struct island *island)
{
    uint32_t number = islands->island_spare;
    if (number != 0) {
        islands->island_spare = island_of(islands, number)->pool;
    } else {
        assert(islands->island_limit < islands->island_capacity);
        number = ++islands->island_limit;
    }
    *island_of(islands, number) = *island;
    const struct range range = {.start = start, .end = end, .id = number};
    ranges_insert(&islands->ranges, &range);
}

static void slot_drop(struct islands *islands, uint64_t number)
{
    *island_of(islands, number) = (struct island){.pool = islands->island_spare};
    islands->island_spare = (uint32_t)number;
}

/* ---- an island's share of the sums ---- */

/* A private pool keeps its memory while its CUDA graph or MemPool lives: what is free in it is no cache, with a block
 * in use beside it or without. Numbers 0 and 1 are the allocator's own pools. */
static bool is_cache(const struct islands *islands, const struct island *island, uint64_t active)
{
    return active == 0 && islands->pools[island->pool].key >> 16 < 2;
}

/* The share of an island that is `bytes` long goes, as it was counted. */
static void island_discount(struct islands *islands, const struct island *island, uint64_t bytes)
{
    islands->sums.bytes[LADDER_RESERVED] -= bytes;
    islands->sums.bytes[LADDER_CACHED] -= island->cached;
    islands->sums.bytes[LADDER_QUANTUM] -= bytes - island->active - island->cached - island->open;
    islands->open -= island->open;
    islands->pools[island->pool].open -= island->open;
}

/* It comes, as it is now. */
static void island_count(struct islands *islands, struct island *island, uint64_t bytes)
{
    island->cached = is_cache(islands, island, island->active) ? bytes : 0;
    island->open = island->cached > 0 ? 0 : bytes - island->active - (island->active > 0 ? island->fresh : 0);
    islands->sums.bytes[LADDER_RESERVED] += bytes;
    islands->sums.bytes[LADDER_CACHED] += island->cached;
    islands->sums.bytes[LADDER_QUANTUM] += bytes - island->active - island->cached - island->open;
    islands->open += island->open;
    islands->pools[island->pool].open += island->open;
}

/* ---- memory that no block has had ---- */

/* Bytes of [start, end). */
static uint64_t fresh_bytes(const struct islands *islands, uint64_t start, uint64_t end)
{
    uint64_t bytes = 0;
    struct range range = {.end = start};
    while (range.end < end && ranges_first(&islands->fresh, range.end, end, &range)) {
        bytes += layout_islands_least(range.end, end) - (range.start > start ? range.start : start);
    }
    return bytes;
}

/* [start, end) is not fresh any more; returns how much of it was. */
static uint64_t fresh_take(struct islands *islands, uint64_t start, uint64_t end)
{
    uint64_t bytes = 0;
    struct range range;
    while (ranges_first(&islands->fresh, start, end, &range)) {
        uint64_t last = layout_islands_least(range.end, end), first = range.start > start ? range.start : start;
        const struct range rest = {.start = end, .end = range.end, .id = 1};
        bytes += last - first;
        if (range.start < start) {
            ranges_at(&islands->fresh, range.start)->end = start;
        } else {
            ranges_remove(&islands->fresh, range.start);
        }
        if (range.end > end) {
            ranges_insert(&islands->fresh, &rest);
        }
    }
    return bytes;
}

struct ladder islands_ladder(const struct islands *islands)
{
    struct ladder ladder = islands->sums;
    if (islands->pool_count > 0) {
        ladder.bytes[LADDER_POOLS] = islands->open - islands->pools[islands->wanted].open;
    }
    return ladder;
}

static uint64_t ladder_in_use(const struct ladder *ladder)
{
    return ladder->bytes[LADDER_LIVE] + ladder->bytes[LADDER_ROUNDING] + ladder->bytes[LADDER_UNSPLIT];
}

struct ladder islands_event(struct islands *islands, const struct event *event, struct ladder_peak *peak)
{
    if (event->kind == VARVE_KIND_SEGMENT_ALLOC || event->kind == VARVE_KIND_SEGMENT_MAP ||
        event->kind == VARVE_KIND_OOM) {
        islands->wanted = layout_islands_pool_find(islands, event->pool, event->stream);
    }
    const struct ladder now = islands_ladder(islands);
    const uint64_t reserved = now.bytes[LADDER_RESERVED], most = peak->ladder.bytes[LADDER_RESERVED];
    if (reserved > most || (reserved == most && reserved > 0 && ladder_in_use(&now) > ladder_in_use(&peak->ladder))) {
        *peak = (struct ladder_peak){.ladder = now, .seq = event->seq, .ts_ns = event->ts_ns};
    }
    return now;
}

/* ---- memory ---- */

/* Two islands that touch become one: `range` takes in the one at its end. */
static void island_absorb(struct islands *islands, const struct range *range, const struct range *next)
{
    struct island *island = island_of(islands, range->id);
    const struct island other = *island_of(islands, next->id);
    island_discount(islands, &other, next->end - next->start);
    island_discount(islands, island, range->end - range->start);
    island->active += other.active;
    island->fresh += other.fresh;
    island_count(islands, island, next->end - range->start);
    ranges_absorb(&islands->ranges, range->start);
    slot_drop(islands, next->id);
}

static bool layout_islands_is_of(const struct islands *islands, const struct range *range, uint32_t segment)
{
    return range->id != 0 && island_of(islands, range->id)->segment == segment;
}

void islands_map(struct islands *islands, const struct varve_layout *layout, uint32_t segment, uint64_t start,
                 uint64_t end)
{
    const struct layout_segment *owner = &layout->segments[segment - 1];
    const struct range fresh = {.start = start, .end = end, .id = 1};
    struct island island = {.segment = segment, .fresh = end - start};
    if (ranges_at(&islands->ranges, start) != NULL) {
        return;
    }
    island.pool = layout_islands_pool_find(islands, owner->pool, owner->stream);
    island_count(islands, &island, end - start);
    island_add(islands, start, end, &island);
    ranges_insert(&islands->fresh, &fresh);
    struct range before, after;
    ranges_around(&islands->ranges, start, &before, &after);
    struct range range = *ranges_at(&islands->ranges, start);
    if (after.start == end && layout_islands_is_of(islands, &after, segment)) {
        island_absorb(islands, &range, &after);
        range.end = after.end;
    }
    if (before.end == start && layout_islands_is_of(islands, &before, segment)) {
        island_absorb(islands, &before, &range);
    }
}

/* Bytes of blocks in use or pending in [start, end). */
static uint64_t active_bytes(const struct varve_layout *layout, uint64_t start, uint64_t end)
{
    uint64_t bytes = 0;
    struct range range = {.end = start};
    while (range.end < end && ranges_first(&layout->ranges, range.end, end, &range)) {
        bytes += layout_block_of(layout, &range)->state != VARVE_LAYOUT_FREE ? range.end - range.start : 0;
    }
    return bytes;
}

/* [start, end), which lies in the island, goes; it is not fresh any more. */
static void island_cut(struct islands *islands, const struct varve_layout *layout, const struct range *range,
                       uint64_t start, uint64_t end)
{
    struct island left = *island_of(islands, range->id);
    struct island right = left;
    island_discount(islands, &left, range->end - range->start);
    left.fresh = right.fresh -= fresh_take(islands, start, end);
    ranges_remove(&islands->ranges, range->start);
    slot_drop(islands, range->id);
    if (start - range->start < range->end - end) {
        left.active = active_bytes(layout, range->start, start);
        left.fresh = fresh_bytes(islands, range->start, start);
        right.active -= left.active;
        right.fresh -= left.fresh;
    } else {
        right.active = active_bytes(layout, end, range->end);
        right.fresh = fresh_bytes(islands, end, range->end);
        left.active -= right.active;
        left.fresh -= right.fresh;
    }
    if (start > range->start) {
        island_count(islands, &left, start - range->start);
        island_add(islands, range->start, start, &left);
    }
    if (range->end > end) {
        island_count(islands, &right, range->end - end);
        island_add(islands, end, range->end, &right);
    }
}

void islands_unmap(struct islands *islands, const struct varve_layout *layout, uint64_t start, uint64_t end)
{
    const struct range *range = ranges_at(&islands->ranges, start);
    if (range != NULL) {
        const struct range whole = *range;
        assert(end <= whole.end);
        island_cut(islands, layout, &whole, start, end);
    }
}

void islands_rename(struct islands *islands, uint64_t from, uint32_t segment, uint32_t other)
{
    struct range range = {.end = from > 0 ? from - 1 : 0}, last = {0};
    while (ranges_first(&islands->ranges, range.end, UINT64_MAX, &range)) {
        if (layout_islands_is_of(islands, &range, segment) && range.start >= from) {
            island_of(islands, range.id)->segment = other;
        }
        if (last.end == range.start && layout_islands_is_of(islands, &last, other) &&
            layout_islands_is_of(islands, &range, other)) {
            island_absorb(islands, &last, &range);
            range = (struct range){.start = last.start, .end = range.end, .id = last.id};
        }
        last = range;
    }
}

/* ---- blocks ---- */

/* An allocation may say of itself what cannot be: at most its extent is live, and its rounded size lies
 * between the two. */
static void block_count(struct ladder *sums, const struct layout_block *block, uint64_t extent, int sign)
{
    uint64_t factor = (uint64_t)(int64_t)sign;
    uint64_t live = layout_islands_least(block->requested, extent);
    uint64_t rounded = layout_islands_least(block->rounded > live ? block->rounded : live, extent);
    if (block->state == VARVE_LAYOUT_PENDING) {
        sums->bytes[LADDER_PENDING] += factor * extent;
        return;
    }
    sums->bytes[LADDER_LIVE] += factor * live;
    sums->bytes[LADDER_ROUNDING] += factor * (rounded - live);
    sums->bytes[LADDER_UNSPLIT] += factor * (extent - rounded);
}

void islands_block(struct islands *islands, uint64_t start, uint64_t end, const struct layout_block *block, int sign)
{
    const struct range *range = block->state != VARVE_LAYOUT_FREE ? ranges_at(&islands->ranges, start) : NULL;
    if (range == NULL) {
        return;
    }
    struct island *island = island_of(islands, range->id);

    block_count(&islands->sums, block, end - start, sign);
    island_discount(islands, island, range->end - range->start);
    island->active += (uint64_t)(int64_t)sign * (end - start);
    island->fresh -= fresh_take(islands, start, end);
    island_count(islands, island, range->end - range->start);
}

/* ---- the walker ---- */

struct walk {
    const struct islands *islands;
    const struct varve_layout *layout;
    struct ladder sums;
    uint64_t fresh, open;
    uint64_t *pools; /* `open` by pool */
};

/* Its blocks without a gap, and what they and the fresh ranges add up to. */
static bool is_island(struct walk *walk, const struct range *range)
{
    const struct islands *islands = walk->islands;
    const struct island *island = range->id <= islands->island_limit ? island_of(islands, range->id) : NULL;
    struct range block = {.end = range->start};
    uint64_t fresh = fresh_bytes(islands, range->start, range->end);
    if (island == NULL || island->segment == 0) {
        return false;
    }
    uint64_t active = 0;
    while (block.end < range->end) {
        uint64_t at = block.end;
        if (!layout_range_at(walk->layout, at, &block) || block.start != at || block.end > range->end ||
            layout_block_of(walk->layout, &block)->segment != island->segment) {
            return false;
        }
        if (layout_block_of(walk->layout, &block)->state != VARVE_LAYOUT_FREE) {
            active += block.end - block.start;
            block_count(&walk->sums, layout_block_of(walk->layout, &block), block.end - block.start, 1);
            fresh += fresh_bytes(islands, block.start, block.end) > 0 ? range->end : 0; /* must not be */
        }
    }
    struct range before, after;
    ranges_around(&islands->ranges, range->start, &before, &after);
    if (block.end != range->end || active != island->active || fresh != island->fresh ||
        (after.start == range->end && layout_islands_is_of(islands, &after, island->segment))) {
        return false;
    }
    uint64_t free_bytes = range->end - range->start - active;
    walk->fresh += fresh;
    walk->sums.bytes[LADDER_RESERVED] += range->end - range->start;
    uint64_t quantum = active == 0 ? 0 : fresh;
    uint64_t open = is_cache(islands, island, active) ? 0 : free_bytes - quantum;
    walk->sums.bytes[LADDER_CACHED] += free_bytes - quantum - open;
    walk->sums.bytes[LADDER_QUANTUM] += quantum;
    walk->open += open;
    walk->pools[island->pool] += open;
    return true;
}

int islands_check(const struct islands *islands, const struct varve_layout *layout)
{
    struct walk walk = {
        .islands = islands, .layout = layout, .pools = calloc(islands->pool_count + 1, sizeof(*walk.pools))};
    struct range range = {0};
    bool is_right = walk.pools != NULL && ranges_check(&islands->ranges) && ranges_check(&islands->fresh);
    while (is_right && ranges_first(&islands->ranges, range.end, UINT64_MAX, &range)) {
        is_right = is_island(&walk, &range);
    }
    for (size_t i = 0; i < islands->pool_count && is_right; i++) {
        is_right = walk.pools[i] == islands->pools[i].open;
    }
    is_right = is_right && walk.open == islands->open && walk.fresh == fresh_bytes(islands, 0, UINT64_MAX) &&
               memcmp(&walk.sums, &islands->sums, sizeof(walk.sums)) == 0 &&
               walk.sums.bytes[LADDER_RESERVED] == layout->sums.reserved;
    free(walk.pools);
    return is_right ? VARVE_OK : VARVE_ERROR_CORRUPT;
}
