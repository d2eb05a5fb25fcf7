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
#include "base/fork_count.h"

/* A segment that other processes may open; this one opens it by a look into the table. */
struct cuda_export {
    struct varve_ipc_handle handle;
    uint64_t addr;
    uint64_t opens; /* times that it is open here */
};

/* Physical memory that other processes were given. */
struct cuda_lent_memory {
    cuda_memory memory;
    int fd;
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
    size_t event_capacity;
    cuda_pool pool;          /* NULL: not asked for yet */
    cuda_stream join_stream; /* likewise */
    struct cuda_export *exports;
    uint32_t export_count;
    size_t export_capacity;
    struct cuda_lent_memory *lent;
    uint32_t lent_count;
    size_t lent_capacity;
    cuda_module *programs;
    uint32_t program_count;
    size_t program_capacity;
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
    return fork_count() != cuda->forks;
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

/* Programs that run on the GPU: what cuda_device.c puts into its tables. */

/// Has the driver all that is called here?
bool cuda_has_programs(const struct cuda_driver *driver);
/// All programs go, for a close. With the table locked.
void cuda_programs_close(struct cuda_device *cuda);

/* Of struct varve_device_ops. */
int cuda_program_load(struct varve_device *device, const void *image, uint64_t *program_out);
int cuda_program_unload(struct varve_device *device, uint64_t program);
int cuda_program_find(struct varve_device *device, uint64_t program, const char *name, uint64_t *function_out);
int cuda_launch(struct varve_device *device, uint64_t function, const struct varve_launch *launch, uint64_t stream);

/* Streams of the caller's own, copies, fills and pinned host memory: what cuda_device.c puts into its tables. */

/// Has the driver all that is called here?
bool cuda_has_transfers(const struct cuda_driver *driver);
/// Streams and pinned memory that are left go back, for a close. With the table locked.
void cuda_transfers_close(struct cuda_device *cuda);

/* Of struct device_hooks. */
int cuda_stream_make(struct device_table *table, uint64_t *stream_out);
int cuda_stream_end(struct device_table *table, uint64_t stream);
int cuda_foreign_check(struct device_table *table, uint64_t addr, uint64_t bytes);
int cuda_copy(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream);
int cuda_fill(struct device_table *table, const struct device_fill *fill, uint64_t stream);
int cuda_pin(struct device_table *table, uint64_t bytes, uint64_t *addr_out);
int cuda_unpin(struct device_table *table, uint64_t addr, uint64_t bytes);

/* Peers, and segments of other processes. Called by cuda_device.c, which has the table of operations. */

int cuda_peer_enable(struct varve_device *device, int peer);
int cuda_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out);
int cuda_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out);
int cuda_ipc_close(struct varve_device *device, uint64_t addr);
int cuda_vmm_export(struct varve_device *device, uint64_t handle, int *fd_out);
int cuda_vmm_import(struct varve_device *device, int fd, uint64_t bytes, uint64_t *handle_out);
int cuda_synchronize(struct varve_device *device);
/// The memory is released. With the table locked.
void cuda_lent_withdraw(struct cuda_device *cuda, cuda_memory memory);
/// Nothing is lent any more, for a close. With the table locked.
void cuda_lent_close(struct cuda_device *cuda);
/// The segment is gone, and nobody opens it any more. With the table locked.
void cuda_export_withdraw(struct cuda_device *cuda, uint64_t addr);

/* Segments, reservations, mappings and stream-ordered memory: what cuda_device.c puts into its tables. */

/// Size of the pieces that memory can be mapped in; 0: this GPU has no virtual memory.
uint64_t cuda_vmm_granularity(const struct cuda_device *cuda);
/// Can the GPU and the driver do stream-ordered memory at all?
bool cuda_has_pools(const struct cuda_device *cuda);
/// A peer reads and writes what is in the pool. With the table locked.
int cuda_pool_set_access(struct cuda_device *cuda, cuda_ordinal peer);
int cuda_join_stream(struct varve_device *device, uint64_t *stream_out);
int cuda_pool_trim(struct varve_device *device, uint64_t keep_bytes);
/// Everything goes back, for a close. With the table locked.
void cuda_memory_close(struct cuda_device *cuda);

/* Of struct device_hooks. */
int cuda_obtain(struct device_table *table, struct device_call *call, struct device_range *range);
int cuda_give_back(struct device_table *table, struct device_call *call, struct device_range *range);
int cuda_memory_create(struct device_table *table, uint64_t bytes, uint64_t *value_out);
int cuda_memory_release(struct device_table *table, uint64_t bytes, uint64_t value);
int cuda_map(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value);
int cuda_set_access(struct device_table *table, uint64_t addr, uint64_t bytes, int peer);
int cuda_unmap(struct device_table *table, uint64_t addr, uint64_t bytes);

/* Streams and events: what cuda_device.c puts into struct device_hooks. */

/* Of struct device_hooks. */
int cuda_stream_wait(struct device_table *table, uint64_t stream);
int cuda_event_make(struct device_table *table, uint32_t index);
int cuda_event_record(struct device_table *table, uint64_t event, uint64_t stream);
int cuda_event_query(struct device_table *table, uint64_t event);
int cuda_event_wait(struct device_table *table, uint64_t event);
int cuda_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete);
/// VARVE_ERROR_BUSY for a stream that is being captured. With the table locked.
int cuda_capture_check(struct cuda_device *cuda, uint64_t stream);
/// May the stream be given work? VARVE_ERROR_BUSY for the default one while another one is captured. With
/// the table locked.
int cuda_work_check(struct cuda_device *cuda, uint64_t stream);

#endif
