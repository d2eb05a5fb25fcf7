/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks come back: free_block and try_merge_blocks, inline for each cached free. The freed block survives a merge and
 * its neighbours vanish into it; that identity matters, because `requested` of an inactive block is never reset and
 * shows up in snapshots.
 */
#ifndef VARVE_ALLOC_CORE_BLOCK_LINKS_H
#define VARVE_ALLOC_CORE_BLOCK_LINKS_H

#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/policy/pytorch_rules.h"

/// The block is not in use any more: record, merge, insert.
void block_free(struct varve_alloc *alloc, struct block *block);
/// Put a free block into its pool; its age begins.
void block_insert_free(struct block *block);
/// The first `bytes` of a block are cut off; the rest is free, and in the index afterwards.
void block_shrink_free(struct block *block, uint64_t bytes);
/// Absorb a neighbour (NULL allowed) if that may be; returns the bytes absorbed.
uint64_t block_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour);

/* Ages count only where searches are counted. */
HOT void block_begin_age(struct block *block, const struct pool *pool)
{
    if (UNLIKELY(pool->search_count != 0)) {
        block->freed_at = pool->search_count;
    }
}

HOT bool block_may_absorb(const struct varve_alloc *alloc, const struct block *block, const struct block *neighbour)
{
    const uint8_t looked_at = BLOCK_ALLOCATED | BLOCK_HAS_USERS | BLOCK_MAPPED;

    return neighbour != NULL && (neighbour->state & looked_at) == (block->state & BLOCK_MAPPED) &&
           POLICY_CALL(policy_of_pool(alloc, block_pool(block)), may_merge, &alloc->config, block, neighbour);
}

/* With `takes_place` the block comes into the index where the neighbour was. */
HOT uint64_t block_absorb(struct varve_alloc *alloc, struct pool *pool, struct block *block, struct block *neighbour,
                          bool takes_place)
{
    bool is_previous = block->prev == neighbour;
    uint64_t absorbed, absorbed_addr;

    assert(neighbour != NULL && !block->is_in_map);
    absorbed = neighbour->size;
    absorbed_addr = neighbour->addr;
    if (is_previous) {
        block->addr = neighbour->addr;
        block->prev = neighbour->prev;
        if (block->prev != NULL) {
            block->prev->next = block;
        }
    } else {
        block->next = neighbour->next;
        if (block->next != NULL) {
            block->next->prev = block;
        }
    }
    block->size += absorbed;
    if (takes_place) {
        free_index_replace(neighbour, block);
    } else if (neighbour->is_free) {
        free_index_remove(&pool->index, neighbour);
    } else if (!neighbour->is_mapped) {
        pool_unmapped_remove(pool, neighbour);
    }
    if (neighbour->is_in_map) {
        block_map_clear(&alloc->map, block_map_find_slot(&alloc->map, absorbed_addr));
    }
    block_slab_release(&alloc->slab, neighbour);
    return absorbed;
}

/* The net change of inactive_split is applied once, as one increase or one decrease (free_block). */
HOT void block_count_inactive(struct varve_alloc *alloc, const struct pool *pool, const struct block *block,
                              uint64_t before, uint64_t after)
{
    int64_t count = -(int64_t)(before > 0) - (int64_t)(after > 0);
    int64_t bytes = -(int64_t)before - (int64_t)after;

    if (block->is_expandable) {
        return;
    }
    if (block_is_split(block)) {
        count++;
        bytes += (int64_t)block->size;
    }
    if (count != 0) {
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT, pool->is_small, count);
    }
    if (bytes != 0) {
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, pool->is_small, bytes);
    }
}

/// block_complete of a block that a backend keeps.
void block_complete_backed(struct varve_alloc *alloc, struct block *block, struct block_map_slot *slot,
                           enum varve_kind kind);

/* `slot` is the block's in the map, `pool` its own; `kind`: the free was requested just now, or only completes. */
HOT void block_complete(struct varve_alloc *alloc, struct pool *pool, struct block *block, struct block_map_slot *slot,
                        enum varve_kind kind)
{
    uint64_t before = 0, after = 0, id = block->id;
    struct block *previous = block->prev, *next = block->next;
    bool has_next;

    assert(!block->is_allocated && !block->has_users);
    if (UNLIKELY(backend_of_pool(alloc, pool) != NULL)) {
        block_complete_backed(alloc, block, slot, kind);
        return;
    }
    block_map_clear(&alloc->map, slot);
    block->id = 0;
    has_next = block_may_absorb(alloc, block, next);
    block_begin_age(block, pool);
    if (block_may_absorb(alloc, block, previous)) {
        before = block_absorb(alloc, pool, block, previous, !has_next);
    }
    if (has_next) {
        after = block_absorb(alloc, pool, block, next, true);
    }
    if ((before | after) == 0) {
        free_index_insert(&pool->index, block);
    }
    block_count_inactive(alloc, pool, block, before, after);
    stat_complete(&alloc->counters, pool->is_small, block->requested);
    if (UNLIKELY(alloc->recorder != NULL)) {
        emit_freed(alloc, kind, block, id, before, after);
    }
}

#endif
