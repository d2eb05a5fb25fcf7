/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All pools: private ones, for graph captures and memory pools, come and go (beginAllocateToPool,
 * endAllocateToPool, releasePool); streams get their bins in a pool, and their numbers in records.
 */
#ifndef VARVE_ALLOC_CORE_POOL_TABLE_H
#define VARVE_ALLOC_CORE_POOL_TABLE_H

#include "alloc/alloc.h"
#include "alloc/core/allocator_state.h"
#include "alloc/index/block_pool.h"

struct private_pool {
    struct private_pool *next; /* by id */
    struct varve_pool_id id;
    struct pool large, small;
    uint64_t segment_count;             /* ordinary segments; expandable ones name their pool themselves */
    uint32_t use_count;                 /* 0: empty_cache may release it */
    uint32_t request_count;             /* requests on their way to it, that others may interrupt */
    struct private_pool *next_freeable; /* in the order in which the counts reached 0 */
    bool use_on_oom;
};

void pool_init(struct varve_alloc *alloc, struct pool *pool, struct private_pool *owner, bool is_small);
struct private_pool *private_pool_find(const struct varve_alloc *alloc, struct varve_pool_id id);
/// The pool of that id, made without a reference if it is new; NULL: no memory.
struct private_pool *private_pool_make(struct varve_alloc *alloc, struct varve_pool_id id);
void private_pools_erase_empty(struct varve_alloc *alloc);
void private_pools_close(struct varve_alloc *alloc);
/// The pool of that kind that a request of `stream` goes to, while there are captures.
struct pool *pool_of_captures(struct varve_alloc *alloc, uint64_t stream, bool is_small);
/// The bins of a stream in a pool, numbered for the records; NULL: no memory.
struct stream_bins *pool_bins(struct varve_alloc *alloc, struct pool *pool, uint64_t stream);
/// Every pool: NULL gives the default large one; NULL at the end.
struct pool *pool_each(struct varve_alloc *alloc, const struct pool *pool);

/*
 * The walk over every block that has memory, once, for everything that looks at the whole heap: free blocks
 * by pool, stream, size and address, then those in use in no order. The heap must not change meanwhile.
 */

/* Begins as {0}. */
struct block_walk {
    struct pool *pool;   /* of `block` */
    struct block *block; /* the last free one */
    bool has_passed_free;
    uint64_t position; /* in the map */
};

/// The next block; NULL at the end.
struct block *walk_next(struct varve_alloc *alloc, struct block_walk *walk);

/* What the device says of a failure, in the text of the request's error. Used by whatever calls the device. */

/// Set `message` to "`what`: " and what the device says of its last failure; returns `error`.
int device_message(const struct varve_alloc *alloc, int error, struct varve_message *message, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

#endif
