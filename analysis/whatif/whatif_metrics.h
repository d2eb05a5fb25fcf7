/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How well memory was used, by the definitions that are in use elsewhere, each under the name of its source: no two
 * projects mean the same by "fragmentation". Made from a replay's statistics and from two moments of it: when most was
 * reserved, and when a request failed.
 */
#ifndef VARVE_ANALYSIS_WHATIF_WHATIF_METRICS_H
#define VARVE_ANALYSIS_WHATIF_WHATIF_METRICS_H

#include "alloc/alloc.h"
#include "analysis/replay/replay.h"

/* Bytes of one device at one moment. */
struct whatif_sample {
    uint64_t reserved, allocated, active, requested; /* requested: of active blocks */
    uint64_t largest_free;                           /* free block of any pool and stream */
};

/* Filled by whatif_observe; begins zeroed. Sums over the devices that were left, and those of the one at hand. */
struct whatif_moments {
    struct whatif_sample past, peak; /* when most was reserved for the first time */
    int device;
    bool has_failed;
    uint64_t lowest_allocated; /* when a request had failed, of one device; only with has_failed */
    uint64_t reserved_then;
};

/* X(name, key, source, title, is bytes, meaning). */
#define WHATIF_METRIC_LIST(X)                                                                                          \
    X(UTILIZATION_ACTIVE, "utilization_active", "GMLake", "active", false, "peak active / peak reserved")              \
    X(UTILIZATION_ALLOCATED, "utilization_allocated", "STAlloc", "allocated", false, "peak allocated / peak reserved") \
    X(UNUSED_AT_PEAK, "unused_at_peak", "PyTorch #29554", "unused", false,                                             \
      "1 - allocated / reserved, when most was reserved")                                                              \
    X(INTERNAL_AT_PEAK, "internal_bytes_at_peak", "segsum", "internal", true,                                          \
      "sizes of active blocks - bytes requested of them, when most was reserved")                                      \
    X(EXTERNAL_AT_PEAK, "external_bytes_at_peak", "segsum", "external", true,                                          \
      "reserved - active, when most was reserved")                                                                     \
    X(INACTIVE_SPLIT, "inactive_split_bytes_peak", "memory_stats", "inactive split", true,                             \
      "most bytes in free blocks of segments that are partly used")                                                    \
    X(EXTERNAL_INDEX, "external_index_at_peak", "RMM, TensorFlow", "index", false,                                     \
      "1 - largest free block / free bytes, when most was reserved")                                                   \
    X(MAKESPAN, "makespan_fragmentation", "idealloc", "makespan", false, "(peak reserved - load) / load")              \
    X(LOWEST_GAP, "lowest_utilization_gap_bytes", "cudf #12328", "lowest gap", true,                                   \
      "reserved - allocated, where least was allocated when a request failed")

enum whatif_metric {
#define WHATIF_METRIC_NAME(name, key, source, title, is_bytes, meaning) WHATIF_##name,
    WHATIF_METRIC_LIST(WHATIF_METRIC_NAME)
#undef WHATIF_METRIC_NAME
        WHATIF_METRIC_LIMIT,
};

struct whatif_metric_info {
    const char *key, *source, *title, *meaning;
    bool is_bytes; /* else a share from 0 on */
};

extern const struct whatif_metric_info whatif_metrics[WHATIF_METRIC_LIMIT];

/// replay_observe; `context` is a struct whatif_moments.
void whatif_observe(void *context, struct varve_alloc *alloc, bool has_failed);
/// Bytes, or a share; negative where the definition does not apply (nothing reserved, no request that failed). `load`:
/// the most bytes that were requested and live at a time.
double whatif_metric(enum whatif_metric metric, const struct replay_result *result,
                     const struct whatif_moments *moments, uint64_t load);

#endif
