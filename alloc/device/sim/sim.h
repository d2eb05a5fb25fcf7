/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * What the files of the sim device share. Its lock is recursive, since scripts are called with it held and
 * may ask the device or advance its clock. A call of an operation with a value in enum varve_device_call is
 * framed by sim_enter, which counts it and finds its scripted failure, and sim_leave, which charges its time.
 *
 *   sim.c         opening, events, memory info, what tests ask for
 *   memory.c  segments and virtual memory: capacity, scripted and counted-up bases
 *   pool.c    stream-ordered memory
 *   faults.c  failures at the n-th call; what a call costs on the virtual clock
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_SIM_H
#define VARVE_ALLOC_DEVICE_SIM_SIM_H

#include "alloc/device/resources.h"

#include <pthread.h>

#define SIM_FAULTS 64

/* The calls first … last of `call`, counted from 1, return `error`. */
struct sim_fault {
    enum varve_device_call call;
    uint64_t first, last;
    int error;
};

struct sim_device {
    struct varve_device device;
    pthread_mutex_t mutex; /* guards all that follows */
    struct varve_sim_options options;
    struct device_resources resources;
    uint64_t next_addr; /* where counting up goes on */
    uint64_t clock_ns;
    uint64_t pool_used; /* handed out; resources.pooled is what the pool holds */
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct sim_fault faults[SIM_FAULTS]; /* those that wait, the oldest first */
    size_t fault_count;
};

/// The device behind the interface, also where only its lock is changed.
struct sim_device *sim_of(const struct varve_device *device);

#endif
