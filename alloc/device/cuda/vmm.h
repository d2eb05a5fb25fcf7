/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Reservations and mappings. Called by cuda.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_CUDA_VMM_H
#define VARVE_ALLOC_DEVICE_CUDA_VMM_H

#include "alloc/device/cuda/cuda.h"

/// Size of the pieces that memory can be mapped in; 0: this GPU has no virtual memory.
uint64_t cuda_vmm_granularity(const struct cuda_device *cuda);
int cuda_vmm_reserve(struct varve_device *device, uint64_t bytes,
                     const struct varve_device_reservation *reservation, uint64_t *addr_out);
int cuda_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
int cuda_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
int cuda_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
int cuda_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes);
int cuda_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes);
int cuda_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes);
/// Everything is unmapped and released, for a close. With the table locked.
void cuda_vmm_close(struct cuda_device *cuda);

#endif
