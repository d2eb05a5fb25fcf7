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

#include "storage/remat/remat_graph.h"

/*
 * Which evicted storages are reached from resident ones through evicted ones only, and which resident ones the ways end
 * at. Up to 64 beginnings at a time, a bit of a word for each, so that what they have in common is walked once.
 */

#define REACH_LANES 64

enum reach_direction { REACH_DOWN, REACH_UP, REACH_DIRECTIONS }; /* to what is made from it; to what it is made from */

/* Bits of storages, of those in the words from begin to end. */
struct reach_set {
    uint64_t *words;
    uint32_t begin, end, capacity;
};

/* Words of all storages, and between which of them any are not zero. */
struct reach_marks {
    uint64_t *lanes; /* by storage */
    uint64_t *any;   /* bits of storages whose lanes are not zero */
    uint32_t begin, end, capacity, any_capacity;
};

/* Storages of one word that the same lanes have reached. */
struct reach_group {
    uint64_t lanes, bits;
    int64_t cost;    /* together */
    uint64_t visits; /* likewise */
    uint32_t word;
};

struct reach {
    struct reach_marks inside, ends; /* of the walk under way; zero in between */
    uint64_t *pending;               /* bits of storages to go on from */
    uint64_t *resident;              /* bits of storages where ways end */
    uint64_t *op_lanes;
    struct number_list ops;     /* whose op_lanes are not zero */
    struct reach_group *groups; /* what was found, as it becomes sets */
    uint32_t group_count, group_capacity;
    uint32_t pending_capacity, resident_capacity, op_capacity, pending_count;
};

void reach_free(struct reach *reach);
/// Room for all storages and operators of the graph.
bool reach_reserve(struct reach *reach, const struct remat_graph *graph);
void reach_set_resident(struct reach *reach, uint32_t storage, bool is_resident);

/* What was reached from one beginning. */
struct reach_found {
    struct reach_set *interior, *frontier; /* replaced; the frontier is without the beginning */
    int64_t cost;                          /* of the interior */
};

/// Walk from `count` (1 to REACH_LANES) beginnings; `bytes` counts what sets take, `visits` what the published
/// simulator visits in as many walks. False: no memory.
bool reach_walk(struct reach *reach, const struct remat_graph *graph, const uint32_t *bases, unsigned count,
                enum reach_direction direction, struct reach_found *found, uint64_t *bytes, uint64_t *visits);

/* sets */

static inline bool reach_set_has(const struct reach_set *set, uint32_t number)
{
    return number / 64 >= set->begin && number / 64 < set->end &&
           (set->words[number / 64 - set->begin] >> number % 64 & 1) != 0;
}

static inline void reach_set_remove(struct reach_set *set, uint32_t number)
{
    if (reach_set_has(set, number)) {
        set->words[number / 64 - set->begin] &= ~(UINT64_C(1) << number % 64);
    }
}

/// Words from begin to end have a place in the set; new ones are zero. False: no memory.
bool reach_set_cover(struct reach_set *set, uint32_t begin, uint32_t end, uint64_t *bytes);
bool reach_set_add(struct reach_set *to, const struct reach_set *from, uint64_t *bytes);

/* For each storage of a set, as `number`. */
#define REACH_FOR_EACH(number, set)                                              \
    for (uint32_t word_ = (set)->begin, number = 0; word_ < (set)->end; word_++) \
        for (uint64_t bits_ = (set)->words[word_ - (set)->begin];                \
             bits_ != 0 && (number = word_ * 64 + (unsigned)__builtin_ctzll(bits_), true); bits_ &= bits_ - 1)

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

/*
 * Evicted storages in classes that are connected by edges, each with the sum of its members' costs: what h_DTR^eq
 * approximates evicted neighbourhoods by. A union-find forest with path compression; the newest member of a class is
 * its root. Classes are never split: a storage that is recomputed takes its cost out of the sum, and
 * stays a connection.
 *
 * Source: Kirisame et al. (ICLR 2021), section 4.1; order and counts as in simrd.
 */

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
