/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of what blocks.h has inline, for whatever is rare.
 */
#include "alloc/core/state/blocks.h"

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
    return block_may_absorb(alloc, block, neighbour)
               ? block_absorb(alloc, block_pool(block), block, neighbour, false)
               : 0;
}

void block_free(struct varve_alloc *alloc, struct block *block)
{
    block_complete(alloc, block_pool(block), block, block_map_find_slot(&alloc->map, block->addr));
}
