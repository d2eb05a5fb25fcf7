/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device of a front end: the device itself, its allocator, and where that one's decisions go. Made by
 * registry.c and never freed, since programs free memory in destructors that run when the driver has gone.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_DEVICE_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_DEVICE_H

#include "alloc/frontend/registry_config.h"
#include "alloc/frontend/registry_history.h"

struct frontend_device {
    int ordinal;        /* CUDA's number in this process, and the device's index */
    uint32_t forks;     /* when it was opened: a fork child can do nothing with it */
    bool is_recorded;   /* into a trace */
    bool has_callsites; /* a request had a call site: atomic, written with the allocator's lock */
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct history history;
    struct frontend_device *next_forgotten; /* of those that were reset */
};

/// Owner: the caller, by ops->close. Errors: those of varve_cuda_open.
int frontend_device_open(const struct frontend_config *config, int ordinal, struct varve_device **device_out,
                         struct varve_message *message);
/// Record name, UUID and memory of the device into the trace, unless that was done.
void frontend_device_describe(enum frontend_device_kind kind, struct varve_device *device);
/// One of CUDA's?
bool frontend_device_is_cuda(const struct varve_device *device);

#endif
