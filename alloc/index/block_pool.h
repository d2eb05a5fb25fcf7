/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of one kind (small or large) of the default pool or of a private one: the free ones, and the address
 * space of expandable segments that has no memory.
 */
#ifndef VARVE_ALLOC_INDEX_BLOCK_POOL_H
#define VARVE_ALLOC_INDEX_BLOCK_POOL_H

#include "alloc/index/free_index.h"

struct private_pool;

struct pool {
    struct free_index index;
    struct block *unmapped;     /* by (stream, address), linked by left and right */
    uint64_t search_count;      /* of searches while garbage collection is on: the clock of ages */
    struct private_pool *owner; /* NULL: the default pool */
    uint16_t number;            /* as records carry it: 2 × pool + (1 if small) */
    bool is_small;
    bool no_split; /* blocks are given out whole */
};

HOT struct pool *block_pool(const struct block *block)
{
    return block->bins->pool;
}

void pool_unmapped_insert(struct pool *pool, struct block *block);
void pool_unmapped_remove(struct pool *pool, struct block *block);

#endif
