/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one play in allocator mode: an allocator on a simulated device with the budget as its limit, and the
 * planner's driver whose storages are blocks of it. Used by dtr_play.c alone.
 */
#ifndef VARVE_ANALYSIS_DTR_DTR_ALLOCATOR_H
#define VARVE_ANALYSIS_DTR_DTR_ALLOCATOR_H

#include "alloc/alloc.h"
#include "storage/storage.h"

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

#endif
