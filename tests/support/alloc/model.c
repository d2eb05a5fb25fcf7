/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's model, from its smallest parts up: lists that are searched from end to end, blocks, the device as a
 * counter; segments and releases; private pools and figures; requests, frees, and the chain that a request goes through
 * when its pool has nothing. See model.h.
 */
#include "support/alloc/model.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_MIB UINT64_C(0x100000)
#define MODEL_USES 16U  /* streams that one block can be recorded for */
#define MODEL_RULES 32U /* scripted failures that wait */

struct model_pool;

struct model_block {
    struct model_block *prev, *next; /* by address in the segment */
    struct model_pool *pool;
    uint64_t stream, addr, size, requested;
    uint64_t freed_at;
    uint64_t uses[MODEL_USES];        /* streams the block was recorded for */
    bool use_is_captured[MODEL_USES]; /* … while a pool was being allocated to */
    unsigned use_count;
    unsigned event_count;
    bool is_allocated, is_mapped;
    uint64_t
        base; /* of an expandable segment's addresses, which its units count from; 0: an ordinary segment */
};

/* Blocks in no order. */
struct model_list {
    struct model_block **items;
    size_t count, capacity;
};

struct model_private;

struct model_pool {
    struct model_list free, unmapped;
    uint64_t searches; /* the GC's clock */
    bool is_small;
    struct model_private *owner; /* NULL: the default pool */
};

struct model_private {
    struct model_private *next; /* ascending ids */
    struct varve_pool_id id;
    struct model_pool large, small;
    int64_t references;
    uint64_t left_at; /* when the references came to 0; pools are released in that order */
    bool is_no_split, is_use_on_oom;
};

struct model_capture {
    struct varve_pool_id id;
    bool (*filter)(void *context, uint64_t stream);
    void *context;
};

/* An event that a stream has been given and a freed block waits for. */
struct model_wait {
    uint64_t stream;
    struct model_block *block;
    bool is_complete;
};

struct model_rule {
    enum varve_device_call call;
    uint64_t first, last; /* calls, counted from 1 */
    int error;
};

struct alloc_model {
    struct alloc_model_options options;
    struct varve_alloc_config config;
    uint64_t limit; /* 0: none */
    struct model_pool large, small;
    struct model_private *privates;
    uint64_t leaves;                   /* how often a pool's references came to 0 */
    struct model_capture captures[32]; /* newest last */
    size_t capture_count;
    struct model_list active, deferred;
    struct model_wait *waits; /* oldest first */
    size_t wait_count, wait_capacity;
    struct varve_alloc_stats stats;
    uint64_t reserved; /* what limit and GC go by */
    struct alloc_model_event *events;
    size_t event_count, event_capacity;
    uint64_t device_used;
    uint64_t calls[VARVE_DEVICE_CALL_LIMIT];
    struct model_rule rules[MODEL_RULES];
    size_t rule_count;
};

/* One request on its way. */
struct model_request {
    uint64_t requested, size, segment_size, stream;
    struct model_pool *pool;
    struct model_block *block;
    bool is_expandable;
};

static void require(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

void *alloc_model_grow(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        items = realloc(items, *capacity * item_size);
        require(items != NULL);
    }
    return items;
}

/* ---- sizes ---- */

static unsigned log2_floor(uint64_t value)
{
    unsigned result = 0;

    while (value > 1) {
        value /= 2;
        result++;
    }
    return result;
}

static uint64_t size_round(const struct varve_alloc_config *config, uint64_t size)
{
    unsigned exponent = log2_floor(size);
    unsigned index = exponent < 20 ? 0 : exponent - 20;
    uint64_t divisions;
    uint64_t step;

    if (size < 512) {
        return 512;
    }
    divisions = config->roundup_power2_divisions[index < 15 ? index : 15];
    if (divisions <= 1 || size <= 512 * divisions) {
        return (size + 511) / 512 * 512;
    }
    step = (UINT64_C(1) << exponent) >> log2_floor(divisions);
    if (size == UINT64_C(1) << exponent) {
        return size;
    }
    if (step == 0) {
        return UINT64_C(2) << exponent;
    }
    return (size + step - 1) / step * step;
}

static uint64_t segment_size_of(const struct varve_alloc_config *config, uint64_t size)
{
    if (size <= MODEL_MIB) {
        return 2 * MODEL_MIB;
    }
    if (size < 10 * MODEL_MIB) {
        return config->large_segment_size;
    }
    return (size + 2 * MODEL_MIB - 1) / (2 * MODEL_MIB) * (2 * MODEL_MIB);
}

/* ---- lists ---- */

static void list_add(struct model_list *list, struct model_block *block)
{
    list->items = alloc_model_grow(list->items, list->count, &list->capacity, sizeof(*list->items));
    list->items[list->count++] = block;
}

static void list_remove(struct model_list *list, const struct model_block *block)
{
    size_t i = 0;

    while (i < list->count && list->items[i] != block) {
        i++;
    }
    require(i < list->count);
    list->count--;
    memmove(&list->items[i], &list->items[i + 1], (list->count - i) * sizeof(struct model_block *));
}

/* As memcmp: the order of the free lists. */
static int key_compare(const struct model_block *block, uint64_t stream, uint64_t size, uint64_t addr)
{
    if (block->stream != stream) {
        return block->stream < stream ? -1 : 1;
    }
    if (block->size != size) {
        return block->size < size ? -1 : 1;
    }
    if (block->addr != addr) {
        return block->addr < addr ? -1 : 1;
    }
    return 0;
}

static struct model_block *list_after(const struct model_list *list, uint64_t stream, uint64_t size,
                                      uint64_t addr, bool is_key_included)
{
    struct model_block *best = NULL;

    for (size_t i = 0; i < list->count; i++) {
        struct model_block *block = list->items[i];

        if (key_compare(block, stream, size, addr) + (is_key_included ? 1 : 0) > 0 &&
            (!best || key_compare(block, best->stream, best->size, best->addr) < 0)) {
            best = block;
        }
    }
    return best;
}

static struct model_block *list_next(const struct model_list *list, const struct model_block *block)
{
    return list_after(list, block->stream, block->size, block->addr, false);
}

static struct model_block *list_before(const struct model_list *list, uint64_t stream, uint64_t size,
                                       uint64_t addr)
{
    struct model_block *best = NULL;

    for (size_t i = 0; i < list->count; i++) {
        struct model_block *block = list->items[i];

        if (key_compare(block, stream, size, addr) < 0 &&
            (!best || key_compare(block, best->stream, best->size, best->addr) > 0)) {
            best = block;
        }
    }
    return best;
}

/* ---- events and statistics ---- */

static void emit(struct alloc_model *model, unsigned kind, uint64_t addr, uint64_t size, uint64_t requested)
{
    model->events =
        alloc_model_grow(model->events, model->event_count, &model->event_capacity, sizeof(*model->events));
    model->events[model->event_count++] = (struct alloc_model_event){kind, addr, size, requested};
}

static void stat_add(struct varve_alloc_stat *stat, int64_t change)
{
    stat->current += change;
    if (change < 0) {
        stat->freed -= change;
    } else {
        stat->allocated += change;
        if (stat->current > stat->peak) {
            stat->peak = stat->current;
        }
    }
}

static void stats_add(struct varve_alloc_stat *stats, const struct model_pool *pool, int64_t change)
{
    stat_add(&stats[VARVE_ALLOC_STAT_ALL], change);
    stat_add(&stats[pool->is_small ? VARVE_ALLOC_STAT_SMALL_POOL : VARVE_ALLOC_STAT_LARGE_POOL], change);
}

/* ---- blocks ---- */

static struct model_block *block_new(struct model_pool *pool, uint64_t stream, uint64_t addr, uint64_t size)
{
    struct model_block *block = calloc(1, sizeof(*block));

    require(block != NULL);
    block->pool = pool;
    block->stream = stream;
    block->addr = addr;
    block->size = size;
    block->is_mapped = true;
    return block;
}

static bool block_is_split(const struct model_block *block)
{
    return block->prev || block->next;
}

static void block_insert(struct model_block *block)
{
    block->freed_at = block->pool->searches;
    list_add(&block->pool->free, block);
}

/* Cut the last `size` bytes off into a new block behind `block`, in no list. */
static struct model_block *block_cut(struct model_block *block, uint64_t size)
{
    struct model_block *rest;

    require(size > 0 && size < block->size);
    rest = block_new(block->pool, block->stream, block->addr + block->size - size, size);
    rest->is_mapped = block->is_mapped;
    rest->base = block->base;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next) {
        rest->next->prev = rest;
    }
    block->next = rest;
    block->size -= size;
    return rest;
}

/* The same of its first `size` bytes. */
static struct model_block *block_cut_front(struct model_block *block, uint64_t size)
{
    struct model_block *front = block_new(block->pool, block->stream, block->addr, size);

    front->is_mapped = block->is_mapped;
    front->base = block->base;
    front->prev = block->prev;
    front->next = block;
    if (front->prev) {
        front->prev->next = front;
    }
    block->prev = front;
    block->addr += size;
    block->size -= size;
    return front;
}

static uint64_t block_merge(struct alloc_model *model, struct model_block *block,
                            struct model_block *neighbour)
{
    uint64_t size;
    uint64_t addr;

    if (!neighbour || neighbour->is_allocated || neighbour->event_count || neighbour->use_count ||
        neighbour->is_mapped != block->is_mapped) {
        return 0;
    }
    size = neighbour->size;
    addr = neighbour->addr;
    if (neighbour == block->prev) {
        require(addr + size == block->addr);
        block->addr = addr;
        block->prev = neighbour->prev;
        if (block->prev) {
            block->prev->next = block;
        }
    } else {
        require(block->addr + block->size == addr);
        block->next = neighbour->next;
        if (block->next) {
            block->next->prev = block;
        }
    }
    block->size += size;
    list_remove(neighbour->is_mapped ? &block->pool->free : &block->pool->unmapped, neighbour);
    free(neighbour);
    if (block->is_mapped) { /* unmapped address space is no free block */
        emit(model, VARVE_KIND_MERGE, block->addr, block->size, size);
    }
    return size;
}

/* ---- the device ---- */

static int device_call(struct alloc_model *model, enum varve_device_call call)
{
    uint64_t number = ++model->calls[call];

    for (size_t i = 0; i < model->rule_count; i++) {
        const struct model_rule *rule = &model->rules[i];

        if (rule->call == call && number >= rule->first && number <= rule->last) {
            return rule->error;
        }
    }
    return VARVE_OK;
}

static int device_take(struct alloc_model *model, enum varve_device_call call, uint64_t bytes)
{
    int error = device_call(model, call);

    if (error) {
        return error;
    }
    if (model->options.capacity && bytes > model->options.capacity - model->device_used) {
        return VARVE_ERROR_NO_MEMORY;
    }
    model->device_used += bytes;
    return VARVE_OK;
}

bool alloc_model_fail(struct alloc_model *model, enum varve_device_call call, uint64_t nth, uint64_t count,
                      int error)
{
    size_t kept = 0;

    for (size_t i = 0; i < model->rule_count; i++) {
        if (model->rules[i].last > model->calls[model->rules[i].call]) {
            model->rules[kept++] = model->rules[i];
        }
    }
    model->rule_count = kept;
    if (kept == MODEL_RULES) {
        return false;
    }
    model->rules[model->rule_count++] =
        (struct model_rule){call, model->calls[call] + nth, model->calls[call] + nth + count - 1, error};
    return true;
}

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
    stats_add(model->stats.reserved_bytes, pool, change);
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
        error = device_take(model, VARVE_DEVICE_VMM_CREATE, unit);
        if (error) {
            model->device_used -= i * unit;
            return error;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        require(device_call(model, VARVE_DEVICE_VMM_MAP) == VARVE_OK);
    }
    require(device_call(model, VARVE_DEVICE_VMM_SET_ACCESS) == VARVE_OK);
    return VARVE_OK;
}

static int block_map(struct alloc_model *model, struct model_block *block, uint64_t size)
{
    uint64_t unit = unit_of(model, block->pool);
    uint64_t mapped = round_up(size, unit);
    uint64_t addr = block->addr;
    int error;

    require(!block->is_mapped && (addr - block->base) % unit == 0 && mapped <= block->size);
    error = units_take(model, unit, mapped / unit);
    if (error) {
        return error;
    }
    list_remove(&block->pool->unmapped, block);
    if (mapped < block->size) {
        list_add(&block->pool->unmapped, block_cut(block, block->size - mapped));
    }
    block->is_mapped = true;
    emit(model, VARVE_KIND_SEGMENT_MAP, addr, mapped, 0);
    block_merge(model, block, block->prev);
    block_merge(model, block, block->next);
    block_insert(block);
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
    error = device_call(model, VARVE_DEVICE_VMM_RESERVE);
    if (error) {
        return error;
    }
    block = block_new(pool, request->stream,
                      model->options.place(model->options.context, bytes, request->stream, true), bytes);
    block->base = block->addr;
    block->is_mapped = false;
    list_add(&pool->unmapped, block);
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
    list_remove(&request->pool->free, block);
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
    list_remove(&pool->free, block);
    if (first > block->addr) {
        block_insert(block_cut_front(block, first - block->addr));
    }
    if (last < end) {
        block_insert(block_cut(block, end - last));
    }
    block->is_mapped = false;
    block_merge(model, block, block->prev);
    block_merge(model, block, block->next);
    list_add(&pool->unmapped, block);
    reserved_add(model, pool, -(int64_t)(last - first));
    model->stats.num_device_free++;
    emit(model, VARVE_KIND_SEGMENT_UNMAP, first, last - first, 0);
}

/* ---- ordinary segments ---- */

static bool is_oversize(const struct alloc_model *model, uint64_t size)
{
    return size >= model->config.max_split_size;
}

static int segment_new(struct alloc_model *model, struct model_request *request, bool is_retry)
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
        error = device_take(model, VARVE_DEVICE_SEGMENT_ALLOC, size);
    }
    if (error) {
        return error;
    }
    if (request->is_expandable) {
        return VARVE_OK;
    }
    request->block =
        block_new(pool, request->stream,
                  model->options.place(model->options.context, size, request->stream, false), size);
    stats_add(model->stats.segment, pool, 1);
    reserved_add(model, pool, (int64_t)size);
    if (is_oversize(model, size)) {
        stat_add(&model->stats.oversize_segments, 1);
    }
    model->stats.num_device_alloc++;
    emit(model, VARVE_KIND_SEGMENT_ALLOC, request->block->addr, size, request->requested);
    return VARVE_OK;
}

static void segment_release(struct alloc_model *model, struct model_block *block)
{
    struct model_pool *pool = block->pool;

    model->stats.num_device_free++;
    emit(model, VARVE_KIND_SEGMENT_FREE, block->addr, block->size, 0);
    model->device_used -= block->size;
    model->options.gone(model->options.context, block->addr, block->size);
    stats_add(model->stats.segment, pool, -1);
    reserved_add(model, pool, -(int64_t)block->size);
    if (is_oversize(model, block->size)) {
        stat_add(&model->stats.oversize_segments, -1);
    }
    list_remove(&pool->free, block);
    free(block);
}

/* ---- release ---- */

static uint64_t gc_age(const struct model_block *block)
{
    return block->pool->searches - block->freed_at;
}

static void collect_garbage(struct alloc_model *model)
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
        if (!block_is_split(list->items[i])) {
            ages += (double)gc_age(list->items[i]);
            count++;
        }
    }
    while (reclaimed < target && is_released && count > 0) {
        double old = ages / (double)count;
        struct model_block *block = list_after(list, 0, 0, 0, true);

        is_released = false;
        while (block) {
            struct model_block *next = list_next(list, block);

            if (!block->base && !block_is_split(block) && (double)gc_age(block) >= old) {
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

static bool release_available(struct alloc_model *model, const struct model_request *request)
{
    uint64_t smallest = model->config.max_split_size;
    uint64_t key = request->size > smallest ? request->size : smallest;
    const struct model_list *list = &request->pool->free;
    struct model_block *block;
    uint64_t released = 0;

    if (smallest == VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    block = list_after(list, request->stream, key, 0, true);
    if (block && block->stream == request->stream && !block->base) {
        segment_release(model, block);
        return true;
    }
    if (block) {
        block = list_before(list, block->stream, block->size, block->addr);
    } else {
        block = list_before(list, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    }
    while (block && released < key && block->size >= smallest && block->stream == request->stream) {
        struct model_block *previous = list_before(list, block->stream, block->size, block->addr);

        if (!block->base) {
            released += block->size;
            segment_release(model, block);
        }
        block = previous;
    }
    return released >= key;
}

static void release_pool_blocks(struct alloc_model *model, struct model_pool *pool)
{
    struct model_list expandable = {0};
    struct model_block *block = list_after(&pool->free, 0, 0, 0, true);

    while (block) {
        struct model_block *next = list_next(&pool->free, block);

        if (block->base) {
            list_add(&expandable, block);
        } else if (!block_is_split(block)) {
            segment_release(model, block);
        }
        block = next;
    }
    for (size_t i = 0; i < expandable.count; i++) {
        block = expandable.items[i];
        block_unmap(model, block);
        if (!block_is_split(block)) {
            require(!block->is_mapped);
            list_remove(&pool->unmapped, block);
            model->options.gone(model->options.context, block->addr, block->size);
            free(block);
        }
    }
    free(expandable.items);
}

/* ---- opening ---- */

static void limit_set(struct alloc_model *model, double fraction)
{
    model->limit = fraction < 1 ? (uint64_t)(fraction * (double)model->options.total) : 0;
}

struct alloc_model *alloc_model_open(const struct alloc_model_options *options)
{
    struct alloc_model *model = calloc(1, sizeof(*model));

    require(model != NULL);
    model->options = *options;
    model->config = options->config;
    model->small.is_small = true;
    model->stats.max_split_size =
        model->config.max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)model->config.max_split_size;
    limit_set(model, model->config.memory_fraction);
    if (options->memory_limit) {
        model->limit = options->memory_limit;
    }
    return model;
}

static void list_close(struct model_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
}

static void pool_close(struct model_pool *pool)
{
    list_close(&pool->free);
    list_close(&pool->unmapped);
}

void alloc_model_close(struct alloc_model *model)
{
    pool_close(&model->large);
    pool_close(&model->small);
    while (model->privates) {
        struct model_private *private = model->privates;

        model->privates = private->next;
        pool_close(&private->large);
        pool_close(&private->small);
        free(private);
    }
    list_close(&model->active);
    free(model->deferred.items);
    free(model->waits);
    free(model->events);
    free(model);
}

int alloc_model_set_fraction(struct alloc_model *model, double fraction)
{
    if (!(fraction > 0 && fraction <= 1)) {
        return VARVE_ERROR_INVALID;
    }
    limit_set(model, fraction);
    return VARVE_OK;
}

void alloc_model_set_limit(struct alloc_model *model, uint64_t bytes)
{
    model->limit = bytes;
}

/* ---- private pools ---- */

static bool is_same(struct varve_pool_id a, struct varve_pool_id b)
{
    return a.capture == b.capture && a.user == b.user;
}

static struct model_private *private_find(const struct alloc_model *model, struct varve_pool_id id)
{
    struct model_private *private = model->privates;

    while (private && !is_same(private->id, id)) {
        private = private->next;
    }
    return private;
}

static struct model_private *private_new(struct alloc_model *model, struct varve_pool_id id)
{
    struct model_private *private = calloc(1, sizeof(*private));
    struct model_private **place = &model->privates;

    require(private != NULL);
    private->id = id;
    private->large.owner = private;
    private->small.owner = private;
    private->small.is_small = true;
    while (*place && ((*place)->id.capture < id.capture ||
                      ((*place)->id.capture == id.capture && (*place)->id.user < id.user))) {
        place = &(*place)->next;
    }
    private->next = *place;
    *place = private;
    return private;
}

static void private_erase(struct alloc_model *model, struct model_private *private)
{
    struct model_private **place = &model->privates;
    size_t blocks = private->large.free.count + private->large.unmapped.count + private->small.free.count +
                    private->small.unmapped.count;

    for (size_t i = 0; i < model->active.count; i++) {
        blocks += model->active.items[i]->pool->owner == private;
    }
    if (blocks != 0 || private->is_no_split || private->is_use_on_oom) {
        return;
    }
    while (*place != private) {
        place = &(*place)->next;
    }
    *place = private->next;
    pool_close(&private->large);
    pool_close(&private->small);
    free(private);
}

bool alloc_model_is_pool(const struct alloc_model *model, struct varve_pool_id id)
{
    return private_find(model, id) != NULL;
}

bool alloc_model_is_capturing(const struct alloc_model *model, struct varve_pool_id id)
{
    for (size_t i = 0; i < model->capture_count; i++) {
        if (is_same(model->captures[i].id, id)) {
            return true;
        }
    }
    return false;
}

int64_t alloc_model_references(const struct alloc_model *model, struct varve_pool_id id)
{
    const struct model_private *private = private_find(model, id);

    return private ? private->references : 0;
}

int alloc_model_begin(struct alloc_model *model, struct varve_pool_id id,
                      bool (*filter)(void *context, uint64_t stream), void *context)
{
    struct model_private *private = private_find(model, id);

    if (alloc_model_is_capturing(model, id)) {
        return VARVE_ERROR_BUSY;
    }
    require(model->capture_count < sizeof(model->captures) / sizeof(model->captures[0]));
    if (!private) {
        private = private_new(model, id);
    }
    private->references++;
    model->captures[model->capture_count++] = (struct model_capture){id, filter, context};
    return VARVE_OK;
}

int alloc_model_end(struct alloc_model *model, struct varve_pool_id id)
{
    for (size_t i = 0; i < model->capture_count; i++) {
        if (is_same(model->captures[i].id, id)) {
            model->capture_count--;
            memmove(&model->captures[i], &model->captures[i + 1],
                    (model->capture_count - i) * sizeof(model->captures[0]));
            return VARVE_OK;
        }
    }
    return VARVE_ERROR_NOT_FOUND;
}

int alloc_model_release(struct alloc_model *model, struct varve_pool_id id)
{
    struct model_private *private = private_find(model, id);

    if (!private || private->references == 0) {
        return VARVE_ERROR_NOT_FOUND;
    }
    private->references--;
    private->left_at = ++model->leaves;
    return VARVE_OK;
}

int alloc_model_set_no_split(struct alloc_model *model, struct varve_pool_id id)
{
    struct model_private *private = private_find(model, id);

    if (!private) {
        return VARVE_ERROR_NOT_FOUND;
    }
    private->is_no_split = true;
    return VARVE_OK;
}

int alloc_model_set_use_on_oom(struct alloc_model *model, struct varve_pool_id id)
{
    struct model_private *private = private_find(model, id);

    if (!private) {
        return VARVE_ERROR_NOT_FOUND;
    }
    private->is_use_on_oom = true;
    return VARVE_OK;
}

static struct model_pool *pool_for(struct alloc_model *model, uint64_t size, uint64_t stream)
{
    bool is_small = size <= MODEL_MIB;

    for (size_t i = model->capture_count; i > 0; i--) {
        const struct model_capture *capture = &model->captures[i - 1];

        if (!capture->filter || capture->filter(capture->context, stream)) {
            struct model_private *private = private_find(model, capture->id);

            return is_small ? &private->small : &private->large;
        }
    }
    return is_small ? &model->small : &model->large;
}

/* ---- figures ---- */

const struct alloc_model_event *alloc_model_events(const struct alloc_model *model, size_t *count_out)
{
    *count_out = model->event_count;
    return model->events;
}

void alloc_model_events_clear(struct alloc_model *model)
{
    model->event_count = 0;
}

const struct varve_alloc_stats *alloc_model_stats(const struct alloc_model *model)
{
    return &model->stats;
}

static void stats_each(struct varve_alloc_stats *stats, void (*change)(struct varve_alloc_stat *stat))
{
    for (unsigned i = 0; i < VARVE_ALLOC_STAT_POOLS; i++) {
#define MODEL_STAT_CHANGE(name) change(&stats->name[i]);
        VARVE_ALLOC_STAT_LIST(MODEL_STAT_CHANGE)
#undef MODEL_STAT_CHANGE
    }
    change(&stats->oversize_allocations);
    change(&stats->oversize_segments);
}

static void stat_reset_accumulated(struct varve_alloc_stat *stat)
{
    stat->allocated = 0;
    stat->freed = 0;
}

static void stat_reset_peak(struct varve_alloc_stat *stat)
{
    stat->peak = stat->current;
}

void alloc_model_reset_accumulated(struct alloc_model *model)
{
    struct varve_alloc_stats *stats = &model->stats;

    stats_each(stats, stat_reset_accumulated);
    stats->num_alloc_retries = 0;
    stats->num_ooms = 0;
    stats->num_sync_all_streams = 0;
    stats->num_device_alloc = 0;
    stats->num_device_free = 0;
}

void alloc_model_reset_peak(struct alloc_model *model)
{
    stats_each(&model->stats, stat_reset_peak);
}

/* ---- snapshots ---- */

/* First block of a contiguous mapped range. */
static bool is_head(const struct model_block *block)
{
    return block->is_mapped && (!block->prev || !block->prev->is_mapped);
}

/* Every list that mapped blocks can be in; `index` counts them, NULL: no more. */
static const struct model_list *list_at(const struct alloc_model *model, size_t index)
{
    const struct model_private *private = model->privates;

    if (index < 3) {
        return index == 0 ? &model->active : index == 1 ? &model->large.free : &model->small.free;
    }
    for (index -= 3; private && index >= 2; index -= 2) {
        private = private->next;
    }
    if (!private) {
        return NULL;
    }
    return index == 0 ? &private->large.free : &private->small.free;
}

static int head_compare(const void *a, const void *b)
{
    uint64_t left = (*(struct model_block *const *)a)->addr;
    uint64_t right = (*(struct model_block *const *)b)->addr;

    return left < right ? -1 : left > right;
}

static void segment_fill(struct varve_alloc_snapshot *snapshot, size_t *capacity,
                         const struct model_block *head)
{
    struct varve_segment_info *segment = &snapshot->segments[snapshot->segment_count++];

    *segment = (struct varve_segment_info){.addr = head->addr,
                                           .stream = head->stream,
                                           .first_block = snapshot->block_count,
                                           .is_small = head->pool->is_small,
                                           .is_expandable = head->base != 0};
    if (head->pool->owner) {
        segment->pool = head->pool->owner->id;
    }
    for (const struct model_block *block = head; block && block->is_mapped; block = block->next) {
        bool is_active = block->is_allocated || block->event_count || block->use_count;

        segment->bytes += block->size;
        segment->block_count++;
        segment->allocated_bytes += block->is_allocated ? block->size : 0;
        segment->active_bytes += is_active ? block->size : 0;
        segment->requested_bytes += is_active ? block->requested : 0;
        snapshot->blocks =
            alloc_model_grow(snapshot->blocks, snapshot->block_count, capacity, sizeof(*snapshot->blocks));
        snapshot->blocks[snapshot->block_count++] =
            (struct varve_block_info){.addr = block->addr,
                                      .bytes = block->size,
                                      .requested = block->requested,
                                      .state = block->is_allocated ? VARVE_BLOCK_ACTIVE_ALLOCATED
                                               : is_active         ? VARVE_BLOCK_ACTIVE_PENDING_FREE
                                                                   : VARVE_BLOCK_INACTIVE};
    }
}

void alloc_model_snapshot(const struct alloc_model *model, struct varve_alloc_snapshot *snapshot_out)
{
    struct varve_alloc_snapshot snapshot = {0};
    struct model_list heads = {0};
    const struct model_list *list;
    size_t capacity = 0;

    for (size_t i = 0; (list = list_at(model, i)); i++) {
        for (size_t j = 0; j < list->count; j++) {
            if (is_head(list->items[j])) {
                list_add(&heads, list->items[j]);
            }
        }
    }
    if (heads.count) {
        qsort(heads.items, heads.count, sizeof(struct model_block *), head_compare);
    }
    snapshot.segments = calloc(heads.count + 1, sizeof(*snapshot.segments));
    require(snapshot.segments != NULL);
    for (size_t i = 0; i < heads.count; i++) {
        segment_fill(&snapshot, &capacity, heads.items[i]);
    }
    free(heads.items);
    *snapshot_out = snapshot;
}

void alloc_model_snapshot_free(struct varve_alloc_snapshot *snapshot)
{
    free(snapshot->segments);
    free(snapshot->blocks);
}

void alloc_model_check(const struct alloc_model *model)
{
    struct varve_alloc_snapshot snapshot;
    const struct varve_alloc_stats *stats = &model->stats;
    uint64_t reserved = 0, allocated = 0, active = 0, requested = 0;

    alloc_model_snapshot(model, &snapshot);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];

        require(i == 0 || segment[-1].addr + segment[-1].bytes <= segment->addr);
        reserved += segment->bytes;
        allocated += segment->allocated_bytes;
        active += segment->active_bytes;
        requested += segment->requested_bytes;
    }
    require(reserved == model->reserved && reserved == model->device_used);
    require((int64_t)reserved == stats->reserved_bytes[VARVE_ALLOC_STAT_ALL].current);
    require((int64_t)allocated == stats->allocated_bytes[VARVE_ALLOC_STAT_ALL].current);
    require((int64_t)active == stats->active_bytes[VARVE_ALLOC_STAT_ALL].current);
    require((int64_t)requested == stats->requested_bytes[VARVE_ALLOC_STAT_ALL].current);
    alloc_model_snapshot_free(&snapshot);
}

/* ---- frees ---- */

static void block_release(struct alloc_model *model, struct model_block *block)
{
    uint64_t size = block->size;
    int64_t count_change = 0;
    int64_t bytes_change = 0;
    struct model_block *neighbours[2];

    require(!block->is_allocated && !block->event_count && !block->use_count);
    emit(model, VARVE_KIND_FREE_COMPLETED, block->addr, block->size, block->requested);
    neighbours[0] = block->prev;
    neighbours[1] = block->next;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t absorbed = block_merge(model, block, neighbours[i]);

        if (absorbed) {
            count_change--;
            bytes_change -= (int64_t)absorbed;
        }
    }
    list_remove(&model->active, block);
    block_insert(block);
    if (block_is_split(block)) {
        count_change++;
        bytes_change += (int64_t)block->size;
    }
    if (!block->base) {
        stats_add(model->stats.inactive_split, block->pool, count_change);
        stats_add(model->stats.inactive_split_bytes, block->pool, bytes_change);
    }
    stats_add(model->stats.active, block->pool, -1);
    stats_add(model->stats.active_bytes, block->pool, -(int64_t)size);
    stats_add(model->stats.requested_bytes, block->pool, -(int64_t)block->requested);
}

/* Each stream that used the block gets a mark, passed when it gets here. */
static void waits_add(struct alloc_model *model, struct model_block *block)
{
    for (unsigned i = 0; i < block->use_count; i++) {
        require(device_call(model, VARVE_DEVICE_EVENT_RECORD) == VARVE_OK);
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
    stats_add(model->stats.allocation, block->pool, -1);
    stats_add(model->stats.allocated_bytes, block->pool, -(int64_t)block->size);
    emit(model, VARVE_KIND_FREE_REQUESTED, block->addr, block->size, block->requested);
    if (block->size >= model->config.max_split_size) {
        stat_add(&model->stats.oversize_allocations, -1);
    }
    if (!block->use_count) {
        block_release(model, block);
    } else if (model->capture_count) {
        list_add(&model->deferred, block);
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
        require(i < MODEL_USES);
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
    struct model_block *next = list_next(list, block);

    if (!request->is_expandable) {
        while (next && next->base && next->stream == request->stream) {
            next = list_next(list, next);
        }
        return next && next->stream == request->stream ? next : NULL;
    }
    while (block->base && next && next->stream == request->stream &&
           expandable_size(next) < expandable_size(block)) {
        block = next;
        next = list_next(list, block);
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
    block = list_after(&request->pool->free, request->stream, request->size, 0, true);
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
    list_remove(&request->pool->free, block);
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
        release_pool_blocks(model, &model->large);
        release_pool_blocks(model, &model->small);
    }
    while (private) {
        struct model_private *next = freeable_after(model, private->left_at);

        release_pool_blocks(model, &private->small);
        release_pool_blocks(model, &private->large);
        private_erase(model, private);
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
        collect_garbage(model);
    }
    error = segment_new(model, request, false);
    if (error == VARVE_ERROR_NO_MEMORY && fallback_search(model, request)) {
        error = VARVE_OK;
    }
    if (error == VARVE_ERROR_NO_MEMORY && release_available(model, request)) {
        error = segment_new(model, request, false);
    }
    if (error == VARVE_ERROR_NO_MEMORY && !model->capture_count) {
        cached_release(model);
        error = segment_new(model, request, true);
    }
    if (error == VARVE_ERROR_NO_MEMORY) {
        emit(model, VARVE_KIND_OOM, 0, request->size,
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
    bool was_split = block_is_split(rest);
    struct model_block *front = block_cut_front(rest, request->size);

    block_insert(rest);
    if (!rest->base && was_split) {
        stats_add(model->stats.inactive_split_bytes, rest->pool, -(int64_t)front->size);
    } else if (!rest->base) {
        stats_add(model->stats.inactive_split_bytes, rest->pool, (int64_t)rest->size);
        stats_add(model->stats.inactive_split, rest->pool, 1);
    }
    emit(model, VARVE_KIND_SPLIT, front->addr, front->size, rest->size);
    request->block = front;
}

static uint64_t block_take(struct alloc_model *model, struct model_request *request)
{
    struct model_block *block = request->block;
    struct model_pool *pool = request->pool;

    if (must_split(model, request)) {
        front_split(model, request);
        block = request->block;
    } else if (!block->base && block_is_split(block)) {
        stats_add(model->stats.inactive_split_bytes, pool, -(int64_t)block->size);
        stats_add(model->stats.inactive_split, pool, -1);
    }
    block->is_allocated = true;
    block->requested = request->requested;
    emit(model, VARVE_KIND_ALLOC, block->addr, block->size, block->requested);
    list_add(&model->active, block);
    stats_add(model->stats.allocation, pool, 1);
    stats_add(model->stats.allocated_bytes, pool, (int64_t)block->size);
    stats_add(model->stats.active, pool, 1);
    stats_add(model->stats.active_bytes, pool, (int64_t)block->size);
    stats_add(model->stats.requested_bytes, pool, (int64_t)block->requested);
    if (block->size >= model->config.max_split_size) {
        stat_add(&model->stats.oversize_allocations, 1);
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
    request.size = size_round(&model->config, bytes);
    request.segment_size = segment_size_of(&model->config, request.size);
    request.pool = pool_for(model, request.size, stream);
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
