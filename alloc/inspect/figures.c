/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics for callers: copies under the lock.
 */
#include "alloc/core/allocator.h"

int varve_alloc_get_device_stats(struct varve_alloc *alloc, struct varve_alloc_stats *stats_out)
{
    alloc_lock(alloc);
    stats_read(&alloc->stats, stats_out);
    alloc_unlock(alloc);
    return VARVE_OK;
}

void varve_alloc_reset_accumulated_stats(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    stats_reset_accumulated(&alloc->stats);
    alloc_unlock(alloc);
}

void varve_alloc_reset_peak_stats(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    stats_reset_peak(&alloc->stats);
    alloc_unlock(alloc);
}

/* A figure of all pools together. */
static int64_t figure(struct varve_alloc *alloc, const struct varve_alloc_stat *stat, bool is_peak)
{
    int64_t value;

    alloc_lock(alloc);
    value = is_peak ? stat->peak : stat->current;
    alloc_unlock(alloc);
    return value;
}

int64_t varve_alloc_memory_allocated(struct varve_alloc *alloc)
{
    return figure(alloc, &alloc->stats.allocated_bytes[VARVE_ALLOC_STAT_ALL], false);
}

int64_t varve_alloc_memory_reserved(struct varve_alloc *alloc)
{
    return figure(alloc, &alloc->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL], false);
}

int64_t varve_alloc_max_memory_allocated(struct varve_alloc *alloc)
{
    return figure(alloc, &alloc->stats.allocated_bytes[VARVE_ALLOC_STAT_ALL], true);
}

int64_t varve_alloc_max_memory_reserved(struct varve_alloc *alloc)
{
    return figure(alloc, &alloc->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL], true);
}

uint64_t varve_alloc_overhead(struct varve_alloc *alloc)
{
    uint64_t bytes;

    alloc_lock(alloc);
    bytes = alloc->slab.region_bytes + alloc->map.mapped_bytes;
    for (struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        bytes += pool->index.mapped_bytes;
    }
    alloc_unlock(alloc);
    return bytes;
}
