/* SPDX-License-Identifier: Apache-2.0 */
/* A block with memory is either free, and then in its pool's index, or in use, and then in the map. */
#include "alloc/core/allocator_emit.h"

struct block *walk_next(struct varve_alloc *alloc, struct block_walk *walk)
{
    if (walk->block != NULL) {
        walk->block = free_index_following(&walk->pool->index, walk->block);
    }
    while (walk->block == NULL && !walk->has_passed_free) {
        walk->pool = pool_each(alloc, walk->pool);
        walk->has_passed_free = walk->pool == NULL;
        walk->block = walk->pool != NULL ? free_index_first(&walk->pool->index) : NULL;
    }
    return walk->block != NULL ? walk->block : block_map_each(&alloc->map, &walk->position);
}
