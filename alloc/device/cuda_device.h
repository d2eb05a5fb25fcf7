/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the cuda device share. The driver keeps the memory; a resource table is
 * kept as well, since the driver does not say what it holds, takes stale handles for good ones, and knows no
 * limit.
 *
 *   cuda_driver.c  finds the driver
 *   cuda_device.c    opening and closing, calls and their failures, memory info
 *   cuda_memory.c  segments, reservations, mappings, stream-ordered memory
 *   cuda_event.c   streams and events
 *   cuda_share.c   peers, and segments of other processes
 *   cuda_transfer.c  streams of the caller's own, copies, fills, pinned memory
 *   cuda_program.c   programs that run on the GPU
 *
 * What may last (memory of the driver, waiting) is called with the table unlocked: cuda_unlock and cuda_lock around it.
 */
#ifndef VARVE_ALLOC_DEVICE_CUDA_DEVICE_H
#define VARVE_ALLOC_DEVICE_CUDA_DEVICE_H

#include "alloc/device/cuda_driver.h"
#include "alloc/device/device_operations.h"

/* A segment that other processes may open; this one opens it by a look into the table. */
struct cuda_export {
    struct varve_ipc_handle handle;
    uint64_t addr;
    uint64_t opens; /* times that it is open here */
};

struct cuda_device {
    struct device_table table;   /* its resources' `used` holds what is being allocated right now, too */
    struct varve_device_ops ops; /* without what this GPU does not have */
    const struct cuda_driver *driver;
    cuda_ordinal ordinal;
    cuda_context context; /* the device's primary one, as the run-time API uses it */
    uint32_t forks;       /* when it was opened; the driver is nothing to a fork child */
    bool has_limit, shares;
    cuda_result gone; /* atomic: how the driver, or the context with all that was in it, has ended */
    /* Guarded by the table's mutex: */
    cuda_event *events; /* by slot of the table's events: they serve the slot's next owner again */
    uint32_t event_capacity;
    cuda_pool pool;          /* NULL: not asked for yet */
    cuda_stream join_stream; /* likewise */
    struct cuda_export *exports;
    uint32_t export_count, export_capacity;
    cuda_module *programs;
    uint32_t program_count;
    bool has_peer[DEVICE_INDEX_MAX + 1]; /* by index: its primary context is retained */
};

static inline struct cuda_device *cuda_of(const struct varve_device *device)
{
    return (struct cuda_device *)(uintptr_t)device;
}

static inline struct cuda_device *cuda_of_table(const struct device_table *table)
{
    return cuda_of(&table->device);
}

static inline bool cuda_is_inherited(const struct cuda_device *cuda)
{
    return cuda_forks() != cuda->forks;
}

/// As varve_cuda_open, on any driver; it must outlive the device.
int cuda_device_open(const struct cuda_driver *driver, const struct varve_cuda_options *options,
                     struct varve_device **device_out, struct varve_message *message);
void cuda_unlock(struct cuda_device *cuda);
void cuda_lock(struct cuda_device *cuda);
/// The error for a failed call, its reason noted: the call with its sizes, then what CUDA says. 0 for
/// success. With the table locked.
int cuda_failed(struct cuda_device *cuda, cuda_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline cuda_stream cuda_stream_of(uint64_t stream)
{
    return (cuda_stream)(uintptr_t)stream;
}

/// CUDA's number of the device with index `peer`. Errors: VARVE_ERROR_INVALID, NOT_FOUND.
int cuda_peer_ordinal(struct cuda_device *cuda, int peer, cuda_ordinal *ordinal_out);

#endif
