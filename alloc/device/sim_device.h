/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the sim device share. Its lock is recursive, since scripts are called with it held and
 * may ask the device or advance its clock.
 *
 *   sim_device.c      opening, events, memory info, what tests ask for
 *   sim_memory.c   scripted and counted-up bases; stream-ordered memory
 *   sim_pool.c     what the driver's pool reserves
 *   sim_places.c   bases where the CUDA driver would have them
 *   sim_faults.c   failures at the n-th call; what a call costs on the virtual clock
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_DEVICE_H
#define VARVE_ALLOC_DEVICE_SIM_DEVICE_H

#include "alloc/device/device_operations.h"
#include "alloc/device/sim_places.h"
#include "alloc/device/sim_pool.h"

#define SIM_FAULTS 64

/* The calls first … last of `call`, counted from 1, return `error`. */
struct sim_fault {
    enum varve_device_call call;
    uint64_t first, last;
    int error;
};

struct sim_device {
    struct device_table table;
    struct varve_sim_options options;
    uint64_t next_addr; /* where counting up goes on */
    struct sim_places places;
    struct sim_pool pool;
    uint64_t clock_ns;
    uint64_t pool_used; /* handed out; resources.pooled is what the pool holds */
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct sim_fault faults[SIM_FAULTS]; /* those that wait, the oldest first */
    size_t fault_count;
};

static inline struct sim_device *sim_of(const struct varve_device *device)
{
    return (struct sim_device *)(uintptr_t)device;
}

#endif
