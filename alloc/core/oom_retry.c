/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two questions that users ask are why free memory did not serve (it is in pieces, in another stream's or
 * pool's blocks, or waits for a stream) and which option would have.
 */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"

#include <inttypes.h>
#include <stdio.h>

static uint64_t largest_of(const struct stream_bins *bins)
{
    const struct block *block = free_index_last(bins);
    return block != NULL ? block->size : 0;
}

static void account_pools(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom)
{
    oom->largest_free = largest_of(request->wanted.bins);
    for (struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        for (uint32_t i = 0; i < pool->index.stream_count; i++) {
            uint64_t largest = largest_of(pool->index.streams[i]);
            oom->largest_free_any = largest > oom->largest_free_any ? largest : oom->largest_free_any;
        }
        for (const struct block *block = free_index_first(&pool->index); pool->owner != NULL && block != NULL;
             block = free_index_following(&pool->index, block)) {
            oom->private_free += block->size;
        }
    }
}

/* The best hole: the segment of the request's pool and stream with the most free bytes, and what is in it. */
static void account_segment(const struct block *head, struct varve_alloc_oom *oom)
{
    uint64_t bytes = 0, free_bytes = 0, blocker_addr = 0, blocker_bytes = 0;
    for (const struct block *block = head; block != NULL && block->is_mapped; block = block->next) {
        bytes += block->size;
        if (block->is_free) {
            free_bytes += block->size;
        } else if (blocker_bytes == 0 || block->size < blocker_bytes) {
            blocker_addr = block->addr;
            blocker_bytes = block->size;
        }
    }
    if (free_bytes > oom->largest_hole_free) {
        oom->largest_hole_addr = head->addr;
        oom->largest_hole_free = free_bytes;
        oom->largest_hole_bytes = bytes;
        oom->blocker_addr = blocker_addr;
        oom->blocker_bytes = blocker_bytes;
    }
}

static void account_holes(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom)
{
    struct block_walk walk = {0};
    const struct block *block;
    while ((block = walk_next(alloc, &walk)) != NULL) {
        if (block->bins == request->wanted.bins && block_begins_range(block)) {
            account_segment(block, oom);
        }
    }
}

static const char *advise(const struct varve_alloc *alloc, const struct varve_alloc_oom *oom)
{
    uint64_t unused = oom->reserved - oom->active;
    if (oom->allocated_limit != 0 && oom->allocated + oom->rounded > oom->allocated_limit) {
        return "the limit of allocated bytes is reached: free something, or raise it";
    }
    if (oom->pending >= oom->rounded) {
        return "freed blocks still wait for other streams: synchronize before the request, or record fewer "
               "streams";
    }
    if (oom->largest_free_any >= oom->rounded && oom->largest_free < oom->rounded) {
        return "another stream or pool has a free block that fits: allocate on fewer streams";
    }
    if (unused >= oom->rounded && !alloc->can_expand) {
        return "expandable_segments:True lets the free pieces of several segments serve one request";
    }
    if (oom->limit != 0 && oom->device_free >= oom->segment_bytes) {
        return "the memory limit is reached, the device has more: raise the fraction";
    }
    return NULL;
}

void oom_account(struct varve_alloc *alloc, const struct request *request, struct varve_alloc_oom *oom)
{
    *oom = (struct varve_alloc_oom){
        .requested = request->bytes,
        .rounded = request->wanted.rounded,
        .segment_bytes = request->segment_bytes,
        .stream = request->wanted.bins->stream,
        .allocated = (uint64_t)hot_current(&alloc->counters, HOT_ALLOCATED_BYTES),
        .active = (uint64_t)stat_active_bytes(&alloc->counters),
        .reserved = (uint64_t)alloc->counters.others.reserved_bytes[VARVE_ALLOC_STAT_ALL].current,
        .limit = alloc->limit,
        .allocated_limit = alloc->allocated_limit,
        .stage = request->stage,
    };
    oom->pending = oom->active - oom->allocated;
    alloc->device->ops->memory_info(alloc->device, &oom->device_free, &oom->device_total);
    account_pools(alloc, request, oom);
    account_holes(alloc, request, oom);
    oom->advice = advise(alloc, oom);
}

static const char *const stage_texts[] = {
    [VARVE_ALLOC_STAGE_CACHE] = "the search of the pool",
    [VARVE_ALLOC_STAGE_CALLBACKS] = "the callbacks",
    [VARVE_ALLOC_STAGE_GC] = "garbage collection",
    [VARVE_ALLOC_STAGE_NEW_SEGMENT] = "a new segment",
    [VARVE_ALLOC_STAGE_MEMPOOL_FALLBACK] = "the pools for use on OOM",
    [VARVE_ALLOC_STAGE_RELEASE_AVAILABLE] = "the release of oversize blocks",
    [VARVE_ALLOC_STAGE_RELEASE_CACHED] = "the release of all unused segments",
    [VARVE_ALLOC_STAGE_LAST_RESORT] = "the callbacks for the last resort",
};

int oom_message(const struct varve_alloc_oom *oom, struct varve_message *message)
{
    if (message == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    char hole[160] = "";
    if (oom->blocker_bytes != 0) {
        snprintf(hole, sizeof(hole),
                 "; segment %#" PRIx64 " has %" PRIu64 " of %" PRIu64 " free, held by a block of %" PRIu64,
                 oom->largest_hole_addr, oom->largest_hole_free, oom->largest_hole_bytes, oom->blocker_bytes);
    }
    return varve_message_set(message, VARVE_ERROR_NO_MEMORY,
                             "out of memory: %" PRIu64 " bytes (segment of %" PRIu64 ") after %s; allocated %" PRIu64
                             ", pending %" PRIu64 ", reserved %" PRIu64 ", device free %" PRIu64 ", limit %" PRIu64
                             ", largest free block %" PRIu64 "%s%s%s",
                             oom->requested, oom->segment_bytes, stage_texts[oom->stage], oom->allocated, oom->pending,
                             oom->reserved, oom->device_free, oom->limit, oom->largest_free, hole,
                             oom->advice != NULL ? "; " : "", oom->advice != NULL ? oom->advice : "");
}
