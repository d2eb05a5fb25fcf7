/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys are in PyTorch's order: it sorts by key, so "active.all" comes before "active_bytes.all" ('.' < '_') and
 * single figures stand among the arrays. The table is written in that order and its length is checked; the
 * keys are literals, so a caller may keep them.
 */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"

#include <stddef.h>

/* Figures of PyTorch 2.11: 9 arrays of 3 pools with 4 each, 2 single statistics with 4, and 6 counters. */
#define FIGURES (9 * 3 * 4 + 2 * 4 + 6)

/* X for each member of a statistic, in the order of their keys. */
#define STAT_MEMBERS(X, key, stat) X(key, stat, allocated) X(key, stat, current) X(key, stat, freed) X(key, stat, peak)

#define FIGURE_OF_STAT(key, stat, member) \
    {key "." #member, offsetof(struct varve_alloc_stats, stat) + offsetof(struct varve_alloc_stat, member)},
#define STAT(name) STAT_MEMBERS(FIGURE_OF_STAT, #name, name)
#define ARRAY(name)                                                                      \
    STAT_MEMBERS(FIGURE_OF_STAT, #name ".all", name[VARVE_ALLOC_STAT_ALL])               \
    STAT_MEMBERS(FIGURE_OF_STAT, #name ".large_pool", name[VARVE_ALLOC_STAT_LARGE_POOL]) \
    STAT_MEMBERS(FIGURE_OF_STAT, #name ".small_pool", name[VARVE_ALLOC_STAT_SMALL_POOL])
#define COUNT(name) {#name, offsetof(struct varve_alloc_stats, name)},

struct figure {
    const char *key;
    size_t offset; /* in struct varve_alloc_stats, of an int64_t */
};

/* clang-format off */
static const struct figure figures[] = {
    ARRAY(active)
    ARRAY(active_bytes)
    ARRAY(allocated_bytes)
    ARRAY(allocation)
    ARRAY(inactive_split)
    ARRAY(inactive_split_bytes)
    COUNT(max_split_size)
    COUNT(num_alloc_retries)
    COUNT(num_device_alloc)
    COUNT(num_device_free)
    COUNT(num_ooms)
    COUNT(num_sync_all_streams)
    STAT(oversize_allocations)
    STAT(oversize_segments)
    ARRAY(requested_bytes)
    ARRAY(reserved_bytes)
    ARRAY(segment)
};
/* clang-format on */

/* Every member of the structure is an int64_t and has a key. */
_Static_assert(sizeof(figures) / sizeof(figures[0]) == FIGURES, "a key is missing");
_Static_assert(sizeof(struct varve_alloc_stats) == FIGURES * sizeof(int64_t), "a figure has no key");

static void reset_accumulated(struct varve_alloc_stat *stat)
{
    stat->allocated = 0;
    stat->freed = stat->current; /* see allocator_counters.h */
}

static void reset_peak(struct varve_alloc_stat *stat)
{
    stat->peak = stat->current;
}

static void each_stat(struct varve_alloc_stats *stats, void (*act)(struct varve_alloc_stat *stat))
{
#define ACT_ON_ARRAY(name)                                    \
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) \
        act(&stats->name[pool]);
    VARVE_ALLOC_STAT_LIST(ACT_ON_ARRAY)
#undef ACT_ON_ARRAY
    act(&stats->oversize_allocations);
    act(&stats->oversize_segments);
}

void varve_alloc_stats_each(const struct varve_alloc_stats *stats,
                            void (*take)(void *context, const char *key, int64_t value), void *context)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const int64_t *value = (const int64_t *)((const char *)stats + figures[i].offset);
        take(context, figures[i].key, *value);
    }
}

static void allocator_stats_complete(struct varve_alloc_stat *stat)
{
    stat->freed = stat->freed + stat->allocated - stat->current;
}

static void complete_all(struct varve_alloc_stat stats[VARVE_ALLOC_STAT_POOLS])
{
    struct varve_alloc_stat *all = &stats[VARVE_ALLOC_STAT_ALL];
    all->allocated = stats[VARVE_ALLOC_STAT_SMALL_POOL].allocated + stats[VARVE_ALLOC_STAT_LARGE_POOL].allocated;
    all->freed = stats[VARVE_ALLOC_STAT_SMALL_POOL].freed + stats[VARVE_ALLOC_STAT_LARGE_POOL].freed;
}

/* What is allocated and what waits make what is active. While nothing waits both have the same peak, and the
 * former is never above the latter. */
static void allocator_stats_unite(struct varve_alloc_stat active[VARVE_ALLOC_STAT_POOLS],
                                  const struct varve_alloc_stat allocated[VARVE_ALLOC_STAT_POOLS])
{
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        active[pool].current += allocated[pool].current;
        active[pool].allocated = allocated[pool].allocated;
        if (active[pool].peak < allocated[pool].peak) {
            active[pool].peak = allocated[pool].peak;
        }
    }
}

void stats_read(const struct alloc_counters *counters, struct varve_alloc_stats *stats_out)
{
    counters_read(counters, stats_out);
    allocator_stats_unite(stats_out->active, stats_out->allocation);
    allocator_stats_unite(stats_out->active_bytes, stats_out->allocated_bytes);
    each_stat(stats_out, allocator_stats_complete);
#define COMPLETE_ALL(name) complete_all(stats_out->name);
    VARVE_ALLOC_STAT_LIST(COMPLETE_ALL)
#undef COMPLETE_ALL
}

void stats_reset_accumulated(struct alloc_counters *counters)
{
    struct varve_alloc_stats stats;
    counters_read(counters, &stats);
    each_stat(&stats, reset_accumulated);
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        stats.active[pool].freed += stats.allocation[pool].current;
        stats.active_bytes[pool].freed += stats.allocated_bytes[pool].current;
    }
    stats.num_alloc_retries = 0;
    stats.num_ooms = 0;
    stats.num_sync_all_streams = 0;
    stats.num_device_alloc = 0;
    stats.num_device_free = 0;
    counters_write(counters, &stats);
}

void stats_reset_peak(struct alloc_counters *counters)
{
    struct varve_alloc_stats stats;
    counters_read(counters, &stats);
    each_stat(&stats, reset_peak);
    for (int pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        stats.active[pool].peak += stats.allocation[pool].current;
        stats.active_bytes[pool].peak += stats.allocated_bytes[pool].current;
    }
    counters_write(counters, &stats);
}

/* ---- entry points: copies under the lock ---- */

int varve_alloc_get_device_stats(struct varve_alloc *alloc, struct varve_alloc_stats *stats_out)
{
    alloc_lock(alloc);
    stats_read(&alloc->counters, stats_out);
    alloc_unlock(alloc);
    return VARVE_OK;
}

void varve_alloc_reset_accumulated_stats(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    stats_reset_accumulated(&alloc->counters);
    alloc_unlock(alloc);
}

void varve_alloc_reset_peak_stats(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    stats_reset_peak(&alloc->counters);
    alloc_unlock(alloc);
}

/* A figure of all pools together. */
static int64_t allocator_stats_figure(struct varve_alloc *alloc, const int64_t *value_of)
{
    alloc_lock(alloc);
    int64_t value = *value_of;
    alloc_unlock(alloc);
    return value;
}

int64_t varve_alloc_memory_allocated(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    int64_t value = hot_current(&alloc->counters, HOT_ALLOCATED_BYTES);
    alloc_unlock(alloc);
    return value;
}

int64_t varve_alloc_memory_reserved(struct varve_alloc *alloc)
{
    return allocator_stats_figure(alloc, &alloc->counters.others.reserved_bytes[VARVE_ALLOC_STAT_ALL].current);
}

int64_t varve_alloc_max_memory_allocated(struct varve_alloc *alloc)
{
    return allocator_stats_figure(alloc, &alloc->counters.peak_all[HOT_ALLOCATED_BYTES]);
}

int64_t varve_alloc_max_memory_reserved(struct varve_alloc *alloc)
{
    return allocator_stats_figure(alloc, &alloc->counters.others.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak);
}
