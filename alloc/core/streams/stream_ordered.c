/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing waits for streams here. A free is enqueued on the block's stream, behind its last use. Where other
 * streams used the block, it is enqueued on the device's own stream, which first waits for all work that those
 * streams have by now: no stream of the program is held up by a free. A request may be: a pool that can't grow
 * lets a stream wait for memory whose free is enqueued.
 *
 * What can't be freed now (a stream is being captured, the device fails) is kept in the deferred list and tried
 * again by later requests. A stream on which memory was freed must live until the next trim.
 */
#include "alloc/core/streams/stream_ordered.h"
#include "alloc/core/segments/segment.h"
#include "alloc/core/state/allocator.h"
#include "alloc/core/state/counters.h"
#include "alloc/core/state/emit.h"
#include "alloc/core/streams/stream_use.h"

static void forget(struct varve_alloc *alloc, struct block *block)
{
    bool is_small = block_pool(block)->is_small;

    emit_free(alloc, VARVE_KIND_FREE_COMPLETED, block);
    emit_segment(alloc, VARVE_KIND_SEGMENT_FREE, VARVE_CAUSE_FREE, block, block->size, 0);
    block_map_remove(&alloc->map, block);
    stat_complete(&alloc->counters, is_small, block->requested);
    segment_uncount(alloc, block);
    block_slab_release(&alloc->slab, block);
}

/* The stream on which the block is to be freed, behind all that use it. What has been waited for is not
 * waited for again after an error: more work of those streams is none with this block. */
static int users_join(struct varve_alloc *alloc, struct block *block, uint64_t *stream_out)
{
    uint64_t own = block->bins->stream;
    int error;

    if (block->uses == NULL && !block->is_joining) {
        *stream_out = own;
        return VARVE_OK;
    }
    error = alloc->device->ops->join_stream(alloc->device, stream_out);
    if (error == VARVE_OK && !block->is_joining) {
        error = stream_use_order(alloc, *stream_out, own);
        block->is_joining = error == VARVE_OK;
    }
    while (error == VARVE_OK && block->uses != NULL) {
        error = stream_use_order(alloc, *stream_out, block->uses->stream);
        if (error == VARVE_OK) {
            stream_use_drop_first(alloc, block);
        }
    }
    return error;
}

int stream_ordered_free(struct varve_alloc *alloc, struct block *block)
{
    uint64_t stream = 0;
    int error = users_join(alloc, block, &stream);

    assert(!block->is_allocated && block->stream_ordered && !block_is_split(block));
    if (error == VARVE_OK) {
        error = alloc->device->ops->free_async(alloc->device, block->addr, block->size, stream);
    }
    if (error == VARVE_OK) {
        if (block->is_joining) {
            alloc->has_joined = true;
        } else {
            block->bins->has_freed = true;
        }
        forget(alloc, block);
    }
    return error;
}

void stream_ordered_abandon(struct varve_alloc *alloc, struct block *block)
{
    uint64_t own = block->bins->stream, stream = own;

    if (users_join(alloc, block, &stream) != VARVE_OK && !block->is_joining) {
        stream = own;
    }
    alloc->device->ops->free_async(alloc->device, block->addr, block->size, stream);
}

static int joined_wait(struct varve_alloc *alloc)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    uint64_t stream = 0;
    int error = VARVE_OK;

    if (alloc->has_joined) {
        error = ops->join_stream(alloc->device, &stream);
        error = error == VARVE_OK ? ops->stream_synchronize(alloc->device, stream) : error;
        alloc->has_joined = error != VARVE_OK;
    }
    return error;
}

static int streams_wait(struct varve_alloc *alloc, const struct pool *pool)
{
    int error = VARVE_OK;

    for (uint32_t i = 0; error == VARVE_OK && i < pool->index.stream_count; i++) {
        struct stream_bins *bins = pool->index.streams[i];

        if (bins->has_freed) {
            error = alloc->device->ops->stream_synchronize(alloc->device, bins->stream);
            if (error == VARVE_ERROR_BUSY) {
                error = VARVE_OK; /* captured: the pool keeps what it may still use */
            } else if (error == VARVE_OK) {
                bins->has_freed = false;
            }
        }
    }
    return error;
}

int stream_ordered_trim(struct varve_alloc *alloc, bool waits)
{
    int error = VARVE_OK;

    if (!alloc->policy->stream_ordered) {
        return error;
    }
    if (waits) {
        error = streams_wait(alloc, &alloc->large);
    }
    if (waits && error == VARVE_OK) {
        error = streams_wait(alloc, &alloc->small);
    }
    if (waits && error == VARVE_OK) {
        error = joined_wait(alloc);
    }
    return error != VARVE_OK ? error : alloc->device->ops->pool_trim(alloc->device, 0);
}
