/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unused memory back to the device: garbage collection, release_available_cached_blocks and
 * release_cached_blocks. Each stage is first planned, without a change, and then carried out; forecasts stop
 * after the plan, so that the two can't drift apart.
 */
#ifndef VARVE_ALLOC_CORE_CACHE_RELEASE_H
#define VARVE_ALLOC_CORE_CACHE_RELEASE_H

#include "alloc/core/request_way.h"

/* Blocks that a stage would release, in order, linked by planned_next. */
struct release_plan {
    struct block *first, *last;
    size_t count;
    uint64_t bytes;
};

void plan_add(struct release_plan *plan, struct block *block, uint64_t bytes);
void plan_forget(struct release_plan *plan); /* nothing is released */
/// What each stage would release, added to the plan; blocks that are in a plan already count as gone.
void plan_garbage(struct varve_alloc *alloc, struct release_plan *plan);
bool plan_available(struct varve_alloc *alloc, const struct request *request, struct release_plan *plan);
void plan_cached(struct varve_alloc *alloc, struct release_plan *plan);

struct release_sum release_garbage(struct varve_alloc *alloc);
struct release_sum release_available(struct varve_alloc *alloc, const struct request *request);
int release_cached(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum_out);
/// The same of one private pool, if it has no reference; VARVE_ERROR_BUSY while a capture is underway.
int release_pool(struct varve_alloc *alloc, struct private_pool *pool, struct release_sum *sum_out);
/// Bytes of the garbage collector's threshold; 0: it does not run now.
uint64_t release_garbage_target(const struct varve_alloc *alloc);

#endif
