/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One play of a log by a planner under a budget: what it cost, and where it ended if it did not reach the end. Any
 * thread, also at the same time; the log is not changed.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_PLAY_H
#define VARVE_ANALYSIS_DTR_DTR_PLAY_H

#include "alloc/alloc.h"
#include "analysis/dtr/dtr_log.h"
#include "storage/storage.h"

/*
 * The memory of one play in allocator mode: an allocator on a simulated device with the budget as its limit, and the
 * planner's driver whose storages are blocks of it. Used by dtr_play.c alone.
 */

/* Which allocator, and who takes its records. */
struct dtr_allocator_options {
    const char *policy; /* NULL: "pytorch" */
    struct varve_alloc_config config;
    const struct varve_alloc_recorder *recorder; /* NULL: nobody */
};

struct dtr_allocator_figures {
    uint64_t peak_reserved, peak_allocated;
    uint64_t reserved, allocated; /* at the end */
    uint64_t largest_free;        /* block, at the end */
    uint64_t retries, failures;   /* of requests */
    uint64_t segments_made, device_calls;
};

struct dtr_allocator {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_remat_blocks *blocks;
    struct varve_remat_driver driver; /* of the blocks */
    void (*event)(void *context, const struct varve_remat_event *event);
    void *event_context;
};

/// dtr_allocator_close in any case. `budget`: VARVE_REMAT_UNLIMITED is none. Errors: as of varve_alloc_open.
int dtr_allocator_open(struct dtr_allocator *allocator, const struct dtr_allocator_options *options, uint64_t budget,
                       struct varve_message *message);
/// The planner is closed before.
void dtr_allocator_close(struct dtr_allocator *allocator);
/// A driver for the planner that is about to be opened, whose events go to `event` (NULL: nowhere).
void dtr_allocator_drive(struct dtr_allocator *allocator,
                         void (*event)(void *context, const struct varve_remat_event *event), void *event_context,
                         struct varve_remat_driver *driver_out);
/// That planner, before its first operator. Errors: as of varve_remat_blocks_attach.
int dtr_allocator_attach(struct dtr_allocator *allocator, struct varve_remat *remat, struct varve_message *message);
void dtr_allocator_take(struct dtr_allocator *allocator, struct dtr_allocator_figures *figures_out);
/// 1 - peak allocated / peak reserved: what was reserved at most, but never in use at once; 0 of nothing.
double dtr_allocator_fragmentation(const struct dtr_allocator_figures *figures);

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
