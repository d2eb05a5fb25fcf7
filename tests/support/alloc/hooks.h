/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Operations of a rig's device with some replaced: a test that wants to act while the device is asked for a
 * segment, or wants a wait to fail, which the sim device has no script for.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_HOOKS_H
#define VARVE_TESTS_SUPPORT_ALLOC_HOOKS_H

#include "support/alloc/rig.h"

/* The sim device under test; its operations with some replaced. One rig at a time has hooks. */
static struct {
    struct varve_device_ops ops;
    const struct varve_device_ops *real;
    void (*on_segment_alloc)(void *context);
    void *context;
    int synchronize_error;
} hooks;

static inline int hooked_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    void (*call)(void *context) = hooks.on_segment_alloc;
    hooks.on_segment_alloc = NULL; /* what it asks for itself goes straight to the device */
    if (call != NULL) {
        call(hooks.context);
        hooks.on_segment_alloc = call;
    }
    return hooks.real->segment_alloc(device, bytes, stream, addr_out);
}

static inline int hooked_event_synchronize(struct varve_device *device, uint64_t event)
{
    return hooks.synchronize_error != 0 ? hooks.synchronize_error : hooks.real->event_synchronize(device, event);
}

static inline void hook(struct rig *rig, void (*on_segment_alloc)(void *context), void *context)
{
    hooks.real = rig->device->ops;
    hooks.ops = *hooks.real;
    hooks.ops.segment_alloc = hooked_segment_alloc;
    hooks.ops.event_synchronize = hooked_event_synchronize;
    hooks.on_segment_alloc = on_segment_alloc;
    hooks.context = context;
    hooks.synchronize_error = 0;
    rig->device->ops = &hooks.ops;
}

#endif
