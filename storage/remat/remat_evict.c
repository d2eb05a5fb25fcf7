/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages leave: what an eviction changes in every structure, and room for a request by as many of them as it takes.
 */
#include "storage/remat/planner.h"
#include "trace/emit.h"

#include <math.h>

#define SMALL_SHARE 100 /* of the mean size: below, with the rule on small storages, none is evicted */

static bool remat_evict_is_small(const struct varve_remat *remat, uint64_t size)
{
    return remat->options.ignores_small && remat->size_count > 0 &&
           size < remat->size_sum / remat->size_count / SMALL_SHARE;
}

void evict_allow(struct varve_remat *remat, uint32_t number)
{
    struct remat_storage *storage = &remat->graph.storages[number];
    if (storage->locks > 0 || remat_evict_is_small(remat, storage->size)) {
        return;
    }
    remat->is_broken |= !pool_append(&remat->pool, &remat->graph, number);
    search_changed(remat, number);
}

void evict_forbid(struct varve_remat *remat, uint32_t number)
{
    pool_remove(&remat->pool, &remat->graph, number);
    if (remat->has_tournament) {
        tournament_remove(&remat->tournament, number);
    }
}

void lock_storage(struct varve_remat *remat, uint32_t number)
{
    struct remat_storage *storage = &remat->graph.storages[number];
    if (storage->locks++ == 0) {
        evict_forbid(remat, number);
        remat->locked_bytes += storage->size;
        if (remat->locked_bytes > remat->counters.locked_bytes_max) {
            remat->counters.locked_bytes_max = remat->locked_bytes;
        }
    }
}

void unlock_storage(struct varve_remat *remat, uint32_t number)
{
    struct remat_storage *storage = &remat->graph.storages[number];
    if (--storage->locks == 0) {
        remat->locked_bytes -= storage->size;
        evict_allow(remat, number);
    }
}

static void remat_evict_count(struct varve_remat_counters *counters, const struct remat_storage *storage,
                              enum varve_remat_cause cause)
{
    counters->evictions++;
    counters->evicted_bytes += storage->size;
    counters->evictions_released += cause == VARVE_REMAT_CAUSE_RELEASED;
    counters->evictions_budget += cause == VARVE_REMAT_CAUSE_BUDGET;
    counters->evictions_allocator += cause == VARVE_REMAT_CAUSE_ALLOCATOR;
    counters->evictions_requested += cause == VARVE_REMAT_CAUSE_REQUESTED;
    counters->evictions_banished += cause == VARVE_REMAT_CAUSE_BANISHED;
}

/* What evicted neighbours cost is another figure for those beside the storage now. */
static void update_neighbourhood(struct varve_remat *remat, uint32_t number)
{
    if (remat->has_regions) {
        remat->is_broken |= !regions_evict(&remat->regions, &remat->graph, number);
        search_regions_changed(remat);
    } else if (remat->walks_regions) {
        regions_set_resident(&remat->regions, number, false);
    }
    if (remat->has_classes) {
        remat->is_broken |= !classes_evict(&remat->classes, &remat->graph, number);
        search_neighbours_changed(remat, number);
    }
}

void evict_storage(struct varve_remat *remat, uint32_t number, enum varve_remat_cause cause, double score)
{
    struct remat_graph *graph = &remat->graph;
    struct remat_storage *storage = &graph->storages[number];
    const struct varve_remat_event event = {.kind = VARVE_REMAT_EVENT_EVICT,
                                            .cause = cause,
                                            .op = graph->tensors[storage->tensor_first].op,
                                            .storage = number,
                                            .bytes = storage->size,
                                            .score = score,
                                            .time = remat->clock};
    storage->is_resident = false;
    storage->was_evicted = true;
    storage->was_released = cause == VARVE_REMAT_CAUSE_RELEASED;
    storage->evicted_at = remat->counters.executions;
    remat->used -= storage->size;
    evict_forbid(remat, number);
    for (uint32_t t = storage->tensor_first; t != VARVE_REMAT_NONE; t = graph->tensors[t].next) {
        graph->tensors[t].is_defined = false;
    }
    remat_evict_count(&remat->counters, storage, cause);
    planner_event(remat, &event);
    if (remat->options.driver.evict != NULL) {
        remat->options.driver.evict(remat->options.driver.context, number);
    }
    if (remat->options.dealloc == VARVE_REMAT_DEALLOC_BANISH) {
        remat->is_broken |= !banish_evicted(remat, number);
    }
    update_neighbourhood(remat, number);
}

/* The run of pieces that search_window found. */
static uint64_t evict_window(struct varve_remat *remat, uint64_t bytes, enum varve_remat_cause cause)
{
    const struct varve_remat_piece *pieces;
    size_t first, end;
    if (!search_window(remat, bytes, &pieces, &first, &end)) {
        return 0;
    }
    uint64_t freed = 0;
    /* Evictions ask the driver for nothing of the layout, so the array stays. */
    for (size_t i = first; i < end; i++) {
        if (pieces[i].storage != VARVE_REMAT_NONE) {
            freed += remat->graph.storages[pieces[i].storage].size;
            evict_storage(remat, pieces[i].storage, cause, NAN);
        }
    }
    return freed;
}

static uint64_t remat_evict_now_ns(const struct varve_remat *remat)
{
    return remat->options.is_live ? varve_clock_monotonic_ns() : 0;
}

/* One victim. One without bytes counts as a byte: there is something to go on with. */
static uint64_t evict_one(struct varve_remat *remat, enum varve_remat_cause cause, uint64_t begin_ns)
{
    double score;
    uint32_t victim = search_victim(remat, &score);
    uint64_t size = remat->graph.storages[victim].size;
    remat->counters.score_ns += remat_evict_now_ns(remat) - begin_ns;
    evict_storage(remat, victim, cause, score);
    return size > 0 ? size : 1;
}

uint64_t evict_for(struct varve_remat *remat, uint64_t bytes, enum varve_remat_cause cause)
{
    uint64_t begin_ns = remat_evict_now_ns(remat);
    if (remat->pool.count == 0 || remat->is_broken) {
        return 0;
    }
    remat->counters.searches++;
    uint64_t freed = 0;
    if (remat->heuristic->is_window) {
        freed = evict_window(remat, bytes, cause);
    }
    if (freed == 0 && remat->pool.count > 0) { /* a window of storages without bytes may have been all */
        freed = evict_one(remat, cause, begin_ns);
    }
    remat->counters.search_ns += remat_evict_now_ns(remat) - begin_ns;
    return freed;
}
