/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicted neighbourhoods, exactly. A resident storage has two regions: the evicted storages that are made from it, and
 * those that it is made from, as far as the way leads through evicted ones only (interior); and the resident storages
 * where the ways end (frontier).
 *
 * An eviction adds the region of the evicted storage to those that end at it. After a run the regions of what it made,
 * and those that end there, are found anew; what was made for the first time is only one end more to the latter. Costs
 * of the interior are those of the moment at which it was found, as in simrd.
 *
 * Source: simrd's Region.
 */
#ifndef VARVE_STORAGE_REMAT_REMAT_REGIONS_H
#define VARVE_STORAGE_REMAT_REMAT_REGIONS_H

#include "storage/remat/remat_reach.h"

struct region {
    struct reach_set interior, frontier;
    int64_t cost; /* of the interior */
};

struct remat_regions {
    struct region (*of)[REACH_DIRECTIONS]; /* by storage */
    uint32_t capacity;                     /* storages */
    struct reach reach;
    struct reach_set
        ends[REACH_DIRECTIONS]; /* where regions of what was made, evicted, … last end: theirs have changed */
    struct region spare[REACH_DIRECTIONS]; /* found for nobody in particular */
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
/// Operators that made the storage, which is resident, have gone.
bool regions_unlinked(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage);
/// A storage that nobody needs is about to go.
bool regions_forget(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage);
static inline int64_t regions_cost(const struct remat_regions *regions, uint32_t storage,
                                   enum reach_direction direction)
{
    return regions->of[storage][direction].cost;
}
/// For heuristics that find neighbourhoods anew, and keep none: where ways end.
void regions_set_resident(struct remat_regions *regions, uint32_t storage, bool is_resident);
/// What the evicted neighbours of a resident storage cost, each counted once, found anew; and the latest access to any
/// of them, if it is later than `last_access_out` is.
bool regions_union_cost(struct remat_regions *regions, const struct remat_graph *graph, uint32_t storage,
                        int64_t *cost_out, int64_t *last_access_out);
/// Every region of a resident storage is what a walk finds; between operations. VARVE_ERROR_CORRUPT.
int regions_check(struct remat_regions *regions, const struct remat_graph *graph, struct varve_message *message);

#endif
