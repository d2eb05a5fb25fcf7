/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the decisions of a device's allocator go: into the trace, with the call site of the request that made
 * them, and into the history that snapshots show. The call site is taken before the allocator's lock, since a
 * walk of the stack lasts longer than the rest of a request; it waits in the thread. Frees carry none: the
 * collector repeats that of the allocation.
 *
 * While no request has a call site and no history is kept, as in a recording without stacks, decisions go
 * into the ring from where they are made: through here each of them is written twice more, which is a fifth
 * of a recorded request.
 */
#include "alloc/frontend/torch/state.h"

__thread uint32_t torch_callsite;

static bool has_callsite(enum varve_kind kind)
{
    switch (kind) {
    case VARVE_KIND_ALLOC:
    case VARVE_KIND_SEGMENT_ALLOC:
    case VARVE_KIND_SEGMENT_MAP:
    case VARVE_KIND_SPLIT:
    case VARVE_KIND_OOM:
    case VARVE_KIND_OOM_RETRY:
    case VARVE_KIND_EMPTY_CACHE:
        return true;
    default:
        return false;
    }
}

void torch_record(void *context, const struct varve_record *record)
{
    struct torch_device *device = context;

    if (device->is_recorded) {
        struct varve_record told = *record;

        told.callsite = has_callsite((enum varve_kind)varve_record_kind(record)) ? torch_callsite : 0;
        varve_emit(&told);
    }
    if (device->history.limit > 0) {
        torch_history_add(&device->history, device->alloc, record);
    }
}

void torch_record_route(struct torch_device *device)
{
    const struct varve_alloc_recorder *route = NULL;

    if (device->history.limit > 0 || (device->is_recorded && device->has_sites)) {
        route = &device->recorder;
    } else if (device->is_recorded) {
        route = &varve_alloc_recorder_ring;
    }
    device->alloc->recorder = route;
}

__attribute__((cold)) void torch_record_sites(struct torch_device *device)
{
    alloc_lock(device->alloc);
    __atomic_store_n(&device->has_sites, true, __ATOMIC_RELAXED);
    torch_record_route(device);
    alloc_unlock(device->alloc);
}
