/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The moves that are rare: peaks while something waits.
 */
#include "alloc/core/state/counters.h"

static void note_peak(struct varve_alloc_stat *active, const struct varve_alloc_stat *allocated)
{
    int64_t total = allocated->current + active->current;

    if (active->peak < total) {
        active->peak = total;
    }
}

void stats_note_active(struct varve_alloc_stats *stats, bool is_small)
{
    enum varve_alloc_stat_pool kind = stat_pool_kind(is_small);

    note_peak(&stats->active[VARVE_ALLOC_STAT_ALL], &stats->allocation[VARVE_ALLOC_STAT_ALL]);
    note_peak(&stats->active[kind], &stats->allocation[kind]);
    note_peak(&stats->active_bytes[VARVE_ALLOC_STAT_ALL], &stats->allocated_bytes[VARVE_ALLOC_STAT_ALL]);
    note_peak(&stats->active_bytes[kind], &stats->allocated_bytes[kind]);
}
