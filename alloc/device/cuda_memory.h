/* SPDX-License-Identifier: Apache-2.0 */
/* Segments, reservations, mappings and stream-ordered memory: what cuda_device.c puts into its tables. */
#ifndef VARVE_ALLOC_DEVICE_CUDA_MEMORY_H
#define VARVE_ALLOC_DEVICE_CUDA_MEMORY_H

#include "alloc/device/cuda_device.h"

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

#endif
