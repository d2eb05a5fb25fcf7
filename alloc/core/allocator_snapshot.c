/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and blocks as they are now, by address. A segment begins at a block without a neighbour before it
 * that has memory; an expandable segment gives one entry for each contiguous range with memory.
 */
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_emit.h"
#include "base/grown_array.h"

#include <stdlib.h>

struct heads {
    const struct block **items;
    size_t count, capacity;
    size_t blocks; /* of all segments that begin here */
};

static int heads_add(struct heads *heads, const struct block *block)
{
    if (!block_begins_range(block)) {
        return VARVE_OK;
    }
    if (!ARRAY_GROW(heads->items, heads->capacity, heads->count + 1)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    heads->items[heads->count++] = block;
    for (const struct block *part = block; part != NULL && part->is_mapped; part = part->next) {
        heads->blocks++;
    }
    return VARVE_OK;
}

static int compare_heads(const void *a, const void *b)
{
    const struct block *x = *(const struct block *const *)a, *y = *(const struct block *const *)b;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static int heads_gather(struct varve_alloc *alloc, struct heads *heads)
{
    struct block_walk walk = {0};
    const struct block *block;
    int error = VARVE_OK;
    while (error == VARVE_OK && (block = walk_next(alloc, &walk)) != NULL) {
        error = heads_add(heads, block);
    }
    if (heads->count > 0) {
        qsort(heads->items, heads->count, sizeof(heads->items[0]), compare_heads);
    }
    return error;
}

static enum varve_block_state allocator_snapshot_state_of(const struct block *block)
{
    if (block->is_allocated) {
        return VARVE_BLOCK_ACTIVE_ALLOCATED;
    }
    return block->is_free ? VARVE_BLOCK_INACTIVE : VARVE_BLOCK_ACTIVE_PENDING_FREE;
}

static void allocator_snapshot_describe(const struct block *head, struct varve_segment_info *segment,
                                        struct varve_alloc_snapshot *snapshot)
{
    const struct pool *pool = block_pool(head);
    *segment = (struct varve_segment_info){
        .addr = head->addr,
        .stream = head->bins->stream,
        .segment_id = head->segment_id,
        .is_small = pool->is_small,
        .is_expandable = head->expandable != NULL,
        .first_block = snapshot->block_count,
    };
    if (pool->owner != NULL) {
        segment->pool = pool->owner->id;
    }
    for (const struct block *block = head; block != NULL && block->is_mapped; block = block->next) {
        enum varve_block_state state = allocator_snapshot_state_of(block);
        snapshot->blocks[snapshot->block_count++] = (struct varve_block_info){
            .addr = block->addr,
            .bytes = block->size,
            .requested = block->requested,
            .allocation_id = block->id,
            .state = state,
        };
        segment->bytes += block->size;
        segment->block_count++;
        segment->allocated_bytes += state == VARVE_BLOCK_ACTIVE_ALLOCATED ? block->size : 0;
        segment->active_bytes += state != VARVE_BLOCK_INACTIVE ? block->size : 0;
        segment->requested_bytes += state != VARVE_BLOCK_INACTIVE ? block->requested : 0;
    }
}

int varve_alloc_snapshot(struct varve_alloc *alloc, struct varve_alloc_snapshot *snapshot_out)
{
    *snapshot_out = (struct varve_alloc_snapshot){0};
    alloc_lock(alloc);
    struct heads heads = {0};
    int error = heads_gather(alloc, &heads);
    if (error == VARVE_OK) {
        snapshot_out->segments = calloc(heads.count + 1, sizeof(snapshot_out->segments[0]));
        snapshot_out->blocks = calloc(heads.blocks + 1, sizeof(snapshot_out->blocks[0]));
        if (snapshot_out->segments == NULL || snapshot_out->blocks == NULL) {
            error = VARVE_ERROR_NO_MEMORY;
        }
    }
    for (size_t i = 0; error == VARVE_OK && i < heads.count; i++) {
        allocator_snapshot_describe(heads.items[i], &snapshot_out->segments[snapshot_out->segment_count++],
                                    snapshot_out);
    }
    alloc_unlock(alloc);
    free(heads.items);
    if (error != VARVE_OK) {
        varve_alloc_snapshot_free(snapshot_out);
    }
    return error;
}

void varve_alloc_snapshot_free(struct varve_alloc_snapshot *snapshot)
{
    free(snapshot->segments);
    free(snapshot->blocks);
    *snapshot = (struct varve_alloc_snapshot){0};
}
