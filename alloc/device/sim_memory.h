/* SPDX-License-Identifier: Apache-2.0 */
/* Where ranges lie, and stream-ordered memory. Called by the operations of all devices, and by sim_device.c. */
#ifndef VARVE_ALLOC_DEVICE_SIM_MEMORY_H
#define VARVE_ALLOC_DEVICE_SIM_MEMORY_H

#include "alloc/device/sim_device.h"

/* Of struct device_hooks. */
int sim_obtain(struct device_table *table, struct device_call *call, struct device_range *range);
int sim_give_back(struct device_table *table, struct device_call *call, struct device_range *range);
int sim_join_stream(struct varve_device *device, uint64_t *stream_out);
int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes);
/// What is out of the pool is what was counted. With the lock held.
int sim_pool_check(const struct sim_device *sim, struct varve_message *message);

#endif
