/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks come back: free, free_block and try_merge_blocks. The freed block survives a merge and its
 * neighbours vanish into it; that identity matters, because `requested` of an inactive block is never reset
 * and shows up in snapshots.
 */
#include "alloc/allocator_internal.h"

#include <inttypes.h>

void block_shrink_free(struct block *block, uint64_t bytes)
{
    struct pool *pool = block_pool(block);

    if (block->is_free) {
        block->gc_base = pool->search_count;
        free_index_move(&pool->index, block, block->addr + bytes, block->size - bytes);
    } else {
        block->addr += bytes;
        block->size -= bytes;
        block_insert_free(block);
    }
}

void block_insert_free(struct block *block)
{
    struct pool *pool = block_pool(block);

    block->gc_base = pool->search_count;
    free_index_insert(&pool->index, block);
}

static bool may_absorb(const struct varve_alloc *alloc, const struct block *block,
                       const struct block *neighbour)
{
    return block_is_available(neighbour) && neighbour->is_mapped == block->is_mapped &&
           POLICY_CALL(alloc, may_merge, block, neighbour);
}

/* With `takes_place` the block comes into the index where the neighbour was. */
static uint64_t absorb(struct varve_alloc *alloc, struct block *block, struct block *neighbour,
                       bool takes_place)
{
    struct pool *pool = block_pool(block);
    bool is_previous = block->prev == neighbour;
    uint64_t absorbed, absorbed_addr;

    assert(neighbour != NULL);
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
        free_index_replace(&pool->index, neighbour, block);
    } else if (neighbour->is_free) {
        free_index_remove(&pool->index, neighbour);
    } else if (!neighbour->is_mapped) {
        pool_unmapped_remove(pool, neighbour);
    }
    block_slab_give(&alloc->slab, neighbour);
    if (block->is_mapped) {
        emit(alloc, (struct emission){.kind = VARVE_KIND_MERGE,
                                      .cause = is_previous ? VARVE_CAUSE_PREVIOUS : VARVE_CAUSE_NEXT,
                                      .home = block->home,
                                      .addr = block->addr,
                                      .size = block->size,
                                      .requested = absorbed,
                                      .arg = absorbed_addr});
    }
    return absorbed;
}

uint64_t block_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour)
{
    return may_absorb(alloc, block, neighbour) ? absorb(alloc, block, neighbour, false) : 0;
}

/* The net change of inactive_split is applied once, as one increase or one decrease (free_block). */
static void count_inactive(struct varve_alloc *alloc, const struct block *block, uint64_t before,
                           uint64_t after)
{
    bool is_small = block_pool(block)->is_small;
    int64_t count = -(int64_t)(before > 0) - (int64_t)(after > 0);
    int64_t bytes = -(int64_t)before - (int64_t)after;

    if (block->expandable != NULL) {
        return;
    }
    if (block_is_split(block)) {
        count++;
        bytes += (int64_t)block->size;
    }
    if (count != 0) {
        stat_change(alloc->stats.inactive_split, is_small, count);
    }
    if (bytes != 0) {
        stat_change(alloc->stats.inactive_split_bytes, is_small, bytes);
    }
}

void block_free(struct varve_alloc *alloc, struct block *block)
{
    uint64_t own = block->size;
    uint64_t before = 0, after = 0;
    bool is_small = block_pool(block)->is_small;
    bool has_next;

    assert(!block->is_allocated && block->event_count == 0 && block->uses == NULL);
    emit(alloc, (struct emission){.kind = VARVE_KIND_FREE_COMPLETED,
                                  .home = block->home,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
    block_map_remove(&alloc->map, block);
    block->id = 0;
    has_next = may_absorb(alloc, block, block->next);
    block->gc_base = block_pool(block)->search_count;
    if (may_absorb(alloc, block, block->prev)) {
        before = absorb(alloc, block, block->prev, !has_next);
    }
    if (has_next) {
        after = absorb(alloc, block, block->next, true);
    }
    if (!block->is_free) {
        free_index_insert(&block_pool(block)->index, block);
    }
    count_inactive(alloc, block, before, after);
    stat_change(alloc->stats.active, is_small, -1);
    stat_change(alloc->stats.active_bytes, is_small, -(int64_t)own);
    stat_change(alloc->stats.requested_bytes, is_small, -(int64_t)block->requested);
}

int block_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    struct block *block = block_map_find(&alloc->map, addr);
    bool is_small;

    if (block == NULL || !block->is_allocated) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 block != NULL ? "address %#" PRIx64 " was freed already"
                                               : "address %#" PRIx64 " is not allocated by this allocator",
                                 addr);
    }
    is_small = block_pool(block)->is_small;
    block->is_allocated = false;
    stat_change(alloc->stats.allocation, is_small, -1);
    stat_change(alloc->stats.allocated_bytes, is_small, -(int64_t)block->size);
    emit(alloc, (struct emission){.kind = VARVE_KIND_FREE_REQUESTED,
                                  .home = block->home,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
    if (block->size >= alloc->config.max_split_size) {
        stat_decrease(&alloc->stats.oversize_allocations, 1);
    }
    if (block->uses != NULL) {
        int error = stream_use_wait(alloc, block);
        return error == VARVE_OK
                   ? error
                   : varve_message_set(
                         message, error,
                         "freed, but the device failed to record an event, which is tried again: %s",
                         varve_strerror(error));
    }
    block_free(alloc, block);
    return VARVE_OK;
}
