/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over every block that has memory, once, for everything that looks at the whole heap: free blocks
 * by pool, stream, size and address, then those in use in no order. The heap must not change meanwhile.
 */
#ifndef VARVE_ALLOC_CORE_BLOCK_WALK_H
#define VARVE_ALLOC_CORE_BLOCK_WALK_H

#include "alloc/core/allocator_state.h"

/* Begins as {0}. */
struct block_walk {
    struct pool *pool;   /* of `block` */
    struct block *block; /* the last free one */
    bool has_passed_free;
    uint64_t position; /* in the map */
};

/// The next block; NULL at the end.
struct block *walk_next(struct varve_alloc *alloc, struct block_walk *walk);

#endif
