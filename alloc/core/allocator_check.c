/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker: every list against the others, every sum against its parts. Debug and fuzz builds call it after
 * each step. It reports the first thing that is wrong.
 */
#include "alloc/core/allocator_state.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"

#include <inttypes.h>

/* What the blocks add up to, per kind of pool. */
struct sums {
    int64_t allocation[2], allocated[2], active_count[2], active[2], requested[2];
    int64_t free[2], inactive_count[2], inactive[2], segments[2], segment_bytes[2], mapped[2];
    uint64_t in_map, unmapped_blocks, descriptors;
    uint64_t waiting;          /* events */
    uint64_t deferred;         /* freed blocks with uses that have no event yet */
    uint64_t private_segments; /* ordinary ones of private pools */
    int64_t oversize_allocations, oversize_segments;
    uint64_t oversize; /* from this size on */
};

static int allocator_check_wrong(struct varve_message *message, const char *what, uint64_t value, uint64_t expected)
{
    return varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: %" PRIu64 " instead of %" PRIu64, what, value,
                             expected);
}

/* Free neighbours may stay apart, and belong to several streams, where a backend decides that. */
static int allocator_check_neighbours(const struct varve_alloc *alloc, const struct block *block,
                                      struct varve_message *message)
{
    const struct block *next = block->next;
    bool is_backed = backend_of_pool(alloc, block_pool(block)) != NULL;
    if (next != NULL && (next->prev != block || next->addr != block->addr + block->size ||
                         (is_backed ? block_pool(next) != block_pool(block) : next->bins != block->bins) ||
                         next->segment_id != block->segment_id || next->expandable != block->expandable)) {
        return allocator_check_wrong(message, "a neighbour does not fit to the block before it", next->addr,
                                     block->addr + block->size);
    }
    if (block->prev != NULL && block->prev->next != block) {
        return allocator_check_wrong(message, "a neighbour does not point back to the block", block->prev->addr,
                                     block->addr);
    }
    if (!is_backed && next != NULL && block_is_available(block) && block_is_available(next) &&
        block->is_mapped == next->is_mapped) {
        return allocator_check_wrong(message, "two free neighbours were not merged", next->addr, block->addr);
    }
    return block->size > 0 ? VARVE_OK : allocator_check_wrong(message, "a block of size", block->size, 1);
}

static void allocator_check_add_segment(const struct block *block, struct sums *sums, bool is_small)
{
    if (block->prev == NULL && block->expandable == NULL) {
        sums->segments[is_small]++;
        sums->oversize_segments += block_bytes_onwards(block) >= sums->oversize;
        sums->private_segments += block_pool(block)->owner != NULL;
    }
    if (block->is_mapped) {
        sums->mapped[is_small] += (int64_t)block->size;
    }
    sums->descriptors++;
}

static int check_used(const struct varve_alloc *alloc, const struct block *block, struct sums *sums,
                      struct varve_message *message)
{
    bool is_small = block_pool(block)->is_small, is_ordered = block_is_ordered(alloc, block);
    if (!block->is_mapped || block->is_free || !block->is_in_map || block->id == 0 ||
        (!block->is_allocated && block_is_available(block) && !is_ordered)) {
        return allocator_check_wrong(message, "a block in use has a wrong state, address", block->addr, block->addr);
    }
    sums->in_map++;
    sums->waiting += block->event_count;
    sums->deferred += !block->is_allocated && (block->uses != NULL || is_ordered);
    sums->oversize_allocations += block->is_allocated && block->size >= sums->oversize;
    sums->allocation[is_small] += block->is_allocated;
    sums->allocated[is_small] += block->is_allocated ? (int64_t)block->size : 0;
    sums->active_count[is_small]++;
    sums->active[is_small] += (int64_t)block->size;
    sums->requested[is_small] += (int64_t)block->requested;
    allocator_check_add_segment(block, sums, is_small);
    return allocator_check_neighbours(alloc, block, message);
}

/* Of unmapped space: by stream, then address. */
static bool is_in_order(const struct block *block, const struct block *next)
{
    return block->bins == next->bins ? block->addr < next->addr : block->bins->stream < next->bins->stream;
}

static int check_pool(const struct varve_alloc *alloc, const struct pool *pool, struct sums *sums,
                      struct varve_message *message)
{
    int error = free_index_check(&pool->index, message);
    for (const struct block *block = free_index_first(&pool->index); error == VARVE_OK && block != NULL;
         block = free_index_following(&pool->index, block)) {
        if (!block_is_available(block) || !block->is_mapped || !block->is_free || block_pool(block) != pool ||
            block->is_planned || (backend_of_pool(alloc, pool) == NULL && block->freed_at > pool->search_count)) {
            return allocator_check_wrong(message, "a free block has a wrong state, address", block->addr, block->addr);
        }
        if (block->is_in_map && block_map_find(&alloc->map, block->addr) != block) {
            return allocator_check_wrong(message, "a free block is not where the map has it, address", block->addr,
                                         block->addr);
        }
        sums->in_map += block->is_in_map;
        if (block_is_split(block) && block->expandable == NULL) {
            sums->inactive_count[pool->is_small]++;
            sums->inactive[pool->is_small] += (int64_t)block->size;
        }
        sums->free[pool->is_small] += (int64_t)block->size;
        allocator_check_add_segment(block, sums, pool->is_small);
        error = allocator_check_neighbours(alloc, block, message);
    }
    for (const struct block *block = pool->unmapped; error == VARVE_OK && block != NULL; block = block->right) {
        if (block->is_mapped || block->is_free || block->is_allocated || block->is_in_map ||
            block->expandable == NULL || block_pool(block) != pool || block->expandable->pool != pool ||
            (block->right != NULL && (block->right->left != block || !is_in_order(block, block->right)))) {
            return allocator_check_wrong(message, "unmapped space has a wrong state, address", block->addr,
                                         block->addr);
        }
        sums->descriptors++;
        error = allocator_check_neighbours(alloc, block, message);
    }
    return error;
}

static int check_stat(const struct varve_alloc_stat *stats, const int64_t sums[2], const char *name,
                      struct varve_message *message)
{
    for (unsigned pool = 0; pool < VARVE_ALLOC_STAT_POOLS; pool++) {
        int64_t expected = pool == VARVE_ALLOC_STAT_ALL          ? sums[0] + sums[1]
                           : pool == VARVE_ALLOC_STAT_SMALL_POOL ? sums[1]
                                                                 : sums[0];
        if (stats[pool].current != expected) {
            return allocator_check_wrong(message, name, (uint64_t)stats[pool].current, (uint64_t)expected);
        }
        if (stats[pool].peak < stats[pool].current) {
            return allocator_check_wrong(message, "a peak is below what is current", (uint64_t)stats[pool].peak,
                                         (uint64_t)stats[pool].current);
        }
    }
    return VARVE_OK;
}

static int allocator_check_sums(const struct varve_alloc *alloc, const struct sums *sums, struct varve_message *message)
{
    struct varve_alloc_stats read;
    const struct varve_alloc_stats *stats = &read;
    const struct {
        const struct varve_alloc_stat *stats;
        const int64_t *sums;
        const char *name;
    } rows[] = {
        {stats->allocation, sums->allocation, "allocation"},
        {stats->allocated_bytes, sums->allocated, "allocated_bytes"},
        {stats->active, sums->active_count, "active"},
        {stats->active_bytes, sums->active, "active_bytes"},
        {stats->requested_bytes, sums->requested, "requested_bytes"},
        {stats->inactive_split, sums->inactive_count, "inactive_split"},
        {stats->inactive_split_bytes, sums->inactive, "inactive_split_bytes"},
        {stats->segment, sums->segments, "segment"},
        {stats->reserved_bytes, sums->mapped, "reserved_bytes"},
    };
    stats_read(&alloc->counters, &read);
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < sizeof(rows) / sizeof(rows[0]); i++) {
        error = check_stat(rows[i].stats, rows[i].sums, rows[i].name, message);
    }
    if (error == VARVE_OK && stats->oversize_allocations.current != sums->oversize_allocations) {
        error = allocator_check_wrong(message, "oversize_allocations", (uint64_t)stats->oversize_allocations.current,
                                      (uint64_t)sums->oversize_allocations);
    }
    if (error == VARVE_OK && stats->oversize_segments.current != sums->oversize_segments) {
        error = allocator_check_wrong(message, "oversize_segments", (uint64_t)stats->oversize_segments.current,
                                      (uint64_t)sums->oversize_segments);
    }
    if (error == VARVE_OK && alloc->reserved_bytes != (uint64_t)stats->reserved_bytes[VARVE_ALLOC_STAT_ALL].current) {
        error = allocator_check_wrong(message, "reserved bytes", alloc->reserved_bytes,
                                      (uint64_t)stats->reserved_bytes[VARVE_ALLOC_STAT_ALL].current);
    }
    for (unsigned pool = 0; error == VARVE_OK && pool < 2; pool++) {
        if (sums->mapped[pool] != sums->active[pool] + sums->free[pool]) {
            error = allocator_check_wrong(message, "reserved is not active + free", (uint64_t)sums->mapped[pool],
                                          (uint64_t)(sums->active[pool] + sums->free[pool]));
        }
    }
    return error;
}

/* Every event that is queued waits for a block that was freed, every freed block with uses is in the list. */
static int check_waiting(const struct varve_alloc *alloc, const struct sums *sums, struct varve_message *message)
{
    uint64_t queued = 0;
    for (uint32_t i = 0; i < alloc->queue_count; i++) {
        const struct event_queue *queue = &alloc->queues[i];
        for (uint32_t k = 0; k < queue->count; k++) {
            const struct block *block = queue->items[(queue->head + k) & (queue->capacity - 1)].block;
            if (block->is_allocated || block->event_count == 0 || block_map_find(&alloc->map, block->addr) != block) {
                return allocator_check_wrong(message, "an event waits for a wrong block, address", block->addr,
                                             block->addr);
            }
        }
        queued += queue->count;
        if (i > 0 && alloc->queues[i - 1].stream >= queue->stream) {
            return allocator_check_wrong(message, "queues are out of order", queue->stream,
                                         alloc->queues[i - 1].stream);
        }
    }
    uint64_t deferred = 0;
    for (const struct block *block = alloc->deferred; block != NULL; block = block->right) {
        deferred++;
        if (block->is_allocated || (block->uses == NULL && !block_is_ordered(alloc, block)) ||
            block_map_find(&alloc->map, block->addr) != block || deferred > sums->deferred) {
            return allocator_check_wrong(message, "the deferred list has a wrong block, address", block->addr,
                                         block->addr);
        }
    }
    if (alloc->deferred != NULL && alloc->deferred_last->right != NULL) {
        return allocator_check_wrong(message, "the deferred list does not end with its last block", deferred, 0);
    }
    if (queued != alloc->pending_events || sums->waiting != queued) {
        return allocator_check_wrong(message, "pending events", alloc->pending_events, queued);
    }
    return deferred == sums->deferred ? VARVE_OK
                                      : allocator_check_wrong(message, "deferred blocks", deferred, sums->deferred);
}

/* Pools without references are listed, the others are not; their segments are counted. */
static int check_private_pools(const struct varve_alloc *alloc, const struct sums *sums, struct varve_message *message)
{
    uint64_t segments = 0, freeable = 0;
    for (const struct private_pool *pool = alloc->private_pools; pool != NULL; pool = pool->next) {
        segments += pool->segment_count;
        freeable += pool->use_count == 0;
    }
    uint64_t listed = 0;
    for (const struct private_pool *pool = alloc->freeable_pools; pool != NULL && listed <= freeable;
         pool = pool->next_freeable) {
        listed++;
        if (pool->use_count > 0) {
            return allocator_check_wrong(message, "references of a pool that may go", pool->use_count, 0);
        }
    }
    if (segments != sums->private_segments) {
        return allocator_check_wrong(message, "segments of private pools", segments, sums->private_segments);
    }
    return listed == freeable ? VARVE_OK : allocator_check_wrong(message, "pools that may go", listed, freeable);
}

int varve_alloc_check(struct varve_alloc *alloc, struct varve_message *message)
{
    struct sums sums = {.oversize = alloc->config.max_split_size};
    alloc_lock(alloc);
    int error = block_map_check(&alloc->map, message);
    const struct block *block;
    uint64_t position = 0;
    while (error == VARVE_OK && (block = block_map_each(&alloc->map, &position)) != NULL) {
        error = check_used(alloc, block, &sums, message);
    }
    for (struct pool *pool = pool_each(alloc, NULL); error == VARVE_OK && pool != NULL; pool = pool_each(alloc, pool)) {
        error = check_pool(alloc, pool, &sums, message);
    }
    if (error == VARVE_OK && sums.in_map != alloc->map.count) {
        error = allocator_check_wrong(message, "blocks in the map", alloc->map.count, sums.in_map);
    }
    if (error == VARVE_OK && sums.descriptors != alloc->slab.in_use) {
        error = allocator_check_wrong(message, "descriptors in use", alloc->slab.in_use, sums.descriptors);
    }
    error = error == VARVE_OK ? check_waiting(alloc, &sums, message) : error;
    error = error == VARVE_OK ? check_private_pools(alloc, &sums, message) : error;
    error = error == VARVE_OK ? allocator_check_sums(alloc, &sums, message) : error;
    if (error == VARVE_OK && alloc->policy->backend != NULL) {
        error = alloc->policy->backend->check(alloc, message);
    }
    alloc_unlock(alloc);
    return error;
}
