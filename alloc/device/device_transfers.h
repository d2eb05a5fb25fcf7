/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the caller's own, copies, fills, and host memory for them: what all devices have in their tables of
 * operations, and what the devices' own parts share.
 */
#ifndef VARVE_ALLOC_DEVICE_DEVICE_TRANSFERS_H
#define VARVE_ALLOC_DEVICE_DEVICE_TRANSFERS_H

#include "alloc/device/device_operations.h"

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
