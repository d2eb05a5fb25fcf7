/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's model and its device memory: ordinary segments, expandable segments that are mapped and
 * unmapped in units, garbage collection by age, and the two ways of releasing cached blocks.
 */
#include "support/alloc/model_internal.h"

#define MODEL_SMALL_UNIT UINT64_C(0x200000)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void reserved_add(struct alloc_model *model, const struct model_pool *pool, int64_t change)
{
    model->reserved += (uint64_t)change;
    alloc_model_stats_add(model->stats.reserved_bytes, pool, change);
}

/* ---- expandable segments ---- */

static uint64_t unit_of(const struct alloc_model *model, const struct model_pool *pool)
{
    return pool->is_small ? MODEL_SMALL_UNIT : model->config.large_segment_size;
}

static int units_take(struct alloc_model *model, uint64_t unit, uint64_t count)
{
    int error;

    for (uint64_t i = 0; i < count; i++) {
        error = alloc_model_device_take(model, VARVE_DEVICE_VMM_CREATE, unit);
        if (error) {
            model->device_used -= i * unit;
            return error;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        alloc_model_require(alloc_model_device_call(model, VARVE_DEVICE_VMM_MAP) == VARVE_OK);
    }
    alloc_model_require(alloc_model_device_call(model, VARVE_DEVICE_VMM_SET_ACCESS) == VARVE_OK);
    return VARVE_OK;
}

static int block_map(struct alloc_model *model, struct model_block *block, uint64_t size)
{
    uint64_t unit = unit_of(model, block->pool);
    uint64_t mapped = round_up(size, unit);
    uint64_t addr = block->addr;
    int error;

    alloc_model_require(!block->is_mapped && (addr - block->base) % unit == 0 && mapped <= block->size);
    error = units_take(model, unit, mapped / unit);
    if (error) {
        return error;
    }
    alloc_model_list_remove(&block->pool->unmapped, block);
    if (mapped < block->size) {
        alloc_model_list_add(&block->pool->unmapped, alloc_model_block_cut(block, block->size - mapped));
    }
    block->is_mapped = true;
    alloc_model_emit(model, VARVE_KIND_SEGMENT_MAP, addr, mapped, 0);
    alloc_model_block_merge(model, block, block->prev);
    alloc_model_block_merge(model, block, block->next);
    alloc_model_block_insert(block);
    reserved_add(model, block->pool, (int64_t)mapped);
    model->stats.num_device_alloc++;
    return VARVE_OK;
}

static bool is_allocatable(const struct model_block *block)
{
    return block && !block->is_allocated && !block->event_count && !block->use_count;
}

static bool has_room(const struct model_block *block, uint64_t size)
{
    uint64_t sum = 0;

    while (sum < size && is_allocatable(block)) {
        sum += block->size;
        block = block->next;
    }
    return sum >= size;
}

/* The unmapped block of that stream with the next higher address. */
static struct model_block *unmapped_after(const struct model_list *list, uint64_t stream, uint64_t addr)
{
    struct model_block *best = NULL;

    for (size_t i = 0; i < list->count; i++) {
        struct model_block *block = list->items[i];

        if (block->stream == stream && block->addr > addr && (!best || block->addr < best->addr)) {
            best = block;
        }
    }
    return best;
}

static int expandable_find(struct alloc_model *model, const struct model_request *request,
                           struct model_block **block_out)
{
    struct model_pool *pool = request->pool;
    uint64_t unit = unit_of(model, pool);
    uint64_t total = model->options.total;
    uint64_t bytes = round_up(total + total / 8, unit);
    struct model_block *block = unmapped_after(&pool->unmapped, request->stream, 0);
    int error;

    for (; block; block = unmapped_after(&pool->unmapped, request->stream, block->addr)) {
        struct model_block *start = is_allocatable(block->prev) ? block->prev : block;

        if (has_room(start, request->size)) {
            *block_out = start;
            return VARVE_OK;
        }
    }
    error = alloc_model_device_call(model, VARVE_DEVICE_VMM_RESERVE);
    if (error) {
        return error;
    }
    block = alloc_model_block_new(pool, request->stream,
                                  model->options.place(model->options.context, bytes, request->stream, true),
                                  bytes);
    block->base = block->addr;
    block->is_mapped = false;
    alloc_model_list_add(&pool->unmapped, block);
    *block_out = block;
    return VARVE_OK;
}

static int expandable_new(struct alloc_model *model, struct model_request *request)
{
    struct model_block *block = NULL;
    int error = expandable_find(model, request, &block);

    if (!error && !block->is_mapped) {
        error = block_map(model, block, minimum(block->size, request->size));
    }
    while (!error && block->size < request->size) {
        struct model_block *next = block->next;

        if (!next) { /* larger than any reservation */
            return VARVE_ERROR_NO_MEMORY;
        }
        error = block_map(model, next, minimum(request->size - block->size, next->size));
        if (!error) {
            block = next;
        }
    }
    if (error) {
        return error;
    }
    alloc_model_list_remove(&request->pool->free, block);
    request->block = block;
    return VARVE_OK;
}

/* What the device's streams have done by the time a synchronisation returns. */
void alloc_model_stream_complete(struct alloc_model *model, uint64_t stream)
{
    for (size_t i = 0; i < model->wait_count; i++) {
        if (model->waits[i].stream == stream) {
            model->waits[i].is_complete = true;
        }
    }
}

static void block_unmap(struct alloc_model *model, struct model_block *block)
{
    struct model_pool *pool = block->pool;
    uint64_t unit = unit_of(model, pool);
    uint64_t end = block->addr + block->size;
    uint64_t first = block->base + round_up(block->addr - block->base, unit);
    uint64_t last = block->base + (end - block->base) / unit * unit;

    if (last <= first) {
        return;
    }
    alloc_model_stream_complete(model, block->stream);
    model->device_used -= last - first;
    alloc_model_list_remove(&pool->free, block);
    if (first > block->addr) {
        struct model_block *before =
            alloc_model_block_new(pool, block->stream, block->addr, first - block->addr);

        before->base = block->base;
        before->prev = block->prev;
        before->next = block;
        if (before->prev) {
            before->prev->next = before;
        }
        block->prev = before;
        block->addr = first;
        block->size = end - first;
        alloc_model_block_insert(before);
    }
    if (last < end) {
        alloc_model_block_insert(alloc_model_block_cut(block, end - last));
    }
    block->is_mapped = false;
    alloc_model_block_merge(model, block, block->prev);
    alloc_model_block_merge(model, block, block->next);
    alloc_model_list_add(&pool->unmapped, block);
    reserved_add(model, pool, -(int64_t)(last - first));
    model->stats.num_device_free++;
    alloc_model_emit(model, VARVE_KIND_SEGMENT_UNMAP, first, last - first, 0);
}

/* ---- ordinary segments ---- */

static bool is_oversize(const struct alloc_model *model, uint64_t size)
{
    return size >= model->config.max_split_size;
}

int alloc_model_segment_new(struct alloc_model *model, struct model_request *request, bool is_retry)
{
    struct model_pool *pool = request->pool;
    uint64_t size = request->segment_size;
    int error;

    if (is_retry) {
        model->stats.num_alloc_retries++;
    }
    if (model->limit && model->reserved + size > model->limit) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (request->is_expandable) {
        error = expandable_new(model, request);
    } else {
        error = alloc_model_device_take(model, VARVE_DEVICE_SEGMENT_ALLOC, size);
    }
    if (error) {
        return error;
    }
    if (request->is_expandable) {
        return VARVE_OK;
    }
    request->block = alloc_model_block_new(
        pool, request->stream, model->options.place(model->options.context, size, request->stream, false),
        size);
    alloc_model_stats_add(model->stats.segment, pool, 1);
    reserved_add(model, pool, (int64_t)size);
    if (is_oversize(model, size)) {
        alloc_model_stat_add(&model->stats.oversize_segments, 1);
    }
    model->stats.num_device_alloc++;
    alloc_model_emit(model, VARVE_KIND_SEGMENT_ALLOC, request->block->addr, size, request->requested);
    return VARVE_OK;
}

static void segment_release(struct alloc_model *model, struct model_block *block)
{
    struct model_pool *pool = block->pool;

    model->stats.num_device_free++;
    alloc_model_emit(model, VARVE_KIND_SEGMENT_FREE, block->addr, block->size, 0);
    model->device_used -= block->size;
    model->options.gone(model->options.context, block->addr, block->size);
    alloc_model_stats_add(model->stats.segment, pool, -1);
    reserved_add(model, pool, -(int64_t)block->size);
    if (is_oversize(model, block->size)) {
        alloc_model_stat_add(&model->stats.oversize_segments, -1);
    }
    alloc_model_list_remove(&pool->free, block);
    free(block);
}

/* ---- release ---- */

static uint64_t gc_age(const struct model_block *block)
{
    return block->pool->searches - block->freed_at;
}

void alloc_model_collect_garbage(struct alloc_model *model)
{
    const struct model_list *list = &model->large.free;
    uint64_t threshold = (uint64_t)(model->config.garbage_collection_threshold * (double)model->limit);
    uint64_t target;
    uint64_t reclaimed = 0;
    double ages = 0;
    int64_t count = 0;
    bool is_released = true;

    if (model->reserved <= threshold) {
        return;
    }
    target = model->reserved - threshold;
    for (size_t i = 0; i < list->count; i++) {
        if (!alloc_model_block_is_split(list->items[i])) {
            ages += (double)gc_age(list->items[i]);
            count++;
        }
    }
    while (reclaimed < target && is_released && count > 0) {
        double old = ages / (double)count;
        struct model_block *block = alloc_model_list_after(list, 0, 0, 0, true);

        is_released = false;
        while (block) {
            struct model_block *next = alloc_model_list_next(list, block);

            if (!block->base && !alloc_model_block_is_split(block) && (double)gc_age(block) >= old) {
                reclaimed += block->size;
                ages -= (double)gc_age(block);
                count--;
                is_released = true;
                segment_release(model, block);
            }
            block = next;
        }
    }
}

bool alloc_model_release_available(struct alloc_model *model, const struct model_request *request)
{
    uint64_t smallest = model->config.max_split_size;
    uint64_t key = request->size > smallest ? request->size : smallest;
    const struct model_list *list = &request->pool->free;
    struct model_block *block;
    uint64_t released = 0;

    if (smallest == VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    block = alloc_model_list_after(list, request->stream, key, 0, true);
    if (block && block->stream == request->stream && !block->base) {
        segment_release(model, block);
        return true;
    }
    if (block) {
        block = alloc_model_list_before(list, block->stream, block->size, block->addr);
    } else {
        block = alloc_model_list_before(list, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    }
    while (block && released < key && block->size >= smallest && block->stream == request->stream) {
        struct model_block *previous = alloc_model_list_before(list, block->stream, block->size, block->addr);

        if (!block->base) {
            released += block->size;
            segment_release(model, block);
        }
        block = previous;
    }
    return released >= key;
}

void alloc_model_release_pool_blocks(struct alloc_model *model, struct model_pool *pool)
{
    struct model_list expandable = {0};
    struct model_block *block = alloc_model_list_after(&pool->free, 0, 0, 0, true);

    while (block) {
        struct model_block *next = alloc_model_list_next(&pool->free, block);

        if (block->base) {
            alloc_model_list_add(&expandable, block);
        } else if (!alloc_model_block_is_split(block)) {
            segment_release(model, block);
        }
        block = next;
    }
    for (size_t i = 0; i < expandable.count; i++) {
        block = expandable.items[i];
        block_unmap(model, block);
        if (!alloc_model_block_is_split(block)) {
            alloc_model_require(!block->is_mapped);
            alloc_model_list_remove(&pool->unmapped, block);
            model->options.gone(model->options.context, block->addr, block->size);
            free(block);
        }
    }
    free(expandable.items);
}
