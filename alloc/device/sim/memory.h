/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Segments and virtual memory: capacity, and where ranges lie. Called by sim.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_MEMORY_H
#define VARVE_ALLOC_DEVICE_SIM_MEMORY_H

#include "alloc/device/sim/sim.h"

int sim_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int sim_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes);
/// Addresses for a segment, a reservation or an allocation of the pool, entered in the table.
int sim_range_alloc(struct sim_device *sim, enum device_range_kind kind, uint64_t bytes, uint64_t stream,
                    const struct varve_device_reservation *reservation, uint64_t *addr_out);
int sim_range_free(struct sim_device *sim, enum device_range_kind kind, uint64_t addr, uint64_t bytes);
int sim_vmm_reserve(struct varve_device *device, uint64_t bytes,
                    const struct varve_device_reservation *reservation, uint64_t *addr_out);
int sim_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
int sim_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
int sim_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
int sim_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes);
int sim_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes);
int sim_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes);

#endif
