/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's model: private pools and who is routed to them, limits, figures, snapshots, and the sums
 * that the model checks itself by.
 */
#include "support/alloc/model_internal.h"

/* ---- opening ---- */

struct alloc_model *alloc_model_open(const struct alloc_model_options *options)
{
    struct alloc_model *model = calloc(1, sizeof(*model));

    alloc_model_require(model != NULL);
    model->options = *options;
    model->config = options->config;
    model->small.is_small = true;
    model->stats.max_split_size =
        model->config.max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)model->config.max_split_size;
    alloc_model_limit_set(model, model->config.memory_fraction);
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

void alloc_model_limit_set(struct alloc_model *model, double fraction)
{
    model->limit = fraction < 1 ? (uint64_t)(fraction * (double)model->options.total) : 0;
}

int alloc_model_set_fraction(struct alloc_model *model, double fraction)
{
    if (!(fraction > 0 && fraction <= 1)) {
        return VARVE_ERROR_INVALID;
    }
    alloc_model_limit_set(model, fraction);
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

    alloc_model_require(private != NULL);
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

void alloc_model_private_erase(struct alloc_model *model, struct model_private *private)
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
    alloc_model_require(model->capture_count < sizeof(model->captures) / sizeof(model->captures[0]));
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

struct model_pool *alloc_model_pool_for(struct alloc_model *model, uint64_t size, uint64_t stream)
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

static void segment_add(struct varve_alloc_snapshot *snapshot, size_t *capacity,
                        const struct model_block *head)
{
    struct varve_segment_info segment = {.addr = head->addr,
                                         .stream = head->stream,
                                         .is_small = head->pool->is_small,
                                         .is_expandable = head->base != 0};

    if (head->pool->owner) {
        segment.pool = head->pool->owner->id;
    }
    for (const struct model_block *block = head; block && block->is_mapped; block = block->next) {
        bool is_active = block->is_allocated || block->event_count || block->use_count;

        segment.bytes += block->size;
        segment.block_count++;
        segment.allocated_bytes += block->is_allocated ? block->size : 0;
        segment.active_bytes += is_active ? block->size : 0;
        segment.requested_bytes += is_active ? block->requested : 0;
        snapshot->block_count++;
    }
    snapshot->segments =
        alloc_model_grow(snapshot->segments, snapshot->segment_count, capacity, sizeof(segment));
    snapshot->segments[snapshot->segment_count++] = segment;
}

static const struct model_block *head_find(const struct model_list *list, uint64_t addr)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i]->addr == addr && is_head(list->items[i])) {
            return list->items[i];
        }
    }
    return NULL;
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

static int segment_compare(const void *a, const void *b)
{
    uint64_t left = ((const struct varve_segment_info *)a)->addr;
    uint64_t right = ((const struct varve_segment_info *)b)->addr;

    return left < right ? -1 : left > right;
}

static void blocks_fill(const struct alloc_model *model, struct varve_alloc_snapshot *snapshot,
                        struct varve_segment_info *segment, size_t first)
{
    const struct model_block *block = NULL;
    const struct model_list *list;

    for (size_t i = 0; !block && (list = list_at(model, i)); i++) {
        block = head_find(list, segment->addr);
    }
    alloc_model_require(block != NULL);
    segment->first_block = first;
    for (size_t i = 0; i < segment->block_count; i++, block = block->next) {
        enum varve_block_state state = VARVE_BLOCK_INACTIVE;

        if (block->is_allocated) {
            state = VARVE_BLOCK_ACTIVE_ALLOCATED;
        } else if (block->event_count || block->use_count) {
            state = VARVE_BLOCK_ACTIVE_PENDING_FREE;
        }
        snapshot->blocks[first + i] = (struct varve_block_info){
            .addr = block->addr, .bytes = block->size, .requested = block->requested, .state = state};
    }
}

void alloc_model_snapshot(const struct alloc_model *model, struct varve_alloc_snapshot *snapshot_out)
{
    struct varve_alloc_snapshot snapshot = {0};
    const struct model_list *list;
    size_t capacity = 0;
    size_t filled = 0;

    for (size_t i = 0; (list = list_at(model, i)); i++) {
        for (size_t j = 0; j < list->count; j++) {
            if (is_head(list->items[j])) {
                segment_add(&snapshot, &capacity, list->items[j]);
            }
        }
    }
    if (snapshot.segment_count) {
        qsort(snapshot.segments, snapshot.segment_count, sizeof(*snapshot.segments), segment_compare);
    }
    snapshot.blocks = calloc(snapshot.block_count + 1, sizeof(*snapshot.blocks));
    alloc_model_require(snapshot.blocks != NULL);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        blocks_fill(model, &snapshot, &snapshot.segments[i], filled);
        filled += snapshot.segments[i].block_count;
    }
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

        alloc_model_require(i == 0 || segment[-1].addr + segment[-1].bytes <= segment->addr);
        reserved += segment->bytes;
        allocated += segment->allocated_bytes;
        active += segment->active_bytes;
        requested += segment->requested_bytes;
    }
    alloc_model_require(reserved == model->reserved && reserved == model->device_used);
    alloc_model_require((int64_t)reserved == stats->reserved_bytes[VARVE_ALLOC_STAT_ALL].current);
    alloc_model_require((int64_t)allocated == stats->allocated_bytes[VARVE_ALLOC_STAT_ALL].current);
    alloc_model_require((int64_t)active == stats->active_bytes[VARVE_ALLOC_STAT_ALL].current);
    alloc_model_require((int64_t)requested == stats->requested_bytes[VARVE_ALLOC_STAT_ALL].current);
    alloc_model_snapshot_free(&snapshot);
}
