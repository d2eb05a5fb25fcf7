/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of a front end, one allocator each, opened when the device is first used; and the
 * configuration that they are opened with. Called by torch_*.c and replace_malloc.c.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_H

#include "alloc/frontend/registry_config.h"
#include "alloc/frontend/registry_device.h"

#define REGISTRY_DEVICES 64 /* ordinals are smaller */

/* What a library is, given before anything else is called. */
struct frontend {
    const char *prefix;         /* of its environment variables */
    const char *alloc_variable; /* with the allocator's configuration; NULL: PyTorch's own */
    unsigned records;           /* enum varve_records: what a session must want for a trace of the decisions */
};

/// Before any other function here, of a library that is not PyTorch's; `frontend` must stay.
void registry_begin(const struct frontend *frontend);
/// The device, opened if it is new. Errors: VARVE_ERROR_INVALID (no such number, the configuration),
/// UNSUPPORTED (a fork child), those of varve_cuda_open and varve_alloc_open.
int registry_get(int ordinal, struct frontend_device **device_out, struct varve_message *message);
/// The device if it is open and of use in this process, else NULL.
struct frontend_device *registry_find(int ordinal);
/// The first open device behind `ordinal` (-1: of all); NULL at the end.
struct frontend_device *registry_next(int ordinal);
/// The device was reset: what it had is gone, and the next request opens it anew. What this process knew of
/// it is not freed, since other threads may be using it.
void registry_forget(int ordinal);
/// Everything that is open belongs to a parent process.
bool registry_is_inherited(void);
/// A copy, with the last change. Errors: those of frontend_config_read.
int registry_get_config(struct frontend_config *config_out, struct varve_message *message);
/// For devices that are open and those to come. Errors: VARVE_ERROR_UNSUPPORTED, with nothing changed.
int registry_set_config(const struct varve_alloc_config *config, struct varve_message *message);
/// Keep so many events of each device, 0: none; what was kept goes if that is a change, or on request.
void registry_set_history(uint64_t limit, bool clear);
uint64_t registry_history_limit(void);
/// Called after a request of any device has failed, with no lock held.
void registry_set_oom_observer(void (*observer)(const struct frontend_device *device,
                                                const struct varve_alloc_oom *oom));
/// The calling thread's own message: for errors of functions that have nowhere to put one.
struct varve_message *registry_message(void);

#endif
