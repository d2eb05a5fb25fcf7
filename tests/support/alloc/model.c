/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's model, requests and frees: rounding, best fit by scanning, the chain that a request goes
 * through when its pool has nothing, splits, deferred frees. See model.h.
 */
#include "support/alloc/model_internal.h"

/* ---- frees ---- */

static void block_release(struct alloc_model *model, struct model_block *block)
{
    uint64_t size = block->size;
    int64_t count_change = 0;
    int64_t bytes_change = 0;
    struct model_block *neighbours[2];

    alloc_model_require(!block->is_allocated && !block->event_count && !block->use_count);
    alloc_model_emit(model, VARVE_KIND_FREE_COMPLETED, block->addr, block->size, block->requested);
    neighbours[0] = block->prev;
    neighbours[1] = block->next;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t absorbed = alloc_model_block_merge(model, block, neighbours[i]);

        if (absorbed) {
            count_change--;
            bytes_change -= (int64_t)absorbed;
        }
    }
    alloc_model_list_remove(&model->active, block);
    alloc_model_block_insert(block);
    if (alloc_model_block_is_split(block)) {
        count_change++;
        bytes_change += (int64_t)block->size;
    }
    if (!block->base) {
        alloc_model_stats_add(model->stats.inactive_split, block->pool, count_change);
        alloc_model_stats_add(model->stats.inactive_split_bytes, block->pool, bytes_change);
    }
    alloc_model_stats_add(model->stats.active, block->pool, -1);
    alloc_model_stats_add(model->stats.active_bytes, block->pool, -(int64_t)size);
    alloc_model_stats_add(model->stats.requested_bytes, block->pool, -(int64_t)block->requested);
}

/* Each stream that used the block gets a mark, passed when it gets here. */
static void waits_add(struct alloc_model *model, struct model_block *block)
{
    for (unsigned i = 0; i < block->use_count; i++) {
        alloc_model_require(alloc_model_device_call(model, VARVE_DEVICE_EVENT_RECORD) == VARVE_OK);
        model->waits =
            alloc_model_grow(model->waits, model->wait_count, &model->wait_capacity, sizeof(*model->waits));
        model->waits[model->wait_count++] = (struct model_wait){block->uses[i], block, false};
        block->event_count++;
    }
    block->use_count = 0;
}

static void deferred_finish(struct alloc_model *model)
{
    for (size_t i = 0; i < model->deferred.count; i++) {
        struct model_block *block = model->deferred.items[i];
        unsigned kept = 0;

        for (unsigned j = 0; j < block->use_count; j++) {
            if (!block->use_is_captured[j]) {
                block->uses[kept++] = block->uses[j];
            }
        }
        block->use_count = kept;
        waits_add(model, block);
        if (!block->event_count) {
            block_release(model, block);
        }
    }
    model->deferred.count = 0;
}

static void wait_end(struct alloc_model *model, size_t index)
{
    struct model_block *block = model->waits[index].block;

    model->wait_count--;
    memmove(&model->waits[index], &model->waits[index + 1],
            (model->wait_count - index) * sizeof(*model->waits));
    block->event_count--;
    if (!block->event_count) {
        block_release(model, block);
    }
}

/* The oldest wait of the queue with the smallest stream from `stream` on; false: none. */
static bool wait_find(const struct alloc_model *model, uint64_t stream, size_t *index_out)
{
    bool is_found = false;

    for (size_t i = 0; i < model->wait_count; i++) {
        uint64_t other = model->waits[i].stream;

        if (other >= stream && (!is_found || other < model->waits[*index_out].stream)) {
            *index_out = i;
            is_found = true;
        }
    }
    return is_found;
}

static void waits_process(struct alloc_model *model, bool is_synchronizing)
{
    uint64_t stream = 0;
    size_t index = 0;

    deferred_finish(model);
    while (wait_find(model, stream, &index)) {
        stream = model->waits[index].stream;
        if (is_synchronizing || model->waits[index].is_complete) {
            wait_end(model, index);
        } else if (stream == UINT64_MAX) {
            return;
        } else {
            stream++;
        }
    }
}

static struct model_block *block_find(const struct alloc_model *model, uint64_t addr)
{
    for (size_t i = 0; i < model->active.count; i++) {
        if (model->active.items[i]->addr == addr && model->active.items[i]->is_allocated) {
            return model->active.items[i];
        }
    }
    return NULL;
}

int alloc_model_free(struct alloc_model *model, uint64_t addr)
{
    struct model_block *block = block_find(model, addr);

    if (addr == 0) {
        return VARVE_OK;
    }
    if (!block) {
        return VARVE_ERROR_NOT_FOUND;
    }
    block->is_allocated = false;
    alloc_model_stats_add(model->stats.allocation, block->pool, -1);
    alloc_model_stats_add(model->stats.allocated_bytes, block->pool, -(int64_t)block->size);
    alloc_model_emit(model, VARVE_KIND_FREE_REQUESTED, block->addr, block->size, block->requested);
    if (block->size >= model->config.max_split_size) {
        alloc_model_stat_add(&model->stats.oversize_allocations, -1);
    }
    if (!block->use_count) {
        block_release(model, block);
    } else if (model->capture_count) {
        alloc_model_list_add(&model->deferred, block);
    } else {
        waits_add(model, block);
    }
    return VARVE_OK;
}

int alloc_model_record_stream(struct alloc_model *model, uint64_t addr, uint64_t stream)
{
    struct model_block *block = block_find(model, addr);
    unsigned i = 0;

    if (!block) {
        return VARVE_ERROR_NOT_FOUND;
    }
    if (stream == block->stream) {
        return VARVE_OK;
    }
    while (i < block->use_count && block->uses[i] != stream) {
        i++;
    }
    if (i == block->use_count) {
        alloc_model_require(i < MODEL_USES);
        block->uses[i] = stream;
        block->use_is_captured[i] = false;
        block->use_count++;
    }
    if (model->capture_count) {
        block->use_is_captured[i] = true;
    }
    return VARVE_OK;
}

/* ---- the chain ---- */

static uint64_t expandable_size(const struct model_block *block)
{
    return block->size + (block->next && !block->next->is_mapped ? block->next->size : 0);
}

static struct model_block *expandable_choose(const struct model_request *request, struct model_block *block)
{
    const struct model_list *list = &request->pool->free;
    struct model_block *next = alloc_model_list_next(list, block);

    if (!request->is_expandable) {
        while (next && next->base && next->stream == request->stream) {
            next = alloc_model_list_next(list, next);
        }
        return next && next->stream == request->stream ? next : NULL;
    }
    while (block->base && next && next->stream == request->stream &&
           expandable_size(next) < expandable_size(block)) {
        block = next;
        next = alloc_model_list_next(list, block);
    }
    return block;
}

static bool is_collecting(const struct alloc_model *model)
{
    return model->limit && model->config.garbage_collection_threshold > 0;
}

static bool cache_search(struct alloc_model *model, struct model_request *request)
{
    uint64_t limit = model->config.max_split_size;
    struct model_block *block;

    if (is_collecting(model)) {
        request->pool->searches++;
    }
    block = alloc_model_list_after(&request->pool->free, request->stream, request->size, 0, true);
    if (!block || block->stream != request->stream) {
        return false;
    }
    if (block->base) {
        block = expandable_choose(request, block);
        if (!block) {
            return false;
        }
    }
    if (request->size < limit && block->size >= limit) {
        return false;
    }
    if (request->size >= limit && block->size >= request->size + model->config.max_non_split_rounding_size) {
        return false;
    }
    alloc_model_list_remove(&request->pool->free, block);
    request->block = block;
    return true;
}

static bool callback_search(struct alloc_model *model, struct model_request *request)
{
    return model->options.miss && model->options.miss(model->options.context) && cache_search(model, request);
}

static bool fallback_search(struct alloc_model *model, struct model_request *request)
{
    if (request->pool->owner) {
        return false;
    }
    for (struct model_private *private = model->privates; private; private = private->next) {
        struct model_request other = *request;

        other.pool = request->pool->is_small ? &private->small : &private->large;
        other.is_expandable = false;
        if (private->is_use_on_oom && cache_search(model, &other)) {
            *request = other;
            return true;
        }
    }
    return false;
}

/* The pool without references that came to it next after `left_at`. */
static struct model_private *freeable_after(const struct alloc_model *model, uint64_t left_at)
{
    struct model_private *best = NULL;

    for (struct model_private *private = model->privates; private; private = private->next) {
        if (private->references == 0 && private->left_at > left_at &&
            (!best || private->left_at < best->left_at)) {
            best = private;
        }
    }
    return best;
}

static void cached_release(struct alloc_model *model)
{
    struct model_private *private = freeable_after(model, 0);

    if (!model->capture_count) {
        model->stats.num_sync_all_streams++;
        waits_process(model, true);
        alloc_model_release_pool_blocks(model, &model->large);
        alloc_model_release_pool_blocks(model, &model->small);
    }
    while (private) {
        struct model_private *next = freeable_after(model, private->left_at);

        alloc_model_release_pool_blocks(model, &private->small);
        alloc_model_release_pool_blocks(model, &private->large);
        alloc_model_private_erase(model, private);
        private = next;
    }
}

void alloc_model_empty_cache(struct alloc_model *model)
{
    cached_release(model);
}

static int miss_serve(struct alloc_model *model, struct model_request *request)
{
    int error;

    if (is_collecting(model)) {
        alloc_model_collect_garbage(model);
    }
    error = alloc_model_segment_new(model, request, false);
    if (error == VARVE_ERROR_NO_MEMORY && fallback_search(model, request)) {
        error = VARVE_OK;
    }
    if (error == VARVE_ERROR_NO_MEMORY && alloc_model_release_available(model, request)) {
        error = alloc_model_segment_new(model, request, false);
    }
    if (error == VARVE_ERROR_NO_MEMORY && !model->capture_count) {
        cached_release(model);
        error = alloc_model_segment_new(model, request, true);
    }
    if (error == VARVE_ERROR_NO_MEMORY) {
        alloc_model_emit(model, VARVE_KIND_OOM, 0, request->size,
                         (uint64_t)model->stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].current);
        model->stats.num_ooms++;
    }
    return error;
}

static bool must_split(const struct alloc_model *model, const struct model_request *request)
{
    uint64_t rest = request->block->size - request->size;

    if (request->pool->owner && request->pool->owner->is_no_split) {
        return false;
    }
    if (request->pool->is_small || request->is_expandable) {
        return rest >= 512;
    }
    return request->size < model->config.max_split_size && rest > MODEL_MIB;
}

/* The front becomes a new block; the old one is what remains. */
static void front_split(struct alloc_model *model, struct model_request *request)
{
    struct model_block *rest = request->block;
    struct model_block *front = alloc_model_block_new(rest->pool, rest->stream, rest->addr, request->size);
    bool was_split = alloc_model_block_is_split(rest);

    front->base = rest->base;
    front->prev = rest->prev;
    front->next = rest;
    if (front->prev) {
        front->prev->next = front;
    }
    rest->prev = front;
    rest->addr += request->size;
    rest->size -= request->size;
    alloc_model_block_insert(rest);
    if (!rest->base && was_split) {
        alloc_model_stats_add(model->stats.inactive_split_bytes, rest->pool, -(int64_t)front->size);
    } else if (!rest->base) {
        alloc_model_stats_add(model->stats.inactive_split_bytes, rest->pool, (int64_t)rest->size);
        alloc_model_stats_add(model->stats.inactive_split, rest->pool, 1);
    }
    alloc_model_emit(model, VARVE_KIND_SPLIT, front->addr, front->size, rest->size);
    request->block = front;
}

static uint64_t block_take(struct alloc_model *model, struct model_request *request)
{
    struct model_block *block = request->block;
    struct model_pool *pool = request->pool;

    if (must_split(model, request)) {
        front_split(model, request);
        block = request->block;
    } else if (!block->base && alloc_model_block_is_split(block)) {
        alloc_model_stats_add(model->stats.inactive_split_bytes, pool, -(int64_t)block->size);
        alloc_model_stats_add(model->stats.inactive_split, pool, -1);
    }
    block->is_allocated = true;
    block->requested = request->requested;
    alloc_model_emit(model, VARVE_KIND_ALLOC, block->addr, block->size, block->requested);
    alloc_model_list_add(&model->active, block);
    alloc_model_stats_add(model->stats.allocation, pool, 1);
    alloc_model_stats_add(model->stats.allocated_bytes, pool, (int64_t)block->size);
    alloc_model_stats_add(model->stats.active, pool, 1);
    alloc_model_stats_add(model->stats.active_bytes, pool, (int64_t)block->size);
    alloc_model_stats_add(model->stats.requested_bytes, pool, (int64_t)block->requested);
    if (block->size >= model->config.max_split_size) {
        alloc_model_stat_add(&model->stats.oversize_allocations, 1);
    }
    return block->addr;
}

int alloc_model_alloc(struct alloc_model *model, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    struct model_request request = {.requested = bytes, .stream = stream};

    *addr_out = 0;
    if (bytes == 0) {
        return VARVE_OK;
    }
    if (bytes >= UINT64_C(1) << 60) {
        return VARVE_ERROR_INVALID;
    }
    if (!model->capture_count) {
        waits_process(model, false);
    }
    request.size = alloc_model_size_round(&model->config, bytes);
    request.segment_size = alloc_model_segment_size(&model->config, request.size);
    request.pool = alloc_model_pool_for(model, request.size, stream);
    request.is_expandable = model->config.expandable_segments;
    if (!cache_search(model, &request) && !callback_search(model, &request)) {
        int error = miss_serve(model, &request);

        if (error) {
            return error;
        }
    }
    *addr_out = block_take(model, &request);
    return VARVE_OK;
}
