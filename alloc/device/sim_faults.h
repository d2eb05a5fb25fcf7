/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures at the n-th call, and what a call costs on the virtual clock. Called by sim_device.c, which has the
 * table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_FAULTS_H
#define VARVE_ALLOC_DEVICE_SIM_FAULTS_H

#include "alloc/device/sim_device.h"

/* Of struct device_hooks: the call is counted, and fails if a script wants it; a success takes its time. */
bool sim_enter(struct device_table *table, struct device_call *call, int *result_out);
int sim_leave(struct device_table *table, struct device_call *call, int result);
/// The clock goes on by what such a call takes, if calls take time at all.
void sim_charge(struct sim_device *sim, enum varve_device_call call, uint64_t bytes);
/// What a call takes on the device that was measured; 0 for calls of which there is no figure.
uint64_t sim_cost_ns(enum varve_device_call call, uint64_t bytes);
/// What a copy in that direction and a fill take, of all their bytes.
uint64_t sim_copy_ns(enum varve_copy_direction direction, uint64_t bytes);
uint64_t sim_fill_ns(uint64_t bytes);

#endif
