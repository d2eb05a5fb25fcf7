/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the stages, and of what each of them counts and records, is PyTorch's. */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/block_links.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/policy/pytorch_rules.h"

#include <assert.h>

HOT struct pool *pool_of_request(struct varve_alloc *alloc, uint64_t stream, bool is_small)
{
    if (UNLIKELY(alloc->capture_count > 0)) {
        return pool_of_captures(alloc, stream, is_small);
    }
    return is_small ? &alloc->small : &alloc->large;
}

HOT struct stream_bins *bins_of_request(struct varve_alloc *alloc, struct pool *pool, uint64_t stream)
{
    struct stream_bins *recent = pool->index.recent;
    return LIKELY(recent != NULL && recent->stream == stream) ? recent : pool_bins(alloc, pool, stream);
}

/* The policy of the pool that the request goes to. */
HOT const struct alloc_policy *policy_of_request(struct varve_alloc *alloc, uint64_t stream)
{
    return UNLIKELY(alloc->capture_count > 0) && alloc->policy->backend != NULL
               ? policy_of_pool(alloc, pool_of_captures(alloc, stream, false))
               : alloc->policy;
}

int request_prepare(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct request *request)
{
    const struct alloc_policy *policy = policy_of_request(alloc, stream);
    uint64_t rounded = POLICY_CALL(policy, block_size, &alloc->config, bytes);
    struct pool *pool = pool_of_request(alloc, stream, POLICY_CALL(policy, is_small, &alloc->config, rounded));
    struct stream_bins *bins = bins_of_request(alloc, pool, stream);
    request->bytes = bytes;
    request->wanted.rounded = rounded;
    request->segment_bytes = 0;
    request->pool = pool;
    request->wanted.bins = bins;
    request->wanted.is_expandable = alloc->can_expand && backend_of_pool(alloc, pool) == NULL;
    request->source = VARVE_CAUSE_CACHE;
    request->stage = VARVE_ALLOC_STAGE_CACHE;
    request->message = NULL;
    return bins != NULL ? VARVE_OK : VARVE_ERROR_FULL;
}

HOT bool has_reserve(const struct varve_alloc *alloc)
{
    return alloc->map.count < alloc->map.limit && alloc->slab.capacity - alloc->slab.in_use >= 4;
}

HOT bool counts_searches(const struct varve_alloc *alloc)
{
    return UNLIKELY(alloc->limit != 0) && alloc->policy->has_gc && alloc->config.garbage_collection_threshold > 0;
}

/* What is found stays in the index until it is allocated, but for a backend's: nothing else may act in between. */
static struct block *request_way_search(struct varve_alloc *alloc, struct request *request)
{
    const struct pool_backend *backend = backend_of_pool(alloc, request->pool);
    if (UNLIKELY(backend != NULL)) {
        struct block *block = NULL;
        return backend->alloc(alloc, request, false, &block) == VARVE_OK ? block : NULL;
    }
    if (counts_searches(alloc)) {
        alloc->has_ages = true;
        request->pool->search_count++; /* also for a second search: the ages depend on it */
    }
    return POLICY_CALL(policy_of_pool(alloc, request->pool), search, &alloc->config, &request->wanted);
}

/* More memory from the device, and from it what the request wants. */
static int request_way_grow(struct varve_alloc *alloc, struct request *request, bool is_retry, struct block **block_out)
{
    const struct pool_backend *backend = backend_of_pool(alloc, request->pool);
    if (LIKELY(backend == NULL)) {
        return segment_alloc(alloc, request, is_retry, block_out);
    }
    alloc->counters.others.num_alloc_retries += is_retry;
    return backend->alloc(alloc, request, true, block_out);
}

static void emit_stage(struct varve_alloc *alloc, const struct request *request, enum varve_cause stage,
                       uint64_t bytes_freed, bool has_served)
{
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_OOM_RETRY,
                                  .cause = stage,
                                  .bins = request->wanted.bins,
                                  .size = request->segment_bytes,
                                  .requested = bytes_freed,
                                  .arg = has_served});
}

/* All of them, whatever the first one returns. The bytes that they have freed. */
static uint64_t run_callbacks(struct varve_alloc *alloc, struct request *request, const struct callback_list *list,
                              uint64_t excess)
{
    const struct private_pool *owner = request->pool->owner;
    const struct varve_alloc_miss miss = {
        .requested = request->bytes,
        .rounded = request->wanted.rounded,
        .excess = excess,
        .stream = request->wanted.bins->stream,
        .pool = owner != NULL ? owner->id : (struct varve_pool_id){0, 0},
        .device = alloc->device->index,
        .is_small = request->pool->is_small,
    };
    uint64_t freed = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        freed += list->entries[i].call(list->entries[i].context, &miss);
    }
    return freed;
}

/* trigger_free_memory_callbacks. `excess`: bytes beyond the limit of allocated bytes. */
static struct block *search_after_callbacks(struct varve_alloc *alloc, struct request *request, uint64_t excess,
                                            bool *has_freed_out)
{
    int64_t before = stat_active_bytes(&alloc->counters);
    *has_freed_out = false;
    if (alloc->misses.count == 0) {
        return NULL;
    }
    request->stage = VARVE_ALLOC_STAGE_CALLBACKS;
    struct block *block = NULL;
    if (run_callbacks(alloc, request, &alloc->misses, excess) > 0) {
        *has_freed_out = true;
        /* of a backend it would be taken already, and there may be more to free first */
        block = excess > 0 && backend_of_pool(alloc, request->pool) != NULL ? NULL : request_way_search(alloc, request);
        request->source = VARVE_CAUSE_AFTER_CALLBACKS;
    }
    int64_t after = stat_active_bytes(&alloc->counters);
    emit_stage(alloc, request, VARVE_CAUSE_CALLBACKS, (uint64_t)(before > after ? before - after : 0), block != NULL);
    return block;
}

/* try_mempool_fallback: free blocks of a private pool for a request of the default one. */
static struct block *mempool_fallback(struct varve_alloc *alloc, struct request *request)
{
    if (request->pool->owner != NULL) {
        return NULL;
    }
    for (struct private_pool *pool = alloc->private_pools; pool != NULL; pool = pool->next) {
        struct request fallback = *request;
        if (!pool->use_on_oom) {
            continue;
        }
        fallback.pool = request->pool->is_small ? &pool->small : &pool->large;
        fallback.wanted.bins = pool_bins(alloc, fallback.pool, request->wanted.bins->stream);
        fallback.wanted.is_expandable = false;
        request->stage = fallback.stage = VARVE_ALLOC_STAGE_MEMPOOL_FALLBACK;
        struct block *block = fallback.wanted.bins != NULL ? request_way_search(alloc, &fallback) : NULL;
        if (block != NULL) {
            *request = fallback;
            request->source = VARVE_CAUSE_CACHE; /* the record's pool says whose */
            return block;
        }
    }
    return NULL;
}

static int alloc_after_gc(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    struct release_sum sum = {0};
    bool has_run = alloc->policy->has_gc && release_garbage_target(alloc) > 0;
    if (has_run) {
        request->stage = VARVE_ALLOC_STAGE_GC;
        sum = release_garbage(alloc);
    }
    request->stage = VARVE_ALLOC_STAGE_NEW_SEGMENT;
    request->source = sum.segments > 0 ? VARVE_CAUSE_AFTER_GC : VARVE_CAUSE_NEW_SEGMENT;
    int error = request_way_grow(alloc, request, false, block_out);
    if (has_run) {
        emit_stage(alloc, request, VARVE_CAUSE_GC, sum.bytes, error == VARVE_OK);
    }
    return error;
}

static int alloc_after_release_available(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    int error = VARVE_ERROR_NO_MEMORY;
    if (!alloc->policy->has_release_available || alloc->config.max_split_size == VARVE_ALLOC_UNLIMITED) {
        return error;
    }
    request->stage = VARVE_ALLOC_STAGE_RELEASE_AVAILABLE;
    struct release_sum sum = release_available(alloc, request);
    if (sum.has_succeeded) {
        request->source = VARVE_CAUSE_AFTER_RELEASE;
        error = request_way_grow(alloc, request, false, block_out);
    }
    emit_stage(alloc, request, VARVE_CAUSE_RELEASE_AVAILABLE, sum.bytes, error == VARVE_OK);
    return error;
}

static int retry_after_release_cached(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    request->stage = VARVE_ALLOC_STAGE_RELEASE_CACHED;
    struct release_sum sum;
    int error = release_cached(alloc, VARVE_CAUSE_RETRY, &sum);
    if (error != VARVE_OK) {
        return error == VARVE_ERROR_NO_MEMORY
                   ? error
                   : device_message(alloc, error, request->message, "the device failed to wait for freed blocks");
    }
    request->source = VARVE_CAUSE_AFTER_RETRY;
    if (alloc->config.research_after_release) {
        *block_out = request_way_search(alloc, request);
    }
    error = *block_out != NULL ? VARVE_OK : request_way_grow(alloc, request, true, block_out);
    emit_stage(alloc, request, VARVE_CAUSE_RELEASE_CACHED, sum.bytes, error == VARVE_OK);
    return error;
}

static int reserve_after_callbacks(struct varve_alloc *alloc, struct request *request)
{
    int error = request_reserve(alloc);
    return error == VARVE_OK
               ? VARVE_OK
               : varve_message_set(request->message, error, "no memory for the allocator's own descriptors");
}

/* The stages behind the callbacks, up to the first success. */
static int alloc_from_device(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    int error = alloc_after_gc(alloc, request, block_out);
    if (error == VARVE_ERROR_NO_MEMORY) {
        *block_out = mempool_fallback(alloc, request);
        error = *block_out != NULL ? VARVE_OK : error;
    }
    if (error == VARVE_ERROR_NO_MEMORY) {
        error = alloc_after_release_available(alloc, request, block_out);
    }
    if (error == VARVE_ERROR_NO_MEMORY && alloc->capture_count == 0) {
        error = retry_after_release_cached(alloc, request, block_out);
    }
    return error;
}

/* All has failed: as long as somebody gives up more, search again and ask the device again. */
static int alloc_after_last_resort(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    int error = VARVE_ERROR_NO_MEMORY;
    while (error == VARVE_ERROR_NO_MEMORY) {
        uint64_t freed = run_callbacks(alloc, request, &alloc->last_resorts, 0);
        request->stage = VARVE_ALLOC_STAGE_LAST_RESORT;
        if (freed == 0) {
            break;
        }
        error = reserve_after_callbacks(alloc, request);
        if (error != VARVE_OK) {
            return error;
        }
        *block_out = request_way_search(alloc, request);
        request->source = VARVE_CAUSE_AFTER_CALLBACKS;
        error = *block_out != NULL ? VARVE_OK : alloc_from_device(alloc, request, block_out);
        emit_stage(alloc, request, VARVE_CAUSE_LAST_RESORT, freed, error == VARVE_OK);
    }
    return error;
}

/* The stages after the pool has failed, up to the first success. */
static int alloc_in_stages(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    request->segment_bytes = request_segment_size(alloc, request);
    bool has_freed;
    *block_out = search_after_callbacks(alloc, request, 0, &has_freed);
    int error = alloc->misses.count > 0 ? reserve_after_callbacks(alloc, request) : VARVE_OK;
    if (error != VARVE_OK || *block_out != NULL) {
        return error;
    }
    error = alloc_from_device(alloc, request, block_out);
    if (error == VARVE_ERROR_NO_MEMORY && alloc->last_resorts.count > 0) {
        error = alloc_after_last_resort(alloc, request, block_out);
    }
    return error;
}

/* Callbacks, and others while the lock is open, may drop the last reference to the pool and empty the cache:
 * a pool that a request is on its way to stays. */
static __attribute__((noinline)) int alloc_on_miss(struct varve_alloc *alloc, struct request *request,
                                                   struct block **block_out)
{
    struct private_pool *owner = request->pool->owner; /* a fallback changes request->pool */
    if (owner == NULL) {
        return alloc_in_stages(alloc, request, block_out);
    }
    owner->request_count++;
    int error = alloc_in_stages(alloc, request, block_out);
    owner->request_count--;
    return error;
}

/* ---- a block is handed out ---- */

/* The front part is a new block, the old object becomes the remainder. */
HOT struct block *split(struct varve_alloc *alloc, struct pool *pool, struct block *block, uint64_t bytes)
{
    bool was_split = block_is_split(block);
    struct block *front = block_cut_front(&alloc->slab, block, bytes);
    if (LIKELY(block->is_free)) {
        free_index_move(block, block->addr + bytes, block->size - bytes);
        block_begin_age(block, pool);
    } else {
        block_shrink_free(block, bytes);
    }
    if (!block->is_expandable) {
        if (was_split) {
            hot_decrease(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, pool->is_small, (int64_t)bytes);
        } else {
            hot_increase(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, pool->is_small, (int64_t)block->size);
            hot_increase(&alloc->counters, HOT_INACTIVE_SPLIT, pool->is_small, 1);
        }
    }
    return front;
}

/* What a request is handed, once the block is found. */
struct handout {
    struct pool *pool;
    uint64_t bytes, rounded;
    enum varve_cause source;
    bool is_cut;
};

/* alloc_found_block. The descriptors that it needs are reserved. Returns the request's block. */
HOT struct block *hand_out(struct varve_alloc *alloc, struct handout handout, struct block *block)
{
    struct pool *pool = handout.pool;
    uint64_t found_size = block->size, addr = block->addr;
    struct block *found = block;
    assert(block_pool(block) == pool);
    if (handout.is_cut) {
        block = split(alloc, pool, found, handout.rounded);
        block_map_take(&alloc->map, addr, found, block);
        found->is_in_map = false;
        block->is_in_map = true;
    } else {
        if (!block->is_in_map) {
            block_map_put(&alloc->map, block);
        }
        if (block->is_free) {
            free_index_remove(&pool->index, block);
            if (block_is_split(block) && !block->is_expandable) {
                hot_decrease(&alloc->counters, HOT_INACTIVE_SPLIT_BYTES, pool->is_small, (int64_t)found_size);
                hot_decrease(&alloc->counters, HOT_INACTIVE_SPLIT, pool->is_small, 1);
            }
        }
    }
    block->is_allocated = true;
    block->has_user = false;
    block->requested = handout.bytes;
    block->id = ++alloc->allocation_id;
    if (UNLIKELY(alloc->recorder != NULL)) {
        emit_handout(alloc, block, handout.is_cut ? found_size : handout.rounded, handout.is_cut, handout.source);
    }
    stat_allocate(&alloc->counters, pool->is_small, block->size, handout.bytes);
    if (block->size >= alloc->config.max_split_size) {
        stat_increase(&alloc->counters.others.oversize_allocations, 1);
    }
    return block;
}

struct block *request_hand_out(struct varve_alloc *alloc, struct block *block, uint64_t bytes, enum varve_cause source)
{
    return hand_out(alloc,
                    (struct handout){
                        .pool = block_pool(block),
                        .bytes = bytes,
                        .rounded = bytes,
                        .source = source,
                        .is_cut = block->size > bytes,
                    },
                    block);
}

/* A backend has cut it already. */
HOT bool is_cut(const struct varve_alloc *alloc, const struct request *request, const struct block *block)
{
    const struct alloc_policy *policy = policy_of_pool(alloc, request->pool);
    return policy->backend == NULL && POLICY_CALL(policy, should_split, &alloc->config, &request->wanted, block);
}

/* ---- the limit of allocated bytes ---- */

/* Bytes beyond the limit, if the request is served by the block; NULL: by one of just its size. */
static uint64_t excess_of(const struct varve_alloc *alloc, const struct request *request, const struct block *block)
{
    uint64_t rounded = request->wanted.rounded;
    uint64_t bytes = block == NULL || is_cut(alloc, request, block) ? rounded : block->size;
    uint64_t allocated = (uint64_t)hot_current(&alloc->counters, HOT_ALLOCATED_BYTES) + bytes;
    return allocated > alloc->allocated_limit ? allocated - alloc->allocated_limit : 0;
}

/* Callbacks free until the request fits under the limit, or a call has brought it no nearer. `block` is what the pool
 * has for it, before and afterwards. */
static int request_way_make_room(struct varve_alloc *alloc, struct request *request, struct block **block)
{
    uint64_t excess = excess_of(alloc, request, *block);
    request->segment_bytes = request_segment_size(alloc, request);
    uint64_t before = UINT64_MAX;
    bool has_freed = true;
    while (excess > 0 && excess < before && has_freed) {
        *block = search_after_callbacks(alloc, request, excess, &has_freed);
        if (request_reserve(alloc) != VARVE_OK) {
            return varve_message_set(request->message, VARVE_ERROR_FULL,
                                     "no memory for the allocator's own descriptors");
        }
        before = excess;
        excess = excess_of(alloc, request, *block);
    }
    return excess == 0 ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

/* What was found and is not handed out goes back to where it was. */
static void put_back(struct varve_alloc *alloc, const struct request *request, struct block *block)
{
    const struct pool_backend *backend = backend_of_pool(alloc, request->pool);
    if (block->is_free) {
        return;
    }
    if (backend != NULL) {
        backend->free(alloc, block);
    } else {
        block_insert_free(block);
    }
}

/* As alloc_on_miss. A block that came from the device and is larger than the limit allows stays in the pool. */
static int alloc_within_limit(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    if (*block_out != NULL && !(*block_out)->is_free && excess_of(alloc, request, *block_out) > 0) {
        put_back(alloc, request, *block_out);
        *block_out = NULL;
    }
    int error = request_way_make_room(alloc, request, block_out);
    if (error != VARVE_OK || *block_out != NULL) {
        return error;
    }
    error = alloc_on_miss(alloc, request, block_out);
    assert(error != VARVE_OK || *block_out != NULL);
    if (error != VARVE_OK || excess_of(alloc, request, *block_out) == 0) {
        return error;
    }
    put_back(alloc, request, *block_out);
    if (backend_of_pool(alloc, request->pool) != NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    error = request_way_make_room(alloc, request, block_out);
    return error == VARVE_OK && *block_out == NULL ? VARVE_ERROR_NO_MEMORY : error;
}

/* A request that the pool does not serve at once, or that is not of the usual kind. */
static __attribute__((noinline)) int run_in_stages(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream,
                                                   struct varve_message *message, struct request *request,
                                                   struct block **block_out)
{
    int error = request_prepare(alloc, bytes, stream, request);
    request->message = message;
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "no memory for a new stream");
    }
    if (!has_reserve(alloc) && request_reserve(alloc) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_FULL, "no memory for the allocator's own descriptors");
    }
    struct block *block = request_way_search(alloc, request);
    if (UNLIKELY(alloc->allocated_limit != 0)) {
        error = alloc_within_limit(alloc, request, &block);
    } else if (block == NULL) {
        error = alloc_on_miss(alloc, request, &block);
    }
    if (error != VARVE_OK) {
        if (block != NULL) {
            put_back(alloc, request, block);
        }
        return error;
    }
    *block_out = hand_out(alloc,
                          (struct handout){
                              .pool = request->pool,
                              .bytes = bytes,
                              .rounded = request->wanted.rounded,
                              .source = request->source,
                              .is_cut = is_cut(alloc, request, block),
                          },
                          block);
    return VARVE_OK;
}

/* Most of the requests that come the long way: of the usual policy, outside of captures, without ages, of the same
 * stream as the one before, and the pool has a block. What only a miss needs is not even written down, and nothing has
 * changed when there is no such block. */
int request_run(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream, struct varve_message *message,
                struct request *request, struct block **block_out)
{
    if (UNLIKELY(alloc->policy != &policy_pytorch || alloc->capture_count > 0 || counts_searches(alloc) ||
                 alloc->allocated_limit != 0)) {
        return run_in_stages(alloc, bytes, stream, message, request, block_out);
    }
    struct wanted_block wanted;
    wanted.rounded = pytorch_block_size(&alloc->config, bytes);
    struct pool *pool = pytorch_is_small(&alloc->config, wanted.rounded) ? &alloc->small : &alloc->large;
    wanted.bins = pool->index.recent;
    wanted.is_expandable = alloc->can_expand;
    if (UNLIKELY(wanted.bins == NULL || wanted.bins->stream != stream || !has_reserve(alloc))) {
        return run_in_stages(alloc, bytes, stream, message, request, block_out);
    }
    struct block *block = pytorch_search_for(&alloc->config, wanted);
    if (UNLIKELY(block == NULL)) {
        return run_in_stages(alloc, bytes, stream, message, request, block_out);
    }
    *block_out = hand_out(alloc,
                          (struct handout){
                              .pool = pool,
                              .bytes = bytes,
                              .rounded = wanted.rounded,
                              .source = VARVE_CAUSE_CACHE,
                              .is_cut = pytorch_cuts(&alloc->config, pool, wanted, block->size),
                          },
                          block);
    return VARVE_OK;
}
