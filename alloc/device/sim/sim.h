/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * What the files of the sim device share. Its lock is recursive, since scripts are called with it held and
 * may ask the device or advance its clock. A call of an operation with a place in enum varve_device_call is
 * framed by sim_enter, which counts it and finds its scripted failure, and sim_leave, which charges its time.
 *
 *   sim.c         opening, events, memory info, what tests ask for
 *   memory.c  segments and virtual memory: capacity, scripted and counted-up bases
 *   pool.c    stream-ordered memory
 *   faults.c  failures at the n-th call; what a call costs on the virtual clock
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_SIM_H
#define VARVE_ALLOC_DEVICE_SIM_SIM_H

#include "alloc/device/shared.h"

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
    struct device_ledger ledger;
    uint64_t next_addr; /* where counting up goes on */
    uint64_t clock_ns;
    uint64_t pool_used; /* handed out; ledger.pooled is what the pool holds */
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct sim_fault faults[SIM_FAULTS]; /* those that wait, the oldest first */
    size_t fault_count;
};

/// The device behind the interface, also where only its lock is changed.
struct sim_device *sim_of(const struct varve_device *device);

/* ---- memory.c ---- */

int sim_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int sim_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes);
/// Addresses for a segment, a reservation or an allocation of the pool, entered in the books.
int sim_range_take(struct sim_device *sim, enum device_range_kind kind, uint64_t bytes, uint64_t stream,
                   const struct varve_device_place *for_place, uint64_t *addr_out);
int sim_range_give(struct sim_device *sim, enum device_range_kind kind, uint64_t addr, uint64_t bytes);
int sim_vmm_reserve(struct varve_device *device, uint64_t bytes, const struct varve_device_place *place,
                    uint64_t *addr_out);
int sim_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
int sim_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
int sim_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
int sim_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes);
int sim_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes);
int sim_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes);

/* ---- pool.c ---- */

int sim_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int sim_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream);
int sim_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event);
int sim_join_stream(struct varve_device *device, uint64_t *stream_out);
int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes);
int sim_pool_check(const struct sim_device *sim, struct varve_message *message);

/* ---- faults.c ---- */

/// Takes the lock and counts the call; the error that a script wants of it, or 0. Always followed by
/// sim_leave.
int sim_enter(struct sim_device *sim, enum varve_device_call call);
/// Charges the clock if `result` is no error, releases the lock, returns `result`.
int sim_leave(struct sim_device *sim, enum varve_device_call call, uint64_t bytes, int result);
/// The clock goes on by what such a call takes, if calls take time at all.
void sim_charge(struct sim_device *sim, enum varve_device_call call, uint64_t bytes);
/// What a call takes on the device that was measured; 0 for calls of which there is no figure.
uint64_t sim_cost_ns(enum varve_device_call call, uint64_t bytes);

#endif
