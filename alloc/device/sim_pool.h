/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's pool of stream-ordered memory, as far as it can be told from outside: what it reserves. Guarded by the
 * device's lock; owns its holes.
 */
#ifndef VARVE_ALLOC_DEVICE_SIM_POOL_H
#define VARVE_ALLOC_DEVICE_SIM_POOL_H

#include <stddef.h>
#include <stdint.h>

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
uint64_t sim_pool_bytes(uint64_t bytes); /* that a request takes */
void sim_pool_close(struct sim_pool *pool);

#endif
