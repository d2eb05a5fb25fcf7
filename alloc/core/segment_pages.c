/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory from the device and back: alloc_block and release_block. The limit is tested with the size of a
 * whole segment even where an expandable one would map less, as PyTorch does.
 */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"

#include <inttypes.h>

/* The device may be slow: with release_lock_on_cudamalloc others go on meanwhile. */
static int device_alloc(struct varve_alloc *alloc, const struct request *request, uint64_t *addr_out)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    bool opens = alloc->config.release_lock_on_cudamalloc && alloc->lock.depth == 0;
    uint64_t stream = request->wanted.bins->stream;
    if (opens) {
        alloc_unlock(alloc);
    }
    int error = ops->segment_alloc(alloc->device, request->segment_bytes, stream, addr_out);
    if (opens) {
        alloc_lock(alloc);
        if (request_reserve(alloc) != VARVE_OK) {
            if (error == VARVE_OK) {
                ops->segment_free(alloc->device, *addr_out, request->segment_bytes);
            }
            return VARVE_ERROR_FULL;
        }
    }
    return error;
}

static void pages_count_segment(struct varve_alloc *alloc, const struct request *request)
{
    bool is_small = request->pool->is_small;
    if (request->pool->owner != NULL) {
        request->pool->owner->segment_count++;
    }
    alloc->reserved_bytes += request->segment_bytes;
    stat_change(alloc->counters.others.segment, is_small, 1);
    stat_change(alloc->counters.others.reserved_bytes, is_small, (int64_t)request->segment_bytes);
    if (request->segment_bytes >= alloc->config.max_split_size) {
        stat_increase(&alloc->counters.others.oversize_segments, 1);
    }
    alloc->counters.others.num_device_alloc++;
}

bool segment_is_within_limit(const struct varve_alloc *alloc, uint64_t bytes)
{
    return alloc->limit == 0 || (bytes <= alloc->limit && alloc->reserved_bytes <= alloc->limit - bytes);
}

struct block *segment_begin(struct varve_alloc *alloc, const struct request *request, uint64_t addr)
{
    struct block *block = block_slab_acquire(&alloc->slab);
    block->addr = addr;
    block->size = request->segment_bytes;
    block->bins = request->wanted.bins;
    block->is_mapped = true;
    block->segment_id = ++alloc->segment_id;
    pages_count_segment(alloc, request);
    emit_segment(alloc, VARVE_KIND_SEGMENT_ALLOC, request->source, block, block->size, request->wanted.rounded);
    return block;
}

int segment_refused(struct varve_alloc *alloc, const struct request *request, int error)
{
    return error == VARVE_ERROR_NO_MEMORY
               ? error
               : device_message(alloc, error, request->message, "the device failed to allocate %" PRIu64 " bytes",
                                request->segment_bytes);
}

int segment_alloc(struct varve_alloc *alloc, struct request *request, bool is_retry, struct block **block_out)
{
    alloc->counters.others.num_alloc_retries += is_retry;
    if (!segment_is_within_limit(alloc, request->segment_bytes)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (request->wanted.is_expandable) {
        return expandable_alloc(alloc, request, block_out);
    }
    uint64_t addr = 0;
    int error = device_alloc(alloc, request, &addr);
    if (error != VARVE_OK) {
        return segment_refused(alloc, request, error);
    }
    *block_out = segment_begin(alloc, request, addr);
    return VARVE_OK;
}

void segment_uncount(struct varve_alloc *alloc, const struct block *block)
{
    const struct pool *pool = block_pool(block);
    alloc->reserved_bytes -= block->size;
    if (pool->owner != NULL) {
        assert(pool->owner->segment_count > 0);
        pool->owner->segment_count--;
    }
    stat_change(alloc->counters.others.segment, pool->is_small, -1);
    stat_change(alloc->counters.others.reserved_bytes, pool->is_small, -(int64_t)block->size);
    if (block->size >= alloc->config.max_split_size) {
        stat_decrease(&alloc->counters.others.oversize_segments, 1);
    }
    alloc->counters.others.num_device_free++;
}

/* The record comes before the device can give the address to somebody else. */
int segment_release(struct varve_alloc *alloc, struct block *block, enum varve_cause cause)
{
    struct pool *pool = block_pool(block);
    assert(block->is_free && !block_is_split(block) && block->expandable == NULL);
    emit_segment(alloc, VARVE_KIND_SEGMENT_FREE, cause, block, block->size, 0);
    int error = alloc->device->ops->segment_free(alloc->device, block->addr, block->size);
    if (error != VARVE_OK) {
        block->segment_id = ++alloc->segment_id;
        emit_segment(alloc, VARVE_KIND_SEGMENT_ALLOC, VARVE_CAUSE_NEW_SEGMENT, block, block->size, 0);
        return error;
    }
    segment_uncount(alloc, block);
    free_index_remove(&pool->index, block);
    if (block->is_in_map) {
        block_map_remove(&alloc->map, block);
    }
    block_slab_release(&alloc->slab, block);
    return VARVE_OK;
}
