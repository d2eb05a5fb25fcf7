/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/planner.h"

#include <stdlib.h>

#define GAPS_LEAST 64 /* fewer are not worth moving the others */

void pool_free(struct remat_pool *pool)
{
    free(pool->slots);
}

void pool_compact(struct remat_pool *pool, struct remat_graph *graph)
{
    uint32_t to = 0;
    for (uint32_t i = 0; i < pool->used; i++) {
        if (pool->slots[i] != VARVE_REMAT_NONE) {
            graph->storages[pool->slots[i]].pool_slot = to;
            pool->slots[to++] = pool->slots[i];
        }
    }
    pool->used = to;
}

bool pool_append(struct remat_pool *pool, struct remat_graph *graph, uint32_t storage)
{
    if (graph->storages[storage].pool_slot != VARVE_REMAT_NONE) {
        return true;
    }
    if (pool->used == pool->capacity && pool->used - pool->count > pool->count) {
        pool_compact(pool, graph);
    }
    if (!growth_reserve(&pool->slots, &pool->capacity, (uint64_t)pool->used + 1, sizeof(*pool->slots))) {
        return false;
    }
    graph->storages[storage].pool_slot = pool->used;
    pool->slots[pool->used++] = storage;
    pool->count++;
    pool->bytes += graph->storages[storage].size;
    return true;
}

void pool_remove(struct remat_pool *pool, struct remat_graph *graph, uint32_t storage)
{
    uint32_t slot = graph->storages[storage].pool_slot;
    if (slot == VARVE_REMAT_NONE) {
        return;
    }
    graph->storages[storage].pool_slot = VARVE_REMAT_NONE;
    pool->slots[slot] = VARVE_REMAT_NONE;
    pool->count--;
    pool->bytes -= graph->storages[storage].size;
    if (pool->used - pool->count > pool->count + GAPS_LEAST) {
        pool_compact(pool, graph);
    }
}
