/* SPDX-License-Identifier: Apache-2.0 */
/* A request costs one look at the reserved bytes; everything else is asked only when they are more than ever before. */
#include "analysis/whatif/whatif_metrics.h"

const struct whatif_metric_info whatif_metrics[WHATIF_METRIC_LIMIT] = {
#define WHATIF_METRIC_INFO(name, key, source, title, is_bytes, meaning) \
    [WHATIF_##name] = {key, source, title, meaning, is_bytes},
    WHATIF_METRIC_LIST(WHATIF_METRIC_INFO)
#undef WHATIF_METRIC_INFO
};

static uint64_t whatif_metrics_current(const struct varve_alloc_stat *stat)
{
    int64_t bytes = stat[VARVE_ALLOC_STAT_ALL].current;
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static struct whatif_sample whatif_metrics_sample(struct varve_alloc *alloc)
{
    struct varve_alloc_stats stats = {0};
    if (varve_alloc_get_device_stats(alloc, &stats) != VARVE_OK) {
        return (struct whatif_sample){0};
    }
    return (struct whatif_sample){
        .reserved = whatif_metrics_current(stats.reserved_bytes),
        .allocated = whatif_metrics_current(stats.allocated_bytes),
        .active = whatif_metrics_current(stats.active_bytes),
        .requested = whatif_metrics_current(stats.requested_bytes),
        .largest_free = varve_alloc_largest_free_block(alloc),
    };
}

static struct whatif_sample sum(const struct whatif_sample *a, const struct whatif_sample *b)
{
    return (struct whatif_sample){
        .reserved = a->reserved + b->reserved,
        .allocated = a->allocated + b->allocated,
        .active = a->active + b->active,
        .requested = a->requested + b->requested,
        .largest_free = a->largest_free > b->largest_free ? a->largest_free : b->largest_free,
    };
}

void whatif_observe(void *context, struct varve_alloc *alloc, bool has_failed)
{
    struct whatif_moments *moments = context;
    int device = varve_alloc_get_device(alloc)->index;
    int64_t reserved = varve_alloc_memory_reserved(alloc);
    if (device != moments->device) {
        moments->past = sum(&moments->past, &moments->peak);
        moments->peak = (struct whatif_sample){0};
        moments->device = device;
    }
    if (reserved > 0 && (uint64_t)reserved > moments->peak.reserved) {
        moments->peak = whatif_metrics_sample(alloc);
    }
    if (has_failed) {
        uint64_t allocated = (uint64_t)varve_alloc_memory_allocated(alloc);
        if (!moments->has_failed || allocated < moments->lowest_allocated) {
            moments->lowest_allocated = allocated;
            moments->reserved_then = (uint64_t)reserved;
        }
        moments->has_failed = true;
    }
}

static double peak(const struct varve_alloc_stat *stat)
{
    return (double)stat[VARVE_ALLOC_STAT_ALL].peak;
}

/* Negative of nothing. */
static double whatif_metrics_share(double part, double whole)
{
    return whole > 0 ? part / whole : -1;
}

double whatif_metric(enum whatif_metric metric, const struct replay_result *result,
                     const struct whatif_moments *moments, uint64_t load)
{
    const struct varve_alloc_stats *stats = &result->stats;
    const struct whatif_sample top = sum(&moments->past, &moments->peak);
    double reserved = peak(stats->reserved_bytes);
    switch (metric) {
    case WHATIF_UTILIZATION_ACTIVE:
        return whatif_metrics_share(peak(stats->active_bytes), reserved);
    case WHATIF_UTILIZATION_ALLOCATED:
        return whatif_metrics_share(peak(stats->allocated_bytes), reserved);
    case WHATIF_UNUSED_AT_PEAK:
        return whatif_metrics_share((double)top.reserved - (double)top.allocated, (double)top.reserved);
    case WHATIF_INTERNAL_AT_PEAK:
        return (double)top.active - (double)top.requested;
    case WHATIF_EXTERNAL_AT_PEAK:
        return (double)top.reserved - (double)top.active;
    case WHATIF_INACTIVE_SPLIT:
        return peak(stats->inactive_split_bytes);
    case WHATIF_EXTERNAL_INDEX: {
        double unused = (double)top.reserved - (double)top.active;
        return whatif_metrics_share(unused - (double)top.largest_free, unused);
    }
    case WHATIF_MAKESPAN:
        return whatif_metrics_share(reserved - (double)load, (double)load);
    case WHATIF_LOWEST_GAP:
        return moments->has_failed ? (double)moments->reserved_then - (double)moments->lowest_allocated : -1;
    case WHATIF_METRIC_LIMIT:
        break;
    }
    return -1;
}
