/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicted storages in classes that are connected by edges, each with the sum of its members' costs: what h_DTR^eq
 * approximates evicted neighbourhoods by. A union-find forest with path compression; the newest member of a class is
 * its root. Classes are never split: a storage that is recomputed takes its cost out of the sum, and
 * stays a connection.
 *
 * Source: Kirisame et al. (ICLR 2021), section 4.1; order and counts as in simrd.
 */
#ifndef VARVE_STORAGE_REMAT_NEIGHBOUR_CLASSES_H
#define VARVE_STORAGE_REMAT_NEIGHBOUR_CLASSES_H

#include "storage/remat/remat_graph.h"

struct class_node {
    int64_t cost;    /* of a root: of its class; may be negative, as storages' costs change while they are evicted */
    uint64_t stamp;  /* of a root: looked at already */
    uint32_t parent; /* itself: a root; of an unused node the next unused one */
    uint32_t uses;   /* children, and its storage */
};

struct remat_classes {
    struct class_node *nodes;
    uint32_t count, capacity, unused; /* unused: VARVE_REMAT_NONE or the first unused node */
    uint64_t accesses;                /* nodes looked at */
    uint64_t stamp;
};

void classes_free(struct remat_classes *classes);
/// A node of its own for the storage, with that cost. False: no memory, and it has none.
bool classes_add(struct remat_classes *classes, struct remat_storage *storage, int64_t cost);
/// The storage was evicted: its class is joined with those of its evicted neighbours.
bool classes_evict(struct remat_classes *classes, struct remat_graph *graph, uint32_t storage);
/// The storage is resident again, or goes: its cost leaves the class.
void classes_leave(struct remat_classes *classes, struct remat_storage *storage);
/// The cost of the storage has become another one by that much.
void classes_change(struct remat_classes *classes, const struct remat_storage *storage, int64_t by);
/// Costs of the distinct classes that the storage touches.
int64_t classes_cost(struct remat_classes *classes, const struct remat_graph *graph,
                     const struct remat_storage *storage);
/// `has_costs`: each class's cost is the sum of its storages', as in live planners. Errors:
/// VARVE_ERROR_CORRUPT, NO_MEMORY.
int classes_check(const struct remat_classes *classes, const struct remat_graph *graph, bool has_costs,
                  struct varve_message *message);

#endif
