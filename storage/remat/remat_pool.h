/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storages that may be evicted, in the order in which they became so. An entry that leaves is a gap, which goes
 * when there are more gaps than entries.
 */
#ifndef VARVE_STORAGE_REMAT_REMAT_POOL_H
#define VARVE_STORAGE_REMAT_REMAT_POOL_H

#include "storage/remat/remat_graph.h"

struct remat_pool {
    uint32_t *slots;                /* storages; VARVE_REMAT_NONE: a gap */
    uint32_t used, capacity, count; /* count: without gaps */
    uint64_t bytes;                 /* sizes of these */
};

void pool_free(struct remat_pool *pool);
/// At the end; without effect if it is in the pool. False: no memory, and it is not.
bool pool_append(struct remat_pool *pool, struct remat_graph *graph, uint32_t storage);
/// Without effect if it is not in the pool.
void pool_remove(struct remat_pool *pool, struct remat_graph *graph, uint32_t storage);
/// Without gaps: entry i is the i-th.
void pool_compact(struct remat_pool *pool, struct remat_graph *graph);

#endif
