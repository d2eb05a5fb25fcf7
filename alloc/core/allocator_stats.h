/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Statistics as callers know them, from the counters that allocations move (core/allocator_counters.h), under the flat
 * keys of torch.cuda.memory_stats.
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_STATS_H
#define VARVE_ALLOC_CORE_ALLOCATOR_STATS_H

#include "alloc/alloc.h"

struct alloc_counters;

/// The figures in full.
void stats_read(const struct alloc_counters *counters, struct varve_alloc_stats *stats_out);
/// allocated and freed of every statistic, and the counters, begin again at 0; max_split_size stays.
void stats_reset_accumulated(struct alloc_counters *counters);
/// Every peak becomes what is current.
void stats_reset_peak(struct alloc_counters *counters);

#endif
