/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the CUDA driver puts segments: it matters, since an allocator that has several free blocks of the same size
 * takes the one with the lowest address. Owns its chunks; guarded by the device's lock.
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_PLACES_H
#define VARVE_ALLOC_DEVICE_SIM_PLACES_H

#include <stdint.h>

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

#endif
