/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that begins in a given state: for replays of traces that began late. Segments come from the
 * device like any others, then they are cut into the blocks that the snapshot lists. Expandable segments get
 * one reservation for each pool and stream, at the lowest of their ranges; what lies between the ranges is
 * address space without memory.
 */
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/request_way.h"
#include "alloc/core/block_links.h"
#include "alloc/policy/rounding.h"

#include <assert.h>
#include <inttypes.h>

#define TOTAL_LIMIT (UINT64_C(1) << 62) /* sums of a hostile state must not overflow */

static int allocator_restore_refuse(struct varve_message *message, const char *what, uint64_t addr)
{
    return varve_message_set(message, VARVE_ERROR_INVALID, "cannot begin with this state: %s at %#" PRIx64, what, addr);
}

static int check_blocks(const struct varve_alloc_snapshot *snapshot, const struct varve_segment_info *segment,
                        struct varve_message *message)
{
    uint64_t addr = segment->addr;
    if (segment->bytes > ROUNDING_REQUEST_LIMIT || segment->addr > UINT64_MAX - segment->bytes) {
        return allocator_restore_refuse(message, "a segment of an impossible size", segment->addr);
    }
    if (segment->bytes == 0 || segment->block_count == 0 || segment->first_block > snapshot->block_count ||
        segment->block_count > snapshot->block_count - segment->first_block) {
        return allocator_restore_refuse(message, "a segment without blocks", segment->addr);
    }
    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *block = &snapshot->blocks[segment->first_block + i];
        if (block->addr != addr || block->bytes == 0 || block->bytes % ROUNDING_MIN_BLOCK != 0) {
            return allocator_restore_refuse(message, "blocks do not tile their segment", block->addr);
        }
        if (block->state != VARVE_BLOCK_INACTIVE && block->requested > block->bytes) {
            return allocator_restore_refuse(message, "a block smaller than its request", block->addr);
        }
        addr += block->bytes;
    }
    return addr == segment->addr + segment->bytes
               ? VARVE_OK
               : allocator_restore_refuse(message, "blocks do not fill their segment", addr);
}

static int request_of(struct varve_alloc *alloc, const struct varve_segment_info *segment,
                      struct varve_message *message, struct request *request)
{
    struct pool *pool = segment->is_small ? &alloc->small : &alloc->large;
    if (segment->pool.capture != 0 || segment->pool.user != 0) {
        struct private_pool *private_pool = private_pool_make(alloc, segment->pool);
        if (private_pool == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        private_pool->use_count += private_pool->use_count == 0;
        pool = segment->is_small ? &private_pool->small : &private_pool->large;
    }
    *request = (struct request){.bytes = segment->bytes,
                                .segment_bytes = segment->bytes,
                                .wanted = {.rounded = segment->bytes, .bins = pool_bins(alloc, pool, segment->stream)},
                                .pool = pool,
                                .source = VARVE_CAUSE_INHERITED,
                                .message = message};
    return request->wanted.bins != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

/* The unmapped space of the pool and stream that covers the range, cut so that it begins there. */
static int allocator_restore_find_space(struct varve_alloc *alloc, const struct request *request,
                                        const struct varve_segment_info *segment, struct block **block_out)
{
    struct pool *pool = request->pool;
    struct block *space = pool->unmapped;
    while (space != NULL && (space->bins != request->wanted.bins || segment->addr < space->addr ||
                             segment->addr + segment->bytes > space->addr + space->size)) {
        space = space->right;
    }
    if (space == NULL) {
        int error = expandable_reserve(alloc, request, expandable_unit(alloc, request->pool), &space);
        if (error != VARVE_OK) {
            return error;
        }
    }
    if (segment->addr < space->addr || segment->addr + segment->bytes > space->addr + space->size ||
        (segment->addr - space->addr) % space->expandable->unit != 0 || segment->bytes % space->expandable->unit != 0) {
        return allocator_restore_refuse(request->message, "a range that does not fit its reservation", segment->addr);
    }
    if (segment->addr > space->addr) {
        if (block_slab_reserve(&alloc->slab, 1) != VARVE_OK) {
            return VARVE_ERROR_FULL;
        }
        pool_unmapped_remove(pool, space);
        struct block *front = block_cut_front(&alloc->slab, space, segment->addr - space->addr);
        space->addr += front->size;
        space->size -= front->size;
        pool_unmapped_insert(pool, front);
        pool_unmapped_insert(pool, space);
    }
    *block_out = space;
    return VARVE_OK;
}

static int alloc_segment(struct varve_alloc *alloc, struct request *request, const struct varve_segment_info *segment,
                         struct block **block_out)
{
    uint64_t limit = alloc->limit;
    int error;
    if (segment->is_expandable) {
        error = allocator_restore_find_space(alloc, request, segment, block_out);
        if (error == VARVE_OK) {
            assert(*block_out != NULL);
            error = expandable_map(alloc, *block_out, segment->bytes, request->message);
        }
        if (error == VARVE_OK) {
            free_index_remove(&request->pool->index, *block_out);
        }
    } else {
        alloc_lock(alloc); /* twice, so that it stays closed whatever the configuration says */
        alloc->limit = 0;  /* the state was reached in spite of the limit */
        error = segment_alloc(alloc, request, false, block_out);
        alloc->limit = limit;
        alloc_unlock(alloc);
    }
    assert(error != VARVE_OK || *block_out != NULL);
    if (error == VARVE_OK && (*block_out)->addr != segment->addr) {
        if (!segment->is_expandable) {
            block_insert_free(*block_out); /* found, and released, when the allocator closes */
        }
        error = allocator_restore_refuse(request->message, "the device gave another address than that of the segment",
                                         segment->addr);
    }
    return error;
}

/* Cut the block, which is the rest of the segment, after its first `bytes`. */
static struct block *allocator_restore_cut(struct varve_alloc *alloc, struct block *block, uint64_t bytes)
{
    if (bytes == block->size) {
        return block;
    }
    struct block *front = block_cut_front(&alloc->slab, block, bytes);
    block->addr += bytes;
    block->size -= bytes;
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_SPLIT,
                                  .cause = VARVE_CAUSE_INHERITED,
                                  .bins = front->bins,
                                  .addr = front->addr,
                                  .size = front->size,
                                  .requested = block->size,
                                  .arg = front->segment_id});
    return front;
}

static void restore_used(struct varve_alloc *alloc, struct block *block)
{
    bool is_small = block_pool(block)->is_small;
    uint64_t rounded = POLICY_CALL(alloc->policy, block_size, &alloc->config, block->requested);
    block->is_allocated = true;
    block->id = ++alloc->allocation_id;
    block_map_put(&alloc->map, block);
    stat_allocate(&alloc->counters, is_small, block->size, block->requested);
    if (block->size >= alloc->config.max_split_size) {
        stat_increase(&alloc->counters.others.oversize_allocations, 1);
    }
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_ALLOC,
                                  .cause = VARVE_CAUSE_INHERITED,
                                  .bins = block->bins,
                                  .addr = block->addr,
                                  .size = block->size,
                                  .requested = block->requested,
                                  .arg = arg_of_alloc(block->segment_id, rounded),
                                  .id = block->id});
}

static void restore_free(struct varve_alloc *alloc, struct block *block)
{
    bool is_small = block_pool(block)->is_small;
    block_insert_free(block);
    if (block_is_split(block) && block->expandable == NULL) {
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT, is_small, 1);
        hot_change(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, is_small, (int64_t)block->size);
    }
}

static int restore_blocks(struct varve_alloc *alloc, const struct varve_alloc_snapshot *snapshot,
                          const struct varve_segment_info *segment, struct block *rest, struct varve_message *message)
{
    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *info = &snapshot->blocks[segment->first_block + i];
        uint64_t bytes = info->bytes;
        /* neighbours that are both free are one block here */
        while (info->state == VARVE_BLOCK_INACTIVE && i + 1 < segment->block_count &&
               snapshot->blocks[segment->first_block + i + 1].state == VARVE_BLOCK_INACTIVE) {
            bytes += snapshot->blocks[segment->first_block + ++i].bytes;
        }
        struct block *block = allocator_restore_cut(alloc, rest, bytes);
        block->requested = info->requested;
        if (info->state == VARVE_BLOCK_INACTIVE) {
            restore_free(alloc, block);
        } else if (block_map_reserve(&alloc->map) != VARVE_OK) {
            restore_free(alloc, block); /* so that the segment can be found, whatever its other parts are */
            return VARVE_ERROR_FULL;
        } else if (block_map_find(&alloc->map, block->addr) != NULL) {
            return allocator_restore_refuse(message, "a second block", block->addr);
        } else {
            restore_used(alloc, block);
        }
    }
    return VARVE_OK;
}

int varve_alloc_restore(struct varve_alloc *alloc, const struct varve_alloc_snapshot *snapshot,
                        struct varve_message *message)
{
    if (alloc->policy->backend != NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "policy %s cannot begin with given blocks",
                                 alloc->policy->name);
    }
    alloc_lock(alloc);
    int error = VARVE_OK;
    if (alloc->reserved_bytes != 0 || alloc->expandables != NULL) {
        error = allocator_restore_refuse(message, "the allocator is not fresh: it has memory", alloc->reserved_bytes);
    }
    for (size_t i = 0; error == VARVE_OK && i < snapshot->segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot->segments[i];
        error = check_blocks(snapshot, segment, message);
        if (error == VARVE_OK && alloc->reserved_bytes > TOTAL_LIMIT - segment->bytes) {
            error = allocator_restore_refuse(message, "more memory than a device can have", segment->addr);
        } else if (error == VARVE_OK && segment->is_expandable && alloc->device->ops->vmm_reserve == NULL) {
            error = allocator_restore_refuse(message, "an expandable segment, on a device without virtual memory,",
                                             segment->addr);
        }
        if (error == VARVE_OK && block_slab_reserve(&alloc->slab, segment->block_count + 4) != VARVE_OK) {
            error = VARVE_ERROR_FULL; /* before the device is asked, so that nothing is half done */
        }
        struct request request;
        VARVE_THEN(error, request_of(alloc, segment, message, &request));
        struct block *block = NULL;
        VARVE_THEN(error, alloc_segment(alloc, &request, segment, &block));
        VARVE_THEN(error, restore_blocks(alloc, snapshot, segment, block, message));
    }
    alloc_unlock(alloc);
    if (error != VARVE_OK && error != VARVE_ERROR_INVALID) {
        varve_message_set(message, error, "cannot begin with this state: %s", varve_strerror(error));
    }
    return error;
}
