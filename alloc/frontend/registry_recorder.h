/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the decisions of a device's allocator go: into the trace, with the call site of the request that made
 * them, and into the history that snapshots show.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_RECORDER_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_RECORDER_H

#include "alloc/frontend/registry_device.h"

/* Call site of the request that the thread has under way; 0: none. */
extern __thread uint32_t frontend_callsite __attribute__((tls_model("initial-exec")));

/// The device's recorder, before its allocator is opened.
struct varve_alloc_recorder frontend_recorder_of(struct frontend_device *device);
/// With the allocator's lock: its decisions go to the trace, to the history, to both or nowhere.
void frontend_recorder_route(struct frontend_device *device);
/// The first call site of a device's request: from now on records carry one. Takes the allocator's lock.
void frontend_recorder_begin_callsites(struct frontend_device *device);

/// The request that is about to be made of a recorded device comes from there; 0: not known.
static inline void frontend_callsite_set(struct frontend_device *device, uint32_t callsite)
{
    frontend_callsite = callsite;
    if (__builtin_expect(callsite != 0 && !__atomic_load_n(&device->has_callsites, __ATOMIC_RELAXED), 0)) {
        frontend_recorder_begin_callsites(device);
    }
}

#endif
