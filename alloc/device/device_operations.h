/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of struct varve_device_ops, once for all devices: each checks its arguments against the resource
 * table, lets the device do its part (struct device_hooks), and enters what came of it.
 */
#ifndef VARVE_ALLOC_DEVICE_DEVICE_OPERATIONS_H
#define VARVE_ALLOC_DEVICE_DEVICE_OPERATIONS_H

#include "alloc/device/device_resources.h"

#include <pthread.h>

/* Of operations that no script counts or makes fail. */
#define DEVICE_CALL_UNCOUNTED VARVE_DEVICE_CALL_LIMIT

/* `count` elements of `pattern_bytes` bytes, from `addr` on. */
struct device_fill {
    uint64_t addr, pattern, count;
    unsigned pattern_bytes;
};

/* One operation under way: its arguments, as far as it has them. */
struct device_call {
    enum varve_device_call kind;
    enum device_range_kind range; /* what is obtained or given back */
    uint64_t addr, bytes, stream;
    uint64_t id; /* of the handle or event */
    int peer;
    bool gives_back; /* once everything is gone this is no error */
    const struct varve_device_reservation *reservation;
    const struct varve_ipc_handle *ipc;
    const struct varve_copy_2d *copy;
    const struct device_fill *fill;
    const void *argument; /* of an operation that one device alone has */
    void *out;            /* the result, by operation */
    struct {              /* cuda's: what of the calling thread is to be put back */
        int mode;
        bool has_pushed;
    } scope;
};

/* The head of every device here. */
struct device_table {
    struct varve_device device;
    const struct device_hooks *hooks;
    pthread_mutex_t mutex;
    struct device_resources resources; /* guarded by the mutex, like what the devices have beside it */
};

typedef int (*device_body)(struct device_table *table, struct device_call *call);

/* What a device adds, with the table locked; NULL, but for the first four: nothing. Errors are those
 * of the operation. */
struct device_hooks {
    /* Locks; false, with nothing locked: the call is over, with the result in `result_out`. */
    bool (*enter)(struct device_table *table, struct device_call *call, int *result_out);
    int (*leave)(struct device_table *table, struct device_call *call, int result);
    /* Memory or addresses for `range`, which is not entered yet: sets its address. */
    int (*obtain)(struct device_table *table, struct device_call *call, struct device_range *range);
    /* May the device's operations run in this process? */
    bool (*is_inherited)(const struct device_table *table);
    /* The same again; the range is not in the table at that moment. */
    int (*give_back)(struct device_table *table, struct device_call *call, struct device_range *range);
    /* Physical memory for a handle; `value` is the device's own name of it. */
    int (*memory_create)(struct device_table *table, uint64_t bytes, uint64_t *value_out);
    int (*memory_release)(struct device_table *table, uint64_t bytes, uint64_t value);
    int (*map)(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value);
    int (*set_access)(struct device_table *table, uint64_t addr, uint64_t bytes, int peer);
    int (*unmap)(struct device_table *table, uint64_t addr, uint64_t bytes); /* one whole mapping */
    int (*stream_wait)(struct device_table *table, uint64_t stream);
    int (*event_make)(struct device_table *table, uint32_t index);                    /* of a new slot */
    int (*event_record)(struct device_table *table, uint64_t event, uint64_t stream); /* 1: not complete yet */
    int (*event_query)(struct device_table *table, uint64_t event); /* of a recorded one, as the operation */
    int (*event_wait)(struct device_table *table, uint64_t event);  /* likewise */
    int (*stream_wait_event)(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete);
    /* A stream of the driver's; NULL: streams are numbers. */
    int (*stream_make)(struct device_table *table, uint64_t *stream_out);
    int (*stream_end)(struct device_table *table, uint64_t stream);
    /* Is a range that begins in no memory of the table's the device's all the same? As
     * resources_memory_check. NULL: no. */
    int (*foreign_check)(struct device_table *table, uint64_t addr, uint64_t bytes);
    /* Checked, and not empty; one row where it could be two without a gap. */
    int (*copy)(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream);
    int (*fill)(struct device_table *table, const struct device_fill *fill, uint64_t stream);
    /* Host memory for transfers; NULL: plain memory. */
    int (*pin)(struct device_table *table, uint64_t bytes, uint64_t *addr_out);
    int (*unpin)(struct device_table *table, uint64_t addr, uint64_t bytes);
};

/// The device behind the interface, also where only its lock is changed.
static inline struct device_table *device_table_of(const struct varve_device *device)
{
    return (struct device_table *)(uintptr_t)device;
}

/// `body` between enter and leave; returns its result.
int device_run(struct varve_device *device, struct device_call call, device_body body);

int device_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int device_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes);
int device_vmm_reserve(struct varve_device *device, uint64_t bytes, const struct varve_device_reservation *reservation,
                       uint64_t *addr_out);
int device_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
int device_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
int device_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
int device_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes);
int device_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes);
int device_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes);
int device_stream_synchronize(struct varve_device *device, uint64_t stream);
int device_event_create(struct varve_device *device, uint64_t *event_out);
int device_event_destroy(struct varve_device *device, uint64_t event);
int device_event_record(struct varve_device *device, uint64_t event, uint64_t stream);
int device_event_query(struct varve_device *device, uint64_t event);
int device_event_synchronize(struct varve_device *device, uint64_t event);
int device_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int device_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream);
int device_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event);
int device_ipc_close(struct varve_device *device, uint64_t addr);
void device_reason(const struct varve_device *device, struct varve_message *message_out);

/// peer_enable where every other device of the kind is a peer already.
int device_peer_check(struct varve_device *device, int peer);
/// VARVE_ERROR_INVALID, with the reason, for what no device can have as its index.
int device_index_check(struct device_table *table, int index);

/* What every device has in its table of operations. */
#define DEVICE_OPERATIONS                                                                                          \
    .segment_alloc = device_segment_alloc, .segment_free = device_segment_free, .vmm_reserve = device_vmm_reserve, \
    .vmm_create = device_vmm_create, .vmm_map = device_vmm_map, .vmm_set_access = device_vmm_set_access,           \
    .vmm_unmap = device_vmm_unmap, .vmm_release = device_vmm_release, .vmm_address_free = device_vmm_address_free, \
    .stream_synchronize = device_stream_synchronize, .event_create = device_event_create,                          \
    .event_destroy = device_event_destroy, .event_record = device_event_record, .event_query = device_event_query, \
    .event_synchronize = device_event_synchronize, .reason = device_reason

/*
 * Streams of the caller's own, copies, fills, and host memory for them: what all devices have in their tables of
 * operations, and what the devices' own parts share.
 */

int device_stream_create(struct varve_device *device, uint64_t *stream_out);
int device_stream_destroy(struct varve_device *device, uint64_t stream);
int device_copy(struct varve_device *device, uint64_t target_addr, uint64_t source_addr, uint64_t bytes,
                enum varve_copy_direction direction, uint64_t stream);
int device_copy_2d(struct varve_device *device, const struct varve_copy_2d *copy, uint64_t stream);
int device_fill(struct varve_device *device, uint64_t addr, uint64_t pattern, unsigned pattern_bytes, uint64_t count,
                uint64_t stream);
int device_host_alloc(struct varve_device *device, uint64_t bytes, uint64_t *addr_out);
int device_host_free(struct varve_device *device, uint64_t addr);

/* What every device has in its table of operations; stream_wait_event besides. */
#define DEVICE_TRANSFERS                                                                                 \
    .stream_create = device_stream_create, .stream_destroy = device_stream_destroy, .copy = device_copy, \
    .copy_2d = device_copy_2d, .fill = device_fill, .host_alloc = device_host_alloc, .host_free = device_host_free

/// From the first byte of the first row to the last one of the last; of a copy that was checked.
static inline uint64_t device_span(uint64_t row_bytes, uint64_t rows, uint64_t pitch)
{
    return (rows - 1) * pitch + row_bytes;
}

/// The end of a device whose host memory is plain memory: all of it is freed.
void device_pinned_close(struct device_table *table);

#endif
