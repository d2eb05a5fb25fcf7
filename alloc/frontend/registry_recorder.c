/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call site is taken before the allocator's lock, since a walk of the stack lasts longer than the rest of
 * a request; it waits in the thread. Frees carry none: the collector repeats that of the allocation.
 *
 * While no request has a call site and no history is kept, as in a recording without stacks, decisions go
 * into the ring from where they are made: through here each of them is written twice more, which is a fifth
 * of a recorded request.
 */
#include "alloc/frontend/registry.h"
#include "trace/emit.h"
#include "trace/record.h"
#include "trace/record_fold.h"

__thread uint32_t frontend_callsite;

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

static void record_decision(void *context, const struct varve_record *record)
{
    struct frontend_device *device = context;
    if (device->is_recorded) {
        bool has_own = has_callsite((enum varve_kind)varve_record_kind(record));
        varve_emit_words(record->addr, record->size, record->requested, record->arg, record->id_stream,
                         record->dev_seq_kind_flags,
                         varve_record_last(has_own ? frontend_callsite : record->callsite, record->pool, record->device,
                                           record->cause));
    }
    if (device->history.limit > 0) {
        struct varve_record events[VARVE_FOLD_EVENTS_MAX];
        unsigned count = varve_record_unfold(record, events);
        for (unsigned i = 0; i < count; i++) {
            history_add(&device->history, device->alloc, device->device, &events[i]);
        }
    }
}

struct varve_alloc_recorder frontend_recorder_of(struct frontend_device *device)
{
    return (struct varve_alloc_recorder){
        .record = record_decision,
        .context = device,
        .emits_names = device->is_recorded,
        .folds = true,
    };
}

void frontend_recorder_route(struct frontend_device *device)
{
    const struct varve_alloc_recorder *route = NULL;
    if (device->history.limit > 0 || (device->is_recorded && device->has_callsites)) {
        route = &device->recorder;
    } else if (device->is_recorded) {
        route = &varve_alloc_recorder_ring;
    }
    varve_alloc_set_recorder(device->alloc, route);
}

__attribute__((cold)) void frontend_recorder_begin_callsites(struct frontend_device *device)
{
    varve_alloc_free_mutex_lock(device->alloc);
    __atomic_store_n(&device->has_callsites, true, __ATOMIC_RELAXED);
    frontend_recorder_route(device);
    varve_alloc_free_mutex_unlock(device->alloc);
}
