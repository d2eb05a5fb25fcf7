/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small parts of the allocator's model: lists that are searched from end to end, blocks that are cut and
 * merged, statistics, and the device as a counter of calls and bytes.
 */
#include "support/alloc/model_internal.h"

void *alloc_model_grow(void *items, size_t count, size_t *capacity, size_t item_size)
{
    if (count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        items = realloc(items, *capacity * item_size);
        alloc_model_require(items != NULL);
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

uint64_t alloc_model_size_round(const struct varve_alloc_config *config, uint64_t size)
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

uint64_t alloc_model_segment_size(const struct varve_alloc_config *config, uint64_t size)
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

void alloc_model_list_add(struct model_list *list, struct model_block *block)
{
    list->items = alloc_model_grow(list->items, list->count, &list->capacity, sizeof(*list->items));
    list->items[list->count++] = block;
}

void alloc_model_list_remove(struct model_list *list, const struct model_block *block)
{
    size_t i = 0;

    while (i < list->count && list->items[i] != block) {
        i++;
    }
    alloc_model_require(i < list->count);
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

struct model_block *alloc_model_list_after(const struct model_list *list, uint64_t stream, uint64_t size,
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

struct model_block *alloc_model_list_next(const struct model_list *list, const struct model_block *block)
{
    return alloc_model_list_after(list, block->stream, block->size, block->addr, false);
}

struct model_block *alloc_model_list_before(const struct model_list *list, uint64_t stream, uint64_t size,
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

/* ---- blocks ---- */

struct model_block *alloc_model_block_new(struct model_pool *pool, uint64_t stream, uint64_t addr,
                                          uint64_t size)
{
    struct model_block *block = calloc(1, sizeof(*block));

    alloc_model_require(block != NULL);
    block->pool = pool;
    block->stream = stream;
    block->addr = addr;
    block->size = size;
    block->is_mapped = true;
    return block;
}

bool alloc_model_block_is_split(const struct model_block *block)
{
    return block->prev || block->next;
}

void alloc_model_block_insert(struct model_block *block)
{
    block->freed_at = block->pool->searches;
    alloc_model_list_add(&block->pool->free, block);
}

struct model_block *alloc_model_block_cut(struct model_block *block, uint64_t size)
{
    struct model_block *rest;

    alloc_model_require(size > 0 && size < block->size);
    rest = alloc_model_block_new(block->pool, block->stream, block->addr + block->size - size, size);
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

uint64_t alloc_model_block_merge(struct alloc_model *model, struct model_block *block,
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
        alloc_model_require(addr + size == block->addr);
        block->addr = addr;
        block->prev = neighbour->prev;
        if (block->prev) {
            block->prev->next = block;
        }
    } else {
        alloc_model_require(block->addr + block->size == addr);
        block->next = neighbour->next;
        if (block->next) {
            block->next->prev = block;
        }
    }
    block->size += size;
    alloc_model_list_remove(neighbour->is_mapped ? &block->pool->free : &block->pool->unmapped, neighbour);
    free(neighbour);
    if (block->is_mapped) { /* unmapped address space is no free block */
        alloc_model_emit(model, VARVE_KIND_MERGE, block->addr, block->size, size);
    }
    return size;
}

/* ---- events and statistics ---- */

void alloc_model_emit(struct alloc_model *model, unsigned kind, uint64_t addr, uint64_t size,
                      uint64_t requested)
{
    model->events =
        alloc_model_grow(model->events, model->event_count, &model->event_capacity, sizeof(*model->events));
    model->events[model->event_count++] = (struct alloc_model_event){kind, addr, size, requested};
}

void alloc_model_stat_add(struct varve_alloc_stat *stat, int64_t change)
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

void alloc_model_stats_add(struct varve_alloc_stat *stats, const struct model_pool *pool, int64_t change)
{
    alloc_model_stat_add(&stats[VARVE_ALLOC_STAT_ALL], change);
    alloc_model_stat_add(&stats[pool->is_small ? VARVE_ALLOC_STAT_SMALL_POOL : VARVE_ALLOC_STAT_LARGE_POOL],
                         change);
}

/* ---- the device ---- */

int alloc_model_device_call(struct alloc_model *model, enum varve_device_call call)
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

int alloc_model_device_take(struct alloc_model *model, enum varve_device_call call, uint64_t bytes)
{
    int error = alloc_model_device_call(model, call);

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
