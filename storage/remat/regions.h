/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicted neighbourhoods, exactly. A resident storage has two regions: the evicted storages that are made from it, and those that it
 * is made from, as far as the way leads through evicted ones only (interior); and the resident storages where the ways end (frontier).
 *
 * An eviction adds the region of the evicted storage to those that end at it. After a run the regions of what it made, and those
 * that end there, are found anew. Costs of the interior are those of the moment at which it was found, as in simrd.
 *
 * Source: simrd's Region; the sets are bits by storage here, edges are walked by operator, and regions of storages that have
 * the same operators around them are found once.
 */
#ifndef VARVE_STORAGE_REMAT_REGIONS_H
#define VARVE_STORAGE_REMAT_REGIONS_H

#include "storage/remat/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

enum region_direction { REGION_DOWN, REGION_UP, REGION_DIRECTIONS }; /* towards what is made from it; what it is made from */

/* Bits of storages, of those in the words from begin to end. */
struct region_set {
    uint64_t *words;
    uint32_t begin, end, capacity;
};

struct region {
    struct region_set interior, frontier;
    int64_t cost; /* of the interior */
};

struct remat_regions {
    struct region (*of)[REGION_DIRECTIONS]; /* by storage */
    uint32_t capacity;                      /* storages */
    struct region_set interior, frontier;   /* of the walk under way: all words, zero in between */
    struct region_set ends[REGION_DIRECTIONS];
    uint32_t *stack;
    uint32_t stack_capacity;
    uint64_t *op_stamps;
    uint32_t op_capacity;
    uint64_t stamp;
    uint64_t accesses;
    uint64_t bytes; /* of all sets */
};

void regions_free(struct remat_regions *regions);
/// Room for all storages and operators of the graph.
bool regions_reserve(struct remat_regions *regions, const struct remat_graph *graph);
/// The storage was evicted. False: no memory; the regions are wrong then.
bool regions_evict(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage);
/// These storages have become resident.
bool regions_made(struct remat_regions *regions, const struct remat_graph *graph, const uint32_t *storages,
                  uint32_t count);
/// A storage that nobody needs is about to go.
void regions_forget(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage);
static inline int64_t regions_cost(const struct remat_regions *regions, uint32_t storage,
                                   enum region_direction direction)
{
    return regions->of[storage][direction].cost;
}
/// What the storages in both regions cost, each counted once, found anew; and the latest access to any of them, if it is later than
/// `last_access_out` is.
bool regions_union_cost(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage,
                        int64_t *cost_out, int64_t *last_access_out);
/// Every region of a resident storage is what a walk finds; between operations. VARVE_ERROR_CORRUPT.
int regions_check(struct remat_regions *regions, const struct remat_graph *graph,
                  struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
