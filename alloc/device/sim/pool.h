/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Stream-ordered memory: an ideal pool, which never fragments. Called by sim.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_POOL_H
#define VARVE_ALLOC_DEVICE_SIM_POOL_H

#include "alloc/device/sim/sim.h"

int sim_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int sim_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream);
int sim_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event);
int sim_join_stream(struct varve_device *device, uint64_t *stream_out);
int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes);
int sim_pool_check(const struct sim_device *sim, struct varve_message *message);

#endif
