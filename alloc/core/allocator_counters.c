/* SPDX-License-Identifier: Apache-2.0 */
/* What is rare: the hot counters as statistics and back, and peaks while something waits. */
#include "alloc/core/allocator_counters.h"

/* The array of each hot counter in struct varve_alloc_stats. */
static struct varve_alloc_stat *stats_of(struct varve_alloc_stats *stats, enum hot_counter counter)
{
    struct varve_alloc_stat *const arrays[HOT_COUNTERS] = {
        [HOT_ALLOCATION] = stats->allocation,
        [HOT_ALLOCATED_BYTES] = stats->allocated_bytes,
        [HOT_REQUESTED_BYTES] = stats->requested_bytes,
        [HOT_INACTIVE_SPLIT] = stats->inactive_split,
        [HOT_INACTIVE_SPLIT_BYTES] = stats->inactive_split_bytes,
    };
    return arrays[counter];
}

void counters_read(const struct alloc_counters *counters, struct varve_alloc_stats *stats_out)
{
    *stats_out = counters->others;
    for (unsigned i = 0; i < HOT_COUNTERS; i++) {
        struct varve_alloc_stat *stats = stats_of(stats_out, (enum hot_counter)i);
        for (unsigned is_small = 0; is_small < 2; is_small++) {
            const struct hot_counters *hot = &counters->pools[is_small];
            struct varve_alloc_stat *stat = &stats[stat_pool_kind(is_small != 0)];
            stat->current = hot->current[i];
            stat->peak = hot->peak[i];
            stat->allocated = hot->allocated[i];
        }
        stats[VARVE_ALLOC_STAT_ALL].current = hot_current(counters, (enum hot_counter)i);
        stats[VARVE_ALLOC_STAT_ALL].peak = counters->peak_all[i];
    }
}

void counters_write(struct alloc_counters *counters, const struct varve_alloc_stats *stats)
{
    counters->others = *stats;
    for (unsigned i = 0; i < HOT_COUNTERS; i++) {
        const struct varve_alloc_stat *from = stats_of(&counters->others, (enum hot_counter)i);
        for (unsigned is_small = 0; is_small < 2; is_small++) {
            struct hot_counters *hot = &counters->pools[is_small];
            const struct varve_alloc_stat *stat = &from[stat_pool_kind(is_small != 0)];
            hot->current[i] = stat->current;
            hot->peak[i] = stat->peak;
            hot->allocated[i] = stat->allocated;
        }
        counters->peak_all[i] = from[VARVE_ALLOC_STAT_ALL].peak;
    }
}

static void note_peak(struct varve_alloc_stat *active, int64_t allocated)
{
    int64_t total = allocated + active->current;
    if (active->peak < total) {
        active->peak = total;
    }
}

void counters_note_active(struct alloc_counters *counters, bool is_small)
{
    struct varve_alloc_stats *stats = &counters->others;
    const int64_t *own = counters->pools[is_small].current;
    enum varve_alloc_stat_pool kind = stat_pool_kind(is_small);
    note_peak(&stats->active[VARVE_ALLOC_STAT_ALL], hot_current(counters, HOT_ALLOCATION));
    note_peak(&stats->active[kind], own[HOT_ALLOCATION]);
    note_peak(&stats->active_bytes[VARVE_ALLOC_STAT_ALL], hot_current(counters, HOT_ALLOCATED_BYTES));
    note_peak(&stats->active_bytes[kind], own[HOT_ALLOCATED_BYTES]);
}
