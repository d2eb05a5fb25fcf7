/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One play of a log by a planner under a budget: what it cost, and where it ended if it did not reach the end. Any
 * thread, also at the same time; the log is not changed.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_PLAY_H
#define VARVE_ANALYSIS_DTR_DTR_PLAY_H

#include "analysis/dtr/dtr_allocator.h"
#include "analysis/dtr/dtr_log.h"
#include "storage/storage.h"

enum dtr_status {
    DTR_OK,
    DTR_OOM,    /* nothing was left to evict */
    DTR_THRASH, /* recomputation cost more than the limit */
};

struct dtr_options {
    const struct varve_remat_heuristic *heuristic;
    enum varve_remat_dealloc dealloc;
    enum varve_remat_search search;
    uint64_t budget;         /* bytes; VARVE_REMAT_UNLIMITED: none. With an allocator also of what it reserves */
    uint64_t remat_limit_ns; /* VARVE_REMAT_UNLIMITED: none */
    uint64_t seed;
    const struct dtr_allocator_options *allocator; /* NULL: storages are sums of sizes */
    /* which operator of the program is being played, VARVE_REMAT_NONE at the end; NULL: nobody wants to know */
    uint32_t *playing;
    /* What happens, as it happens; `op`: the same. NULL: nobody wants to know. */
    void (*event)(void *context, const struct varve_remat_event *event, uint32_t op);
    void *event_context;
    struct progress *progress; /* NULL: none */
    const char *stage;         /* for progress; NULL: "playing" */
    size_t plays_done, plays;  /* for progress: this play is one of so many; 0: the only one */
};

struct dtr_result {
    enum dtr_status status;
    uint32_t op;                 /* where it ended: the operator, VARVE_REMAT_NONE at the end of the log */
    struct varve_message reason; /* why, if the status is not DTR_OK */
    uint64_t events;             /* of the schedule, played */
    double seconds;              /* of the play alone */
    struct varve_remat_counters counters;
    struct dtr_allocator_figures allocator; /* 0 without one */
};

const char *dtr_status_name(enum dtr_status status);
/// Errors: VARVE_ERROR_INVALID (options that do not go together). A play that fails for want of memory is none.
int dtr_play(const struct dtr_log *log, const struct dtr_options *options, struct dtr_result *result_out,
             struct varve_message *message);
/// The play that others are compared with: no budget, everything goes once it is released (the simulator's runtime V1).
/// Its max_used_bytes is ratio 1, its model_compute_ns what the program costs.
int dtr_play_baseline(const struct dtr_log *log, struct progress *progress, struct dtr_result *result_out,
                      struct varve_message *message);

#endif
