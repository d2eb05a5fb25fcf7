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

#include <stddef.h>
#include <stdint.h>

/*
 * The driver's pool of stream-ordered memory, as far as it can be told from outside: what it reserves. Guarded by the
 * device's lock; owns its holes.
 */

struct sim_hole {
    uint64_t begin, end; /* offsets */
};

struct sim_pool {
    struct sim_hole *holes; /* free memory, by offset; no two touch */
    size_t count, capacity;
    uint64_t end; /* of what has ever been reserved; what was trimmed below is not in a hole */
};

/* What a request will get. */
struct sim_pool_place {
    uint64_t offset, bytes;
    uint64_t growth; /* bytes that the pool has to reserve first */
    size_t hole;     /* number of the one that serves, or that the growth begins in; count: none */
};

/// Where `bytes` would go, if the pool grows in multiples of `step`.
struct sim_pool_place sim_pool_find(const struct sim_pool *pool, uint64_t bytes, uint64_t step);
/// Take it; nothing happened in between. VARVE_ERROR_NO_MEMORY (of this process), with nothing changed.
int sim_pool_take(struct sim_pool *pool, const struct sim_pool_place *place);
/// VARVE_ERROR_NO_MEMORY (of this process): the memory is lost to the pool then.
int sim_pool_give_back(struct sim_pool *pool, uint64_t offset, uint64_t bytes);
/// Give up whole steps that are free, the highest first, until `most` bytes have gone; how many have.
uint64_t sim_pool_shrink(struct sim_pool *pool, uint64_t most);
void sim_pool_close(struct sim_pool *pool);

/*
 * Where the CUDA driver puts segments: it matters, since an allocator that has several free blocks of the same size
 * takes the one with the lowest address. Owns its chunks; guarded by the device's lock.
 */

struct sim_chunk;

struct sim_places {
    struct sim_chunk *newest;  /* linked by age */
    struct sim_chunk *highest; /* linked by address */
    uint64_t top;              /* chunks lie below */
};

/// A place of `bytes`, below 2^62. Errors: VARVE_ERROR_NO_MEMORY (of this process; no addresses are left).
int sim_places_take(struct sim_places *places, uint64_t bytes, uint64_t *addr_out);
/// `addr` is one that was taken.
void sim_places_give_back(struct sim_places *places, uint64_t addr);
void sim_places_close(struct sim_places *places);

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

/* Where ranges lie, and stream-ordered memory. Called by the operations of all devices, and by sim_device.c. */

/* Of struct device_hooks. */
int sim_obtain(struct device_table *table, struct device_call *call, struct device_range *range);
int sim_give_back(struct device_table *table, struct device_call *call, struct device_range *range);
int sim_join_stream(struct varve_device *device, uint64_t *stream_out);
int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes);
/// What is out of the pool is what was counted. With the lock held.
int sim_pool_check(const struct sim_device *sim, struct varve_message *message);

/*
 * Failures at the n-th call, and what a call costs on the virtual clock. Called by sim_device.c, which has the
 * table of operations.
 */

/* Of struct device_hooks: the call is counted, and fails if a script wants it; a success takes its time. */
bool sim_enter(struct device_table *table, struct device_call *call, int *result_out);
int sim_leave(struct device_table *table, struct device_call *call, int result);
/// The clock goes on by what such a call takes, if calls take time at all.
void sim_charge(struct sim_device *sim, enum varve_device_call call, uint64_t bytes);
/// What a call takes on the device that was measured; 0 for calls of which there is no figure.
uint64_t sim_cost_ns(enum varve_device_call call, uint64_t bytes);

#endif
