/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Reservations and mappings. Called by host.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_HOST_VMM_H
#define VARVE_ALLOC_DEVICE_HOST_VMM_H

#include "alloc/device/host/host.h"

int host_vmm_reserve(struct varve_device *device, uint64_t bytes,
                     const struct varve_device_reservation *reservation, uint64_t *addr_out);
int host_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
int host_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
int host_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
int host_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes);
int host_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes);
int host_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes);

#endif
