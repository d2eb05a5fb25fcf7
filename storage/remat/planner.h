/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner's structure, and what its parts do for each other: graph and pool hold the state, remat_evict.c and
 * remat_materialize.c change it, remat_search.c chooses.
 */
#ifndef VARVE_STORAGE_REMAT_PLANNER_H
#define VARVE_STORAGE_REMAT_PLANNER_H

#include "storage/remat.h"
#include "storage/remat/remat_graph.h"
#include "storage/remat/remat_regions.h"
#include "storage/remat/tournament.h"
#include "storage/remat/twister.h"

/*
 * Heuristics as data, and scores as numbers: correctly rounded quotients of integers, as Python's int / int is, so that
 * decisions are those of the published simulator.
 */

__extension__ typedef unsigned __int128 score_wide;

/* num / den; den 0: infinite. */
struct score {
    int64_t num;
    score_wide den;
};

/// The nearest double to num / den, ties to even; infinite for den 0.
double score_round(struct score score);
/// Within 2^-50 of its size.
static inline double score_estimate(struct score score)
{
    return (double)score.num / (double)score.den;
}

/*
 * The storages that may be evicted, in the order in which they became so. An entry that leaves is a gap, which goes
 * when there are more gaps than entries.
 */

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

#define REMAT_SUM_LIMIT (UINT64_C(1) << 62) /* of sizes, and of the clock */

/* An operator whose inputs are being made resident. */
struct remat_frame {
    uint32_t tensor; /* that is needed */
    bool is_remat;
    bool is_unlocked; /* its inputs are: they are looked for, and locked, again once it is on top */
    uint32_t missing_first, missing_next, missing_end; /* inputs that were not defined, in planner.missing */
    uint32_t locked_first;                             /* storages that it has locked, in planner.locked */
};

struct varve_remat {
    struct varve_remat_options options;
    const struct varve_remat_heuristic *heuristic;
    struct remat_graph graph;
    struct remat_pool pool;
    struct remat_classes classes;
    struct remat_regions regions;
    struct remat_tournament tournament;
    struct twister random;
    bool has_classes, has_regions, walks_regions, has_tournament; /* what the heuristic and the search need */
    bool is_broken; /* memory for the planner's own tables was missing: nothing works any more */

    struct remat_frame *frames;
    uint32_t frame_count, frame_capacity;
    struct number_list missing, locked; /* of all frames; locked: VARVE_REMAT_NONE once unlocked */
    uint32_t unlock_count;              /* times that waiting operators were unlocked in this operation */
    struct number_list fresh,
        defined;  /* storages that the last run made resident; banishing: tensors that it made defined */
    double *sums; /* of remat_window.c */
    uint32_t sum_capacity;
    struct number_list collect; /* tensors to look at, whether anybody needs them still */

    uint64_t used;         /* sizes of resident storages */
    uint64_t locked_bytes; /* of storages with a lock */
    uint64_t pinned_bytes;
    uint64_t clock;
    uint64_t cost_sum;             /* of operators so far, each as often as it has outputs: below 2^61 */
    uint64_t size_sum, size_count; /* of storages so far, for the rule on small ones */
    struct varve_remat_counters counters;
};

/// VARVE_ERROR_NO_MEMORY, said of the planner's own tables.
int planner_no_memory(struct varve_message *message);
void planner_event(struct varve_remat *remat, const struct varve_remat_event *event);
/// Bytes that count against the budget, and that an operator's outputs will take.
uint64_t planner_used(const struct varve_remat *remat);
/// Of the bytes used those that no eviction can free now: storages with locks, small ones under the rule on these,
/// and others' memory.
uint64_t planner_kept(const struct varve_remat *remat);
uint64_t planner_needed(const struct varve_remat *remat, uint32_t op);
/// What the operator's first run has cost.
void planner_set_cost(struct varve_remat *remat, uint32_t op, uint64_t cost_ns);

/* remat_search.c */

/// The storage to evict, and its score (NaN: none); VARVE_REMAT_NONE: the pool is empty.
uint32_t search_victim(struct varve_remat *remat, double *score_out);
/// A storage's score now, as the heuristic has it.
double search_score(struct varve_remat *remat, uint32_t storage);
/// The cheapest run of pieces that serves `bytes`: from first to end - 1. False: there is none.
bool search_window(struct varve_remat *remat, uint64_t bytes, const struct varve_remat_piece **pieces_out,
                   size_t *first_out, size_t *end_out);
/// The score's cost of a storage is, or may be, another one: for the tournament.
void search_changed(struct varve_remat *remat, uint32_t storage);
/// The same, of all those beside it.
void search_neighbours_changed(struct varve_remat *remat, uint32_t storage);
/// The last call of regions_… has changed regions.
void search_regions_changed(struct varve_remat *remat);

/* remat_evict.c */

/// The storage may be evicted from now on, or no more.
void evict_allow(struct varve_remat *remat, uint32_t storage);
void evict_forbid(struct varve_remat *remat, uint32_t storage);
void evict_storage(struct varve_remat *remat, uint32_t storage, enum varve_remat_cause cause, double score);
/// Evict what the heuristic says for a request of `bytes`; returns the bytes that went.
uint64_t evict_for(struct varve_remat *remat, uint64_t bytes, enum varve_remat_cause cause);
void lock_storage(struct varve_remat *remat, uint32_t storage);
void unlock_storage(struct varve_remat *remat, uint32_t storage);

/* remat_materialize.c */

/// The tensor, which is not defined, becomes so.
int materialize(struct varve_remat *remat, uint32_t tensor, bool is_remat, struct varve_message *message);

/// Live: the inputs of operators that wait for others are unlocked, so they may be evicted, and are made defined and
/// locked again before these run. False: none became evictable, or it has been done too often for this operation.
bool materialize_unlock_waiting(struct varve_remat *remat);

/* remat_banish.c */

/// For each new tensor of an operator, before its run.
bool banish_add_dependents(struct varve_remat *remat, uint32_t op);
/// The storage was evicted: those that its tensors are made of are needed.
bool banish_evicted(struct varve_remat *remat, uint32_t storage);
/// The operator has run: its inputs are unlocked, and go if nobody needs them.
void banish_unlock_inputs(struct varve_remat *remat, uint32_t op);
/// Let the storage go for good if nobody needs it.
void banish_try(struct varve_remat *remat, uint32_t storage);

/* remat_collect.c */

/// Forget the tensor, its storage, and what was kept for their sake, as far as nobody can need them.
void collect_from(struct varve_remat *remat, uint32_t tensor);
void collect_drop_recipe(struct varve_remat *remat, uint32_t tensor);
/// An output of an operator that did not run, with its one reference: nothing is left of it, whatever is locked.
void collect_output(struct varve_remat *remat, uint32_t tensor);

#endif
