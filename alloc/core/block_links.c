/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of what block_links.h has inline, for whatever is rare. */
#include "alloc/core/block_links.h"

void block_shrink_free(struct block *block, uint64_t bytes)
{
    struct pool *pool = block_pool(block);
    if (block->is_free) {
        block_begin_age(block, pool);
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
    block_begin_age(block, pool);
    free_index_insert(&pool->index, block);
}

uint64_t block_merge(struct varve_alloc *alloc, struct block *block, struct block *neighbour)
{
    if (!block_may_absorb(alloc, block, neighbour)) {
        return 0;
    }
    bool is_previous = block->prev == neighbour;
    uint64_t absorbed_addr = neighbour->addr;
    uint64_t absorbed = block_absorb(alloc, block_pool(block), block, neighbour, false);
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

/* The merges follow as records of their own. */
void block_complete_backed(struct varve_alloc *alloc, struct block *block, struct block_map_slot *slot,
                           enum varve_kind kind)
{
    struct pool *pool = block_pool(block);
    uint64_t id = block->id;
    block_map_clear(&alloc->map, slot);
    block->id = 0;
    stat_complete(&alloc->counters, pool->is_small, block->requested);
    if (alloc->recorder != NULL) {
        emit_freed(alloc, kind, block, id, 0, 0);
    }
    backend_of_pool(alloc, pool)->free(alloc, block);
}

void block_free(struct varve_alloc *alloc, struct block *block)
{
    block_complete(alloc, block_pool(block), block, block_map_find_slot(&alloc->map, block->addr),
                   VARVE_KIND_FREE_COMPLETED);
}
