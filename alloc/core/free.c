/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks come back: free, free_block and try_merge_blocks. The freed block survives a merge and its
 * neighbours vanish into it; that identity matters, because `requested` of an inactive block is never reset
 * and shows up in snapshots.
 */
#include "alloc/core/free.h"
#include "alloc/core/allocator.h"
#include "alloc/core/counters.h"
#include "alloc/core/emit.h"
#include "alloc/core/oom.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/pytorch.h"

#include <inttypes.h>

void block_shrink_free(struct block *block, uint64_t bytes)
{
    struct pool *pool = block_pool(block);

    if (block->is_free) {
        block->freed_at = pool->search_count;
        free_index_move(block, block->addr + bytes, block->size - bytes);
    } else {
        block->addr += bytes;
        block->size -= bytes;
        block_insert_free(block);
    }
}

void block_insert_free(struct block *block)
{
    struct pool *pool = block_pool(block);

    block->freed_at = pool->search_count;
    free_index_insert(&pool->index, block);
}

HOT bool may_absorb(const struct varve_alloc *alloc, const struct block *block, const struct block *neighbour)
{
    return block_is_available(neighbour) && neighbour->is_mapped == block->is_mapped &&
           POLICY_CALL(alloc->policy, may_merge, &alloc->config, block, neighbour);
}

/* With `takes_place` the block comes into the index where the neighbour was. */
HOT uint64_t absorb(struct varve_alloc *alloc, struct block *block, struct block *neighbour, bool takes_place)
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
        free_index_replace(neighbour, block);
    } else if (neighbour->is_free) {
        free_index_remove(&pool->index, neighbour);
    } else if (!neighbour->is_mapped) {
        pool_unmapped_remove(pool, neighbour);
    }
    block_slab_release(&alloc->slab, neighbour);
    if (block->is_mapped) {
        EMIT(alloc, (struct emission){.kind = VARVE_KIND_MERGE,
                                      .cause = is_previous ? VARVE_CAUSE_PREVIOUS : VARVE_CAUSE_NEXT,
                                      .bins = block->bins,
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
HOT void count_inactive(struct varve_alloc *alloc, const struct block *block, uint64_t before, uint64_t after)
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

/* `slot` is the block's in the map. */
HOT void complete(struct varve_alloc *alloc, struct block *block, struct block_map_slot *slot)
{
    uint64_t before = 0, after = 0;
    bool is_small = block_pool(block)->is_small;
    bool has_next;

    assert(!block->is_allocated && block->event_count == 0 && block->uses == NULL);
    emit_completed(alloc, block);
    block_map_clear(&alloc->map, slot);
    block->id = 0;
    has_next = may_absorb(alloc, block, block->next);
    block->freed_at = block_pool(block)->search_count;
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
    stat_complete(&alloc->stats, is_small, block->requested);
}

void block_free(struct varve_alloc *alloc, struct block *block)
{
    complete(alloc, block, block_map_find_slot(&alloc->map, block->addr));
}

static __attribute__((noinline)) int refuse(uint64_t addr, bool was_freed, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                             was_freed ? "address %#" PRIx64 " was freed already"
                                       : "address %#" PRIx64 " is not allocated by this allocator",
                             addr);
}

static __attribute__((noinline)) int wait_for_streams(struct varve_alloc *alloc, struct block *block,
                                                      struct varve_message *message)
{
    int error = stream_use_wait(alloc, block);

    return error == VARVE_OK ? error
                             : device_message(alloc, error, message,
                                              "freed, but the device failed to order it behind its streams' "
                                              "work, which is tried again");
}

int block_delete(struct varve_alloc *alloc, uint64_t addr, struct varve_message *message)
{
    struct block_map_slot *slot = block_map_find_slot(&alloc->map, addr);
    struct block *block;
    bool is_small;

    if (UNLIKELY(slot == NULL || !slot->block->is_allocated)) {
        return refuse(addr, slot != NULL, message);
    }
    block = slot->block;
    is_small = block_pool(block)->is_small;
    block->is_allocated = false;
    stat_free(&alloc->stats, is_small, block->size);
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_FREE_REQUESTED,
                                  .bins = block->bins,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
    if (block->size >= alloc->config.max_split_size) {
        stat_decrease(&alloc->stats.oversize_allocations, 1);
    }
    if (UNLIKELY(block->uses != NULL || block->stream_ordered)) {
        return wait_for_streams(alloc, block, message);
    }
    complete(alloc, block, slot);
    return VARVE_OK;
}
