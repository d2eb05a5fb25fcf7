/* SPDX-License-Identifier: Apache-2.0 */
/* A planner's driver has one context, and here two want to be called: the blocks, and whoever takes the events. */
#include "analysis/dtr/dtr_play.h"

#include "analysis/base/memory_or_exit.h"

int dtr_allocator_open(struct dtr_allocator *allocator, const struct dtr_allocator_options *options, uint64_t budget,
                       struct varve_message *message)
{
    bool is_limited = budget != VARVE_REMAT_UNLIMITED;
    const struct varve_sim_options sim = {.capacity_bytes = is_limited ? budget : 0};
    *allocator = (struct dtr_allocator){0};
    int error = varve_sim_open(&sim, &allocator->device, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_alloc_options alloc;
    varve_alloc_options_init(&alloc);
    alloc.device = allocator->device;
    alloc.policy = options->policy;
    alloc.config = options->config;
    alloc.memory_limit = is_limited ? budget : 0;
    alloc.recorder = options->recorder;
    error = varve_alloc_open(&alloc, &allocator->alloc, message);
    return error != VARVE_OK ? error : varve_remat_blocks_open(allocator->alloc, &allocator->blocks, message);
}

void dtr_allocator_close(struct dtr_allocator *allocator)
{
    if (allocator->alloc != NULL) {
        varve_alloc_set_recorder(allocator->alloc, NULL); /* what is resident stays so in records */
    }
    varve_remat_blocks_close(allocator->blocks);
    if (allocator->alloc != NULL) {
        varve_alloc_close(allocator->alloc);
    }
    if (allocator->device != NULL) {
        allocator->device->ops->close(allocator->device);
    }
}

/* ---- the driver ---- */

static int dtr_allocator_run(void *context, struct varve_remat_run *run, struct varve_message *message)
{
    const struct dtr_allocator *allocator = context;
    return allocator->driver.run(allocator->driver.context, run, message);
}

static void dtr_allocator_evict(void *context, uint32_t storage)
{
    const struct dtr_allocator *allocator = context;
    allocator->driver.evict(allocator->driver.context, storage);
}

static uint64_t dtr_allocator_bytes_used(void *context)
{
    const struct dtr_allocator *allocator = context;
    return allocator->driver.bytes_used(allocator->driver.context);
}

static uint64_t dtr_allocator_bytes_needed(void *context, uint32_t op)
{
    const struct dtr_allocator *allocator = context;
    return allocator->driver.bytes_needed(allocator->driver.context, op);
}

static uint64_t dtr_allocator_free_neighbours(void *context, uint32_t storage)
{
    const struct dtr_allocator *allocator = context;
    return allocator->driver.free_neighbours(allocator->driver.context, storage);
}

static size_t dtr_allocator_layout(void *context, uint64_t bytes, const struct varve_remat_piece **pieces_out)
{
    const struct dtr_allocator *allocator = context;
    return allocator->driver.layout(allocator->driver.context, bytes, pieces_out);
}

static void dtr_allocator_event(void *context, const struct varve_remat_event *event)
{
    const struct dtr_allocator *allocator = context;
    allocator->event(allocator->event_context, event);
}

void dtr_allocator_drive(struct dtr_allocator *allocator,
                         void (*take_event)(void *context, const struct varve_remat_event *event), void *event_context,
                         struct varve_remat_driver *driver_out)
{
    varve_remat_blocks_drive(allocator->blocks, &allocator->driver);
    allocator->event = take_event;
    allocator->event_context = event_context;
    *driver_out = (struct varve_remat_driver){
        .context = allocator,
        .run = dtr_allocator_run,
        .evict = dtr_allocator_evict,
        .bytes_used = dtr_allocator_bytes_used,
        .bytes_needed = dtr_allocator_bytes_needed,
        .free_neighbours = dtr_allocator_free_neighbours,
        .layout = dtr_allocator_layout,
        .event = take_event != NULL ? dtr_allocator_event : NULL,
    };
}

int dtr_allocator_attach(struct dtr_allocator *allocator, struct varve_remat *remat, struct varve_message *message)
{
    return varve_remat_blocks_attach(allocator->blocks, remat, message);
}

/* ---- figures ---- */

static uint64_t largest_free(struct varve_alloc *alloc)
{
    struct varve_alloc_snapshot snapshot;
    if (varve_alloc_snapshot(alloc, &snapshot) != VARVE_OK) {
        memory_exhausted();
    }
    uint64_t largest = 0;
    for (size_t i = 0; i < snapshot.block_count; i++) {
        if (snapshot.blocks[i].state == VARVE_BLOCK_INACTIVE && snapshot.blocks[i].bytes > largest) {
            largest = snapshot.blocks[i].bytes;
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return largest;
}

void dtr_allocator_take(struct dtr_allocator *allocator, struct dtr_allocator_figures *figures_out)
{
    struct varve_alloc_stats stats;
    if (varve_alloc_get_device_stats(allocator->alloc, &stats) != VARVE_OK) {
        memory_exhausted();
    }
    *figures_out = (struct dtr_allocator_figures){
        .peak_reserved = (uint64_t)stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak,
        .peak_allocated = (uint64_t)stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].peak,
        .reserved = (uint64_t)stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].current,
        .allocated = (uint64_t)stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].current,
        .largest_free = largest_free(allocator->alloc),
        .retries = (uint64_t)stats.num_alloc_retries,
        .failures = (uint64_t)stats.num_ooms,
        .segments_made = (uint64_t)stats.segment[VARVE_ALLOC_STAT_ALL].allocated,
    };
    for (int call = 0; call < VARVE_DEVICE_CALL_LIMIT; call++) {
        figures_out->device_calls += varve_sim_calls(allocator->device, (enum varve_device_call)call);
    }
}

double dtr_allocator_fragmentation(const struct dtr_allocator_figures *figures)
{
    return figures->peak_reserved > 0 ? 1 - (double)figures->peak_allocated / (double)figures->peak_reserved : 0;
}
