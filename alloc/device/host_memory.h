/* SPDX-License-Identifier: Apache-2.0 */
/* Segments, reservations and mappings: what host_device.c puts into struct device_hooks. */
#ifndef VARVE_ALLOC_DEVICE_HOST_MEMORY_H
#define VARVE_ALLOC_DEVICE_HOST_MEMORY_H

#include "alloc/device/host_device.h"

int host_obtain(struct device_table *table, struct device_call *call, struct device_range *range);
int host_give_back(struct device_table *table, struct device_call *call, struct device_range *range);
int host_memory_create(struct device_table *table, uint64_t bytes, uint64_t *value_out);
int host_map(struct device_table *table, uint64_t addr, uint64_t bytes, uint64_t value);
int host_set_access(struct device_table *table, uint64_t addr, uint64_t bytes, int peer);
int host_unmap_part(struct device_table *table, uint64_t addr, uint64_t bytes);

#endif
