/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of the device's own pool: each is a segment of its own that comes with a request and goes with its
 * free. Nothing waits for streams here. A free is one more step of the block's stream; where other streams
 * used the block, its stream is first made to wait for them, so that whoever gets the memory next comes after
 * all of them.
 *
 * What can't be given back now (a stream is being captured, the device fails) is kept with the blocks that
 * wait for the end of a capture and tried again by later requests. A stream must live until the memory that
 * it freed has been trimmed, as with all memory of that stream.
 */
#include "alloc/allocator_internal.h"

static void forget(struct varve_alloc *alloc, struct block *block)
{
    bool is_small = block_pool(block)->is_small;

    emit(alloc, (struct emission){.kind = VARVE_KIND_FREE_COMPLETED,
                                  .home = block->home,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = block->segment_id,
                                  .id = block->id});
    emit(alloc, (struct emission){.kind = VARVE_KIND_SEGMENT_FREE,
                                  .cause = VARVE_CAUSE_FREE,
                                  .home = block->home,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .arg = block->segment_id});
    block_map_remove(&alloc->map, block);
    stat_complete(&alloc->stats, is_small, block->requested);
    segment_uncount(alloc, block);
    block_slab_give(&alloc->slab, block);
}

int ordered_give(struct varve_alloc *alloc, struct block *block)
{
    uint64_t stream = index_stream_handle(block->home);
    int error = VARVE_OK;

    assert(!block->is_allocated && block->is_ordered && !block_is_split(block));
    while (error == VARVE_OK && block->uses != NULL) {
        error = stream_use_order(alloc, stream, block->uses->stream);
        if (error == VARVE_OK) {
            stream_use_drop_first(alloc, block);
        }
    }
    if (error == VARVE_OK) {
        error = alloc->device->ops->free_async(alloc->device, block->addr, block->size, stream);
    }
    if (error == VARVE_OK) {
        index_stream_set_freed(block->home, true);
        forget(alloc, block);
    }
    return error;
}

static int streams_wait(struct varve_alloc *alloc, const struct pool *pool)
{
    int error = VARVE_OK;

    for (uint32_t i = 0; error == VARVE_OK && i < pool->index.stream_count; i++) {
        struct index_stream *home = pool->index.streams[i];

        if (index_stream_has_freed(home)) {
            error = alloc->device->ops->stream_synchronize(alloc->device, index_stream_handle(home));
            if (error == VARVE_ERROR_BUSY) {
                error = VARVE_OK; /* captured: the pool keeps what it may still use */
            } else if (error == VARVE_OK) {
                index_stream_set_freed(home, false);
            }
        }
    }
    return error;
}

int ordered_trim(struct varve_alloc *alloc, bool waits)
{
    int error = VARVE_OK;

    if (!alloc->policy->is_ordered) {
        return error;
    }
    if (waits) {
        error = streams_wait(alloc, &alloc->large);
    }
    if (waits && error == VARVE_OK) {
        error = streams_wait(alloc, &alloc->small);
    }
    return error != VARVE_OK ? error : alloc->device->ops->pool_trim(alloc->device, 0);
}
