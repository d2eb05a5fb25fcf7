/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the caller's own, copies, fills and pinned host memory: what cuda_device.c puts into its tables. */
#ifndef VARVE_ALLOC_DEVICE_CUDA_TRANSFER_H
#define VARVE_ALLOC_DEVICE_CUDA_TRANSFER_H

#include "alloc/device/cuda_device.h"

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

#endif
