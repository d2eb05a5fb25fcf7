/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way of nearly all requests and frees: those that the pool serves from an ordinary segment, and those of
 * blocks that nobody else uses. It first looks, and leaves what is not so to the long way (request_way.c,
 * block_links.h) before anything has changed; what it does then is the same. Called by allocator_allocate.c with the
 * lock held and alloc->way not long, which rules out what is_usual of core/allocator_state.c lists.
 */
#ifndef VARVE_ALLOC_CORE_CACHED_PATH_H
#define VARVE_ALLOC_CORE_CACHED_PATH_H

#include "alloc/core/allocator_state.h"
#include "alloc/core/block_links.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/policy/pytorch_rules.h"

/* Of an ordinary segment, with BLOCK_IN_MAP or without. */
#define CACHED_FREE ((unsigned)(BLOCK_MAPPED | BLOCK_FREE))
#define CACHED_USED ((unsigned)(BLOCK_MAPPED | BLOCK_ALLOCATED | BLOCK_IN_MAP))

/* The statistics of the pool's kind, and of the other kind. */
struct cached_counters {
    struct hot_counters *own;
    const struct hot_counters *other;
};

HOT struct cached_counters cached_counters_of(struct varve_alloc *alloc, const struct stream_bins *bins)
{
    struct hot_counters *own = hot_counters_of(&alloc->counters, bins->is_small);

    return (struct cached_counters){own, hot_other(&alloc->counters, own)};
}

HOT void cached_increase(struct varve_alloc *alloc, struct cached_counters counters, enum hot_counter counter,
                         uint64_t amount)
{
    hot_add(&alloc->counters, counters.own, counters.other, counter, (int64_t)amount);
}

HOT void cached_decrease(struct cached_counters counters, enum hot_counter counter, uint64_t amount)
{
    assert(counters.own->current[counter] >= (int64_t)amount);
    counters.own->current[counter] -= (int64_t)amount;
}

HOT bool cached_is_free(const struct block *block)
{
    return (block->state & ~(unsigned)BLOCK_IN_MAP) == CACHED_FREE;
}

/* the free index: `has_trees` is known when it is compiled; without it all blocks are alone in their bins */

HOT void cached_remove(struct stream_bins *bins, struct block *block, bool has_trees)
{
    if (!has_trees || LIKELY(block->is_alone)) {
        bins->roots[block->bin] = NULL;
        bin_unmark(bins, block->bin);
    } else {
        free_index_tree_remove(&bins->roots[block->bin], block);
    }
}

HOT void cached_insert(struct stream_bins *bins, struct block *block, unsigned bin, bool has_trees)
{
    block->bin = (uint16_t)bin;
    if (!has_trees || LIKELY(bins->roots[bin] == NULL)) {
        block->is_alone = true;
        bins->roots[bin] = block;
        bin_mark(bins, bin);
    } else {
        free_index_tree_insert(&bins->roots[bin], block);
    }
}

/* `block`, whose address and size are set, comes into the index and `old` goes. */
HOT void cached_replace(struct stream_bins *bins, struct block *old, struct block *block)
{
    unsigned from = old->bin, to = index_bin_of(block->size);
    bool is_alone = old->is_alone && (to == from || bins->roots[to] == NULL);

    if (UNLIKELY(!is_alone)) {
        cached_remove(bins, old, true);
        cached_insert(bins, block, to, true);
        return;
    }
    block->is_alone = true;
    if (from != to) {
        bin_move(bins, from, to, block);
    } else {
        block->bin = (uint16_t)to;
        bins->roots[to] = block;
    }
}

/* requests */

HOT void cached_count(struct varve_alloc *alloc, struct cached_counters counters, uint64_t size, uint64_t requested)
{
    cached_increase(alloc, counters, HOT_ALLOCATION, 1);
    cached_increase(alloc, counters, HOT_ALLOCATED_BYTES, size);
    cached_increase(alloc, counters, HOT_REQUESTED_BYTES, requested);
}

/* A free block, or the front that was cut off, is the request's now. */
HOT struct block *cached_hand_out(struct varve_alloc *alloc, struct block *block, struct cached_counters counters,
                                  uint64_t size, uint64_t requested)
{
    block->requested = requested;
    block->id = ++alloc->allocation_id;
    block->state = CACHED_USED;
    block->has_user = false;
    cached_count(alloc, counters, size, requested);
    return block;
}

/* The whole block, of that size. */
HOT struct block *cached_take(struct varve_alloc *alloc, struct stream_bins *bins, struct block *block,
                              struct cached_counters counters, uint64_t size, uint64_t requested, bool has_trees)
{
    cached_remove(bins, block, has_trees);
    bins->blocks--;
    if (LIKELY(block_is_split(block))) {
        cached_decrease(counters, HOT_INACTIVE_SPLIT, 1);
        cached_decrease(counters, HOT_INACTIVE_SPLIT_BYTES, size);
    }
    if (UNLIKELY(!block->is_in_map)) {
        block_map_put(&alloc->map, block);
    }
    return cached_hand_out(alloc, block, counters, size, requested);
}

/* The rest of a block, whose front is cut off, keeps its place in the index if its bin does not change. */
HOT void cached_shrink(struct stream_bins *bins, struct block *block, uint64_t addr, uint64_t size)
{
    unsigned from = block->bin, to = index_bin_of(size);
    bool is_alone = block->is_alone && (to == from || bins->roots[to] == NULL);

    if (UNLIKELY(!is_alone)) {
        cached_remove(bins, block, true);
        block->addr = addr;
        block->size = size;
        cached_insert(bins, block, to, true);
        return;
    }
    block->addr = addr;
    block->size = size;
    if (from != to) {
        bin_move(bins, from, to, block);
    }
}

/* Returns the front. */
HOT struct block *cached_cut(struct varve_alloc *alloc, struct stream_bins *bins, struct block *block,
                             struct cached_counters counters, uint64_t size)
{
    struct block *front = alloc->slab.spare, *previous = block->prev;
    uint64_t addr = block->addr, rest = block->size - size;

    alloc->slab.spare = front->next;
    alloc->slab.in_use++;
    front->addr = addr;
    front->size = size;
    front->prev = previous;
    front->next = block;
    front->bins = bins;
    front->segment_id = block->segment_id;
    block->prev = front;
    if (previous != NULL) {
        previous->next = front;
    }
    block_map_take(&alloc->map, addr, block, front);
    block->state = CACHED_FREE;
    cached_shrink(bins, block, addr + size, rest);
    if (previous != NULL || block->next != NULL) {
        cached_decrease(counters, HOT_INACTIVE_SPLIT_BYTES, size);
    } else {
        cached_increase(alloc, counters, HOT_INACTIVE_SPLIT_BYTES, rest);
        cached_increase(alloc, counters, HOT_INACTIVE_SPLIT, 1);
    }
    return front;
}

/* The least rest that is worth a block of its own. */
HOT uint64_t cached_least_rest(bool is_small)
{
    return is_small ? ROUNDING_MIN_BLOCK : ROUNDING_SMALL_SIZE + 1;
}

HOT bool cached_may_give(const struct varve_alloc *alloc, const struct block *block)
{
    return cached_is_free(block) && block->size < alloc->config.max_split_size &&
           (block->is_in_map || alloc->map.count < alloc->map.limit);
}

/// The bins of a request's pool and stream; NULL: it is not usual. `bytes` may be any number.
HOT struct stream_bins *cached_bins(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream)
{
    uint64_t rounded = rounding_up(bytes, ROUNDING_MIN_BLOCK);
    struct stream_bins *bins = rounded <= ROUNDING_SMALL_SIZE ? alloc->small.index.recent : alloc->large.index.recent;

    return LIKELY(rounded - 1 < ROUNDING_REQUEST_LIMIT - 1 && bins != NULL && bins->stream == stream) ? bins : NULL;
}

HOT unsigned cached_bin(uint64_t bytes)
{
    return index_bin_of(rounding_up(bytes, ROUNDING_MIN_BLOCK));
}

/// A request that a block of its size serves, alone in its bin. NULL: nothing was done.
HOT struct block *cached_alloc_exact(struct varve_alloc *alloc, struct stream_bins *bins, unsigned bin, uint64_t bytes,
                                     bool is_recorded)
{
    uint64_t rounded = rounding_up(bytes, ROUNDING_MIN_BLOCK);
    struct block *block = bins->roots[bin];

    if (block == NULL || !block->is_alone || block->size != rounded || !cached_may_give(alloc, block)) {
        return NULL;
    }
    if (is_recorded) {
        emit_handout_here(alloc, block->segment_id, bins, block->addr, rounded, bytes, alloc->allocation_id + 1,
                          rounded, false, VARVE_CAUSE_CACHE);
    }
    return cached_take(alloc, bins, block, cached_counters_of(alloc, bins), rounded, bytes, false);
}

/// Any request that the pool serves, from bins of its stream, of which `bin` is that of its rounded size. NULL: nothing
/// was done.
HOT struct block *cached_alloc(struct varve_alloc *alloc, struct stream_bins *bins, unsigned bin, uint64_t bytes,
                               bool is_recorded)
{
    uint64_t rounded = rounding_up(bytes, ROUNDING_MIN_BLOCK), found_size;
    struct cached_counters counters;
    bool is_cut;
    struct block *block = free_index_best_from(bins, bin, rounded);

    if (UNLIKELY(block == NULL || !cached_may_give(alloc, block))) {
        return NULL;
    }
    found_size = block->size;
    counters = cached_counters_of(alloc, bins);
    is_cut = found_size - rounded >= cached_least_rest(bins->is_small);
    if (UNLIKELY(is_cut && alloc->slab.spare == NULL)) {
        return NULL;
    }
    if (is_recorded) {
        emit_handout_here(alloc, block->segment_id, bins, block->addr, is_cut ? rounded : found_size, bytes,
                          alloc->allocation_id + 1, is_cut ? found_size : rounded, is_cut, VARVE_CAUSE_CACHE);
    }
    if (is_cut) {
        block = cached_cut(alloc, bins, block, counters, rounded);
        return cached_hand_out(alloc, block, counters, rounded, bytes);
    }
    return cached_take(alloc, bins, block, counters, found_size, bytes, true);
}

/* frees */

/// Is the free of the block usual?
HOT bool cached_is_used(const struct varve_alloc *alloc, const struct block *block)
{
    return block->state == CACHED_USED && block->size < alloc->config.max_split_size;
}

/// The slot in the map of a block whose free is usual; NULL: it is not. `addr` is not 0.
HOT struct block_map_slot *cached_find(const struct varve_alloc *alloc, uint64_t addr)
{
    struct block_map_slot *slot = &alloc->map.slots[block_map_start(&alloc->map, addr)];

    while (UNLIKELY(slot->addr != addr)) {
        if (slot->block == NULL) {
            return NULL;
        }
        slot = &alloc->map.slots[((uint64_t)(slot - alloc->map.slots) + 1) & block_map_mask(&alloc->map)];
    }
    return LIKELY(cached_is_used(alloc, slot->block)) ? slot : NULL;
}

/// Does a freed block absorb this neighbour of it?
HOT bool cached_absorbs(const struct block *neighbour)
{
    return neighbour != NULL && (neighbour->state & BLOCK_FREE) != 0;
}

/* Its descriptor is not needed any more. */
HOT void cached_vanish(struct varve_alloc *alloc, struct block *neighbour)
{
    neighbour->state = 0;
    neighbour->next = alloc->slab.spare;
    alloc->slab.spare = neighbour;
    alloc->slab.in_use--;
}

/* The change of what is free in parts of segments; `size` is the block's before it merged. */
HOT void cached_count_inactive(struct varve_alloc *alloc, struct cached_counters counters, bool is_split,
                               int neighbours, uint64_t size, uint64_t absorbed)
{
    if (LIKELY(is_split)) {
        if (neighbours == 0) {
            cached_increase(alloc, counters, HOT_INACTIVE_SPLIT, 1);
        } else if (neighbours == 2) {
            cached_decrease(counters, HOT_INACTIVE_SPLIT, 1);
        }
        cached_increase(alloc, counters, HOT_INACTIVE_SPLIT_BYTES, size);
    } else if (neighbours > 0) {
        cached_decrease(counters, HOT_INACTIVE_SPLIT, (uint64_t)neighbours);
        cached_decrease(counters, HOT_INACTIVE_SPLIT_BYTES, absorbed);
    }
}

HOT void cached_count_free(struct cached_counters counters, const struct block *block)
{
    cached_decrease(counters, HOT_ALLOCATION, 1);
    cached_decrease(counters, HOT_ALLOCATED_BYTES, block->size);
    cached_decrease(counters, HOT_REQUESTED_BYTES, block->requested);
}

/// Free a block that absorbs no neighbour. `has_trees`, or nothing is in the bin of its size.
HOT void cached_free_alone(struct varve_alloc *alloc, struct block *block, bool has_trees)
{
    struct stream_bins *bins = block->bins;
    struct cached_counters counters = cached_counters_of(alloc, bins);

    cached_count_free(counters, block);
    block->id = 0;
    block->state = CACHED_FREE | BLOCK_IN_MAP;
    bins->blocks++;
    cached_insert(bins, block, index_bin_of(block->size), has_trees);
    cached_count_inactive(alloc, counters, block_is_split(block), 0, block->size, 0);
}

/// Free a block that absorbs the neighbours that are said, which is known when it is compiled.
HOT void cached_free_merging(struct varve_alloc *alloc, struct block_map_slot *slot, bool takes_previous,
                             bool takes_next)
{
    struct block *block = slot->block, *previous = block->prev, *next = block->next;
    struct block *absorbed_next = next, *absorbed_previous = previous;
    struct stream_bins *bins = block->bins;
    uint64_t size = block->size, addr = block->addr;
    uint64_t before = takes_previous ? previous->size : 0, after = takes_next ? next->size : 0;
    unsigned state = CACHED_FREE | BLOCK_IN_MAP;
    struct cached_counters counters = cached_counters_of(alloc, bins);

    cached_count_free(counters, block);
    if (takes_next) {
        if (UNLIKELY(next->is_in_map)) {
            block_map_clear(&alloc->map, block_map_find_slot(&alloc->map, addr + size));
            slot = block_map_find_slot(&alloc->map, addr);
        }
        next = next->next;
        block->next = next;
        if (next != NULL) {
            next->prev = block;
        }
    }
    if (takes_previous) {
        block_map_clear(&alloc->map, slot);
        block->addr = addr - before;
        if (previous->is_in_map) {
            block_map_take(&alloc->map, addr - before, previous, block);
        } else {
            state = CACHED_FREE;
        }
        previous = previous->prev;
        block->prev = previous;
        if (previous != NULL) {
            previous->next = block;
        }
    }
    block->size = size + before + after;
    block->id = 0;
    block->state = (uint8_t)state;
    if (takes_previous && takes_next) {
        cached_remove(bins, absorbed_next, true);
        bins->blocks--;
    }
    cached_replace(bins, takes_previous ? absorbed_previous : absorbed_next, block);
    if (takes_next) {
        cached_vanish(alloc, absorbed_next);
    }
    if (takes_previous) {
        cached_vanish(alloc, absorbed_previous);
    }
    cached_count_inactive(alloc, counters, previous != NULL || next != NULL, takes_previous + takes_next, size,
                          before + after);
}

#endif
