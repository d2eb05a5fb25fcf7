/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's model, from its smallest parts up: sizes, blocks and the order of free ones, the device, segments, what
 * releases them, private pools, frees, and the chain that a request goes through when its pool has nothing. See model.h.
 */
#include "support/alloc/model.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_MIB UINT64_C(0x100000)

/* An event that a stream has been given and a freed block waits for. */
struct model_wait {
    uint64_t stream;
    struct model_block *block;
    bool is_complete;
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

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

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
    uint64_t divisions = config->roundup_power2_divisions[index < 15 ? index : 15], step;

    if (size < 512) {
        return 512;
    }
    if (divisions <= 1 || size <= 512 * divisions) {
        return round_up(size, 512);
    }
    step = (UINT64_C(1) << exponent) >> log2_floor(divisions);
    if (size == UINT64_C(1) << exponent) {
        return size;
    }
    return step == 0 ? UINT64_C(2) << exponent : round_up(size, step);
}

static uint64_t segment_size_of(const struct varve_alloc_config *config, uint64_t size)
{
    if (size <= MODEL_MIB) {
        return 2 * MODEL_MIB;
    }
    return size < 10 * MODEL_MIB ? config->large_segment_size : round_up(size, 2 * MODEL_MIB);
}

/* ---- blocks ---- */

static void list_add(struct model_list *list, struct model_block *block)
{
    list->items = alloc_model_grow(list->items, list->count, &list->capacity, sizeof(struct model_block *));
    list->items[list->count++] = block;
}

static void emit(struct alloc_model *model, unsigned kind, const struct model_pool *pool, uint64_t addr, uint64_t size,
                 uint64_t requested)
{
    model->events = alloc_model_grow(model->events, model->event_count, &model->event_capacity, sizeof(*model->events));
    model->events[model->event_count++] = (struct alloc_model_event){kind, addr, size, requested, pool->is_small};
}

static struct model_block *block_new(struct alloc_model *model, struct model_pool *pool, uint64_t stream, uint64_t addr,
                                     uint64_t size)
{
    struct model_block *block = calloc(1, sizeof(*block));

    require(block != NULL);
    block->pool = pool;
    block->stream = stream;
    block->addr = addr;
    block->size = size;
    list_add(&model->blocks, block);
    return block;
}

static void block_delete(struct alloc_model *model, struct model_block *block)
{
    size_t i = 0;

    while (model->blocks.items[i] != block) {
        require(++i < model->blocks.count);
    }
    model->blocks.items[i] = model->blocks.items[--model->blocks.count];
    free(block);
}

static bool block_is_split(const struct model_block *block)
{
    return block->prev || block->next;
}

static void block_put(struct model_block *block)
{
    block->freed_at = block->pool->searches;
    block->state = MODEL_FREE;
}

/* Cut the first `size` bytes off into a new block before `block`, in the same state. */
static struct model_block *block_cut(struct alloc_model *model, struct model_block *block, uint64_t size)
{
    struct model_block *front = block_new(model, block->pool, block->stream, block->addr, size);

    require(size > 0 && size < block->size);
    front->state = block->state;
    front->base = block->base;
    front->freed_at = block->freed_at;
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

/* The same, and what the block was asked for last goes with its first bytes. */
static struct model_block *block_cut_end(struct alloc_model *model, struct model_block *block, uint64_t size)
{
    struct model_block *front = block_cut(model, block, size);

    front->requested = block->requested;
    block->requested = 0;
    return front;
}

/* The block absorbs a neighbour in the same state, if it is one. */
static void block_merge(struct alloc_model *model, struct model_block *block, struct model_block *neighbour)
{
    uint64_t size;

    if (!neighbour || neighbour->state != block->state) {
        return;
    }
    size = neighbour->size;
    if (neighbour == block->prev) {
        require(neighbour->addr + size == block->addr);
        block->addr = neighbour->addr;
        block->prev = neighbour->prev;
        if (block->prev) {
            block->prev->next = block;
        }
    } else {
        require(block->addr + block->size == neighbour->addr);
        block->next = neighbour->next;
        if (block->next) {
            block->next->prev = block;
        }
    }
    block->size += size;
    block_delete(model, neighbour);
    if (block->state == MODEL_FREE) { /* unmapped address space is no free block */
        emit(model, VARVE_KIND_MERGE, block->pool, block->addr, block->size, size);
    }
}

static void block_merge_both(struct alloc_model *model, struct model_block *block)
{
    block_merge(model, block, block->prev);
    block_merge(model, block, block->next);
}

/* The order of the free blocks of a pool. */
static int compare(const struct model_block *a, const struct model_block *b)
{
    if (a->stream != b->stream) {
        return a->stream < b->stream ? -1 : 1;
    }
    if (a->size != b->size) {
        return a->size < b->size ? -1 : 1;
    }
    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* The free block of the pool that comes next after `key` in that order, or next before it (-1). */
static struct model_block *nearest(const struct alloc_model *model, const struct model_pool *pool,
                                   const struct model_block *key, int direction)
{
    struct model_block *best = NULL;

    for (size_t i = 0; i < model->blocks.count; i++) {
        struct model_block *block = model->blocks.items[i];

        if (block->pool == pool && block->state == MODEL_FREE && compare(block, key) * direction > 0 &&
            (!best || compare(block, best) * direction < 0)) {
            best = block;
        }
    }
    return best;
}

static struct model_block *next_free(const struct alloc_model *model, const struct model_block *block)
{
    return nearest(model, block->pool, block, 1);
}

static struct model_block *first_free(const struct alloc_model *model, const struct model_pool *pool, uint64_t stream,
                                      uint64_t size)
{
    const struct model_block key = {.stream = stream, .size = size};

    return nearest(model, pool, &key, 1);
}

struct model_block *alloc_model_block(const struct alloc_model *model, uint64_t addr)
{
    for (size_t i = 0; i < model->blocks.count; i++) {
        if (model->blocks.items[i]->addr == addr) {
            return model->blocks.items[i];
        }
    }
    return NULL;
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

/* `taken`: what the device has given and `reserved` does not count yet. */
static int device_take(struct alloc_model *model, enum varve_device_call call, uint64_t taken, uint64_t bytes)
{
    int error = device_call(model, call);
    uint64_t left = model->options.capacity - model->reserved - taken;

    return error ? error : model->options.capacity && bytes > left ? VARVE_ERROR_NO_MEMORY : VARVE_OK;
}

bool alloc_model_fail(struct alloc_model *model, enum varve_device_call call, uint64_t nth, uint64_t count, int error)
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

void alloc_model_stream_complete(struct alloc_model *model, uint64_t stream)
{
    for (size_t i = 0; i < model->wait_count; i++) {
        model->waits[i].is_complete |= model->waits[i].stream == stream;
    }
}

/* ---- expandable segments ---- */

static uint64_t unit_of(const struct alloc_model *model, const struct model_pool *pool)
{
    return pool->is_small ? 2 * MODEL_MIB : model->config.large_segment_size;
}

static int block_map(struct alloc_model *model, struct model_block *block, uint64_t size)
{
    uint64_t unit = unit_of(model, block->pool), mapped = round_up(size, unit);
    int error = VARVE_OK;

    require(block->state == MODEL_UNMAPPED && (block->addr - block->base) % unit == 0 && mapped <= block->size);
    for (uint64_t taken = 0; taken < mapped && !error; taken += unit) {
        error = device_take(model, VARVE_DEVICE_VMM_CREATE, taken, unit);
    }
    if (error) {
        return error;
    }
    if (mapped < block->size) {
        block = block_cut_end(model, block, mapped);
    }
    block_put(block);
    model->reserved += mapped;
    emit(model, VARVE_KIND_SEGMENT_MAP, block->pool, block->addr, mapped, 0);
    block_merge_both(model, block);
    return VARVE_OK;
}

static bool is_allocatable(const struct model_block *block)
{
    return block && (block->state == MODEL_FREE || block->state == MODEL_UNMAPPED);
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
static struct model_block *unmapped_after(const struct alloc_model *model, const struct model_request *request,
                                          uint64_t addr)
{
    struct model_block *best = NULL;

    for (size_t i = 0; i < model->blocks.count; i++) {
        struct model_block *block = model->blocks.items[i];

        if (block->pool == request->pool && block->state == MODEL_UNMAPPED && block->stream == request->stream &&
            block->addr > addr && (!best || block->addr < best->addr)) {
            best = block;
        }
    }
    return best;
}

static int expandable_find(struct alloc_model *model, const struct model_request *request, uint64_t *addr_out)
{
    uint64_t total = model->options.total, bytes = round_up(total + total / 8, unit_of(model, request->pool));
    struct model_block *block = unmapped_after(model, request, 0);
    int error;

    for (; block; block = unmapped_after(model, request, block->addr)) {
        struct model_block *start = is_allocatable(block->prev) ? block->prev : block;

        if (has_room(start, request->size)) {
            *addr_out = start->addr;
            return VARVE_OK;
        }
    }
    error = device_call(model, VARVE_DEVICE_VMM_RESERVE);
    if (error) {
        return error;
    }
    *addr_out = model->options.place(model->options.context, bytes, request->stream, true);
    block = block_new(model, request->pool, request->stream, *addr_out, bytes);
    block->base = block->addr;
    block->state = MODEL_UNMAPPED;
    return VARVE_OK;
}

static int expandable_new(struct alloc_model *model, struct model_request *request)
{
    uint64_t addr = 0;
    int error = expandable_find(model, request, &addr);
    struct model_block *block = alloc_model_block(model, addr), *next;

    if (!error && block->state == MODEL_UNMAPPED) {
        error = block_map(model, block, minimum(block->size, request->size));
    }
    while (!error && (block = alloc_model_block(model, addr))->size < request->size) {
        next = block->next;
        if (!next) { /* larger than any reservation */
            return VARVE_ERROR_NO_MEMORY;
        }
        error = block_map(model, next, minimum(request->size - block->size, next->size));
    }
    request->block = block;
    return error;
}

static void block_unmap(struct alloc_model *model, struct model_block *block)
{
    uint64_t unit = unit_of(model, block->pool), end = block->addr + block->size;
    uint64_t first = block->base + round_up(block->addr - block->base, unit);
    uint64_t last = block->base + (end - block->base) / unit * unit;

    if (last <= first) {
        return;
    }
    alloc_model_stream_complete(model, block->stream);
    model->reserved -= last - first;
    if (first > block->addr) {
        block_put(block_cut(model, block, first - block->addr));
    }
    if (last < end) {
        struct model_block *rest = block;

        block = block_cut_end(model, block, last - first);
        block_put(rest);
    }
    block->state = MODEL_UNMAPPED;
    block_merge_both(model, block);
    emit(model, VARVE_KIND_SEGMENT_UNMAP, block->pool, first, last - first, 0);
    if (!block_is_split(block)) {
        model->options.gone(model->options.context, block->addr, block->size);
        block_delete(model, block);
    }
}

/* ---- ordinary segments ---- */

static int segment_new(struct alloc_model *model, struct model_request *request)
{
    uint64_t size = request->segment_size, addr;
    int error;

    if (model->limit && model->reserved + size > model->limit) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (request->is_expandable) {
        return expandable_new(model, request);
    }
    error = device_take(model, VARVE_DEVICE_SEGMENT_ALLOC, 0, size);
    if (error) {
        return error;
    }
    addr = model->options.place(model->options.context, size, request->stream, false);
    request->block = block_new(model, request->pool, request->stream, addr, size);
    model->reserved += size;
    emit(model, VARVE_KIND_SEGMENT_ALLOC, request->pool, addr, size, request->requested);
    return VARVE_OK;
}

static void segment_release(struct alloc_model *model, struct model_block *block)
{
    emit(model, VARVE_KIND_SEGMENT_FREE, block->pool, block->addr, block->size, 0);
    model->reserved -= block->size;
    model->options.gone(model->options.context, block->addr, block->size);
    block_delete(model, block);
}

/* ---- release ---- */

static double gc_age(const struct model_block *block)
{
    return (double)(block->pool->searches - block->freed_at);
}

static bool is_collectable(const struct model_block *block)
{
    return !block->base && !block_is_split(block);
}

static void collect_garbage(struct alloc_model *model)
{
    uint64_t threshold = (uint64_t)(model->config.garbage_collection_threshold * (double)model->limit);
    uint64_t target = model->reserved - threshold, reclaimed = 0;
    double ages = 0;
    int64_t count = 0;
    bool is_released = true;

    if (model->reserved <= threshold) {
        return;
    }
    for (struct model_block *block = first_free(model, &model->large, 0, 0); block; block = next_free(model, block)) {
        if (!block_is_split(block)) {
            ages += gc_age(block);
            count++;
        }
    }
    while (reclaimed < target && is_released && count > 0) {
        double old = ages / (double)count;
        struct model_block *block = first_free(model, &model->large, 0, 0);

        is_released = false;
        while (block) {
            struct model_block *next = next_free(model, block);

            if (is_collectable(block) && gc_age(block) >= old) {
                reclaimed += block->size;
                ages -= gc_age(block);
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
    const struct model_block last = {.stream = UINT64_MAX, .size = UINT64_MAX, .addr = UINT64_MAX};
    uint64_t smallest = model->config.max_split_size;
    uint64_t key = request->size > smallest ? request->size : smallest, released = 0;
    struct model_block *block;

    if (smallest == VARVE_ALLOC_UNLIMITED) {
        return false;
    }
    block = first_free(model, request->pool, request->stream, key);
    if (block && block->stream == request->stream && !block->base) {
        segment_release(model, block);
        return true;
    }
    block = nearest(model, request->pool, block ? block : &last, -1);
    while (block && released < key && block->size >= smallest && block->stream == request->stream) {
        struct model_block *previous = nearest(model, request->pool, block, -1);

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
    struct model_block *block = first_free(model, pool, 0, 0);

    while (block) {
        struct model_block *next = next_free(model, block);

        if (block->base) {
            list_add(&expandable, block);
        } else if (!block_is_split(block)) {
            segment_release(model, block);
        }
        block = next;
    }
    for (size_t i = 0; i < expandable.count; i++) {
        block_unmap(model, expandable.items[i]);
    }
    free(expandable.items);
}

/* ---- opening ---- */

int alloc_model_set_fraction(struct alloc_model *model, double fraction)
{
    if (!(fraction > 0 && fraction <= 1)) {
        return VARVE_ERROR_INVALID;
    }
    model->limit = fraction < 1 ? (uint64_t)(fraction * (double)model->options.total) : 0;
    return VARVE_OK;
}

struct alloc_model *alloc_model_open(const struct alloc_model_options *options)
{
    struct alloc_model *model = calloc(1, sizeof(*model));

    require(model != NULL);
    model->options = *options;
    model->config = options->config;
    model->small.is_small = true;
    require(alloc_model_set_fraction(model, model->config.memory_fraction) == VARVE_OK);
    if (options->memory_limit) {
        model->limit = options->memory_limit;
    }
    return model;
}

void alloc_model_close(struct alloc_model *model)
{
    while (model->blocks.count > 0) {
        block_delete(model, model->blocks.items[0]);
    }
    while (model->privates) {
        struct model_private *next = model->privates->next;

        free(model->privates);
        model->privates = next;
    }
    free(model->blocks.items);
    free(model->deferred.items);
    free(model->waits);
    free(model->events);
    free(model);
}

/* ---- private pools ---- */

static bool is_same(struct varve_pool_id a, struct varve_pool_id b)
{
    return a.capture == b.capture && a.user == b.user;
}

struct model_private *alloc_model_pool(const struct alloc_model *model, struct varve_pool_id id)
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
    while (*place &&
           ((*place)->id.capture < id.capture || ((*place)->id.capture == id.capture && (*place)->id.user < id.user))) {
        place = &(*place)->next;
    }
    private->next = *place;
    *place = private;
    return private;
}

static void private_erase(struct alloc_model *model, struct model_private *private)
{
    struct model_private **place = &model->privates;

    for (size_t i = 0; i < model->blocks.count; i++) {
        if (model->blocks.items[i]->pool->owner == private) {
            return;
        }
    }
    if (private->is_no_split || private->is_use_on_oom) {
        return;
    }
    while (*place != private) {
        place = &(*place)->next;
    }
    *place = private->next;
    free(private);
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

int alloc_model_begin(struct alloc_model *model, struct varve_pool_id id,
                      bool (*filter)(void *context, uint64_t stream), void *context)
{
    struct model_private *private = alloc_model_pool(model, id);

    if (alloc_model_is_capturing(model, id)) {
        return VARVE_ERROR_BUSY;
    }
    require(model->capture_count < MODEL_CAPTURES);
    private = private ? private : private_new(model, id);
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
    struct model_private *private = alloc_model_pool(model, id);

    if (!private || private->references == 0) {
        return VARVE_ERROR_NOT_FOUND;
    }
    private->references--;
    private->left_at = ++model->leaves;
    return VARVE_OK;
}

static struct model_pool *pool_for(struct alloc_model *model, uint64_t size, uint64_t stream)
{
    bool is_small = size <= MODEL_MIB;

    for (size_t i = model->capture_count; i > 0; i--) {
        const struct model_capture *capture = &model->captures[i - 1];

        if (!capture->filter || capture->filter(capture->context, stream)) {
            struct model_private *private = alloc_model_pool(model, capture->id);

            return is_small ? &private->small : &private->large;
        }
    }
    return is_small ? &model->small : &model->large;
}

/* ---- frees ---- */

static void block_release(struct alloc_model *model, struct model_block *block)
{
    require(block->state == MODEL_PENDING && !block->event_count && !block->use_count);
    emit(model, VARVE_KIND_FREE_COMPLETED, block->pool, block->addr, block->size, block->requested);
    block_put(block);
    block_merge_both(model, block);
}

/* Each stream that used the block gets a mark, passed when it gets here. */
static void waits_add(struct alloc_model *model, struct model_block *block)
{
    for (unsigned i = 0; i < block->use_count; i++) {
        model->waits = alloc_model_grow(model->waits, model->wait_count, &model->wait_capacity, sizeof(*model->waits));
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
    memmove(&model->waits[index], &model->waits[index + 1], (model->wait_count - index) * sizeof(*model->waits));
    if (--block->event_count == 0) {
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
    struct model_block *block = alloc_model_block(model, addr);

    return block && block->state == MODEL_ALLOCATED ? block : NULL;
}

int alloc_model_free(struct alloc_model *model, uint64_t addr)
{
    struct model_block *block = block_find(model, addr);

    if (!block) {
        return VARVE_ERROR_NOT_FOUND;
    }
    block->state = MODEL_PENDING;
    emit(model, VARVE_KIND_FREE_REQUESTED, block->pool, block->addr, block->size, block->requested);
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
    block->use_is_captured[i] |= model->capture_count > 0;
    return VARVE_OK;
}

/* ---- the chain ---- */

static uint64_t expandable_size(const struct model_block *block)
{
    return block->size + (block->next && block->next->state == MODEL_UNMAPPED ? block->next->size : 0);
}

static struct model_block *expandable_choose(const struct alloc_model *model, const struct model_request *request,
                                             struct model_block *block)
{
    struct model_block *next = next_free(model, block);

    if (!request->is_expandable) {
        while (next && next->base && next->stream == request->stream) {
            next = next_free(model, next);
        }
        return next && next->stream == request->stream ? next : NULL;
    }
    while (block->base && next && next->stream == request->stream && expandable_size(next) < expandable_size(block)) {
        block = next;
        next = next_free(model, block);
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

    request->pool->searches += is_collecting(model);
    block = first_free(model, request->pool, request->stream, request->size);
    if (!block || block->stream != request->stream) {
        return false;
    }
    if (block->base) {
        block = expandable_choose(model, request, block);
    }
    if (!block || (request->size < limit && block->size >= limit) ||
        (request->size >= limit && block->size >= request->size + model->config.max_non_split_rounding_size)) {
        return false;
    }
    request->block = block;
    return true;
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
        if (private->references == 0 && private->left_at > left_at && (!best || private->left_at < best->left_at)) {
            best = private;
        }
    }
    return best;
}

void alloc_model_empty_cache(struct alloc_model *model)
{
    struct model_private *private = freeable_after(model, 0);

    if (!model->capture_count) {
        model->syncs++;
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

static int miss_serve(struct alloc_model *model, struct model_request *request)
{
    int error;

    if (is_collecting(model)) {
        collect_garbage(model);
    }
    error = segment_new(model, request);
    if (error == VARVE_ERROR_NO_MEMORY && fallback_search(model, request)) {
        error = VARVE_OK;
    }
    if (error == VARVE_ERROR_NO_MEMORY && release_available(model, request)) {
        error = segment_new(model, request);
    }
    if (error == VARVE_ERROR_NO_MEMORY && !model->capture_count) {
        alloc_model_empty_cache(model);
        model->retries++;
        error = segment_new(model, request);
    }
    if (error == VARVE_ERROR_NO_MEMORY) {
        uint64_t allocated = 0;

        for (size_t i = 0; i < model->blocks.count; i++) {
            allocated += model->blocks.items[i]->state == MODEL_ALLOCATED ? model->blocks.items[i]->size : 0;
        }
        emit(model, VARVE_KIND_OOM, request->pool, 0, request->size, allocated);
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

int alloc_model_alloc(struct alloc_model *model, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    struct model_request request = {.requested = bytes, .stream = stream};
    struct model_block *block;

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
    if (!cache_search(model, &request) &&
        !(model->options.miss && model->options.miss(model->options.context) && cache_search(model, &request))) {
        int error = miss_serve(model, &request);

        if (error) {
            return error;
        }
    }
    block = request.block;
    if (must_split(model, &request)) { /* the old one is what remains */
        block = block_cut(model, block, request.size);
        block_put(block->next);
        emit(model, VARVE_KIND_SPLIT, block->pool, block->addr, block->size, block->next->size);
    }
    block->state = MODEL_ALLOCATED;
    block->requested = bytes;
    emit(model, VARVE_KIND_ALLOC, block->pool, block->addr, block->size, block->requested);
    *addr_out = block->addr;
    return VARVE_OK;
}
