/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Stream-ordered memory. Called by cuda.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_CUDA_POOL_H
#define VARVE_ALLOC_DEVICE_CUDA_POOL_H

#include "alloc/device/cuda/cuda.h"

/// Can the GPU and the driver do it at all?
bool cuda_has_pools(const struct cuda_device *cuda);
int cuda_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int cuda_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream);
int cuda_join_stream(struct varve_device *device, uint64_t *stream_out);
int cuda_pool_trim(struct varve_device *device, uint64_t keep_bytes);
/// For a close, after what was out of the pool is back. With the table locked.
void cuda_pool_close(struct cuda_device *cuda);
/// A peer reads and writes what is in the pool. With the table locked.
int cuda_pool_set_access(struct cuda_device *cuda, cuda_ordinal peer);

#endif
