/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points for what may change while an allocator runs. Each takes the lock. */
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_state.h"
#include "alloc/core/allocator_counters.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/policy/pytorch_rules.h"

#include <inttypes.h>

#define MIB (UINT64_C(1) << 20)

/* Settings that took effect, so that a trace explains the decisions after them; the number is in `arg`. */
enum config_number {
    CONFIG_LIMIT = 1,
    CONFIG_MAX_SPLIT_SIZE,
    CONFIG_LARGE_SEGMENT_SIZE,
    CONFIG_GC_PER_MILLE,
    CONFIG_EXPANDABLE,
    CONFIG_ALLOCATED_LIMIT,
};

static void emit_setting(struct varve_alloc *alloc, enum config_number number, uint64_t value)
{
    EMIT(alloc, (struct emission){.kind = VARVE_KIND_CONFIG, .size = value, .arg = number});
}

void settings_emit(struct varve_alloc *alloc)
{
    emit_setting(alloc, CONFIG_LIMIT, alloc->limit);
    emit_setting(alloc, CONFIG_MAX_SPLIT_SIZE, alloc->config.max_split_size);
    emit_setting(alloc, CONFIG_LARGE_SEGMENT_SIZE, alloc->config.large_segment_size);
    emit_setting(alloc, CONFIG_GC_PER_MILLE, (uint64_t)(alloc->config.garbage_collection_threshold * 1000));
    emit_setting(alloc, CONFIG_EXPANDABLE, alloc->can_expand);
}

uint64_t settings_limit(const struct varve_alloc *alloc, double fraction)
{
    uint64_t bytes = fraction < 1 ? (uint64_t)(fraction * (double)alloc->device_total) : 0;
    return fraction < 1 && bytes == 0 ? 1 : bytes; /* 1 byte serves no request either, and 0 would mean no limit */
}

int varve_alloc_set_memory_fraction(struct varve_alloc *alloc, double fraction)
{
    if (!(fraction > 0 && fraction <= 1)) {
        return VARVE_ERROR_INVALID;
    }
    alloc_lock(alloc);
    alloc->fraction = fraction;
    alloc->limit = settings_limit(alloc, fraction);
    emit_setting(alloc, CONFIG_LIMIT, alloc->limit);
    alloc_unlock(alloc);
    return VARVE_OK;
}

double varve_alloc_get_memory_fraction(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    double fraction = alloc->limit == 0 ? 1.0
                      : alloc->limit == settings_limit(alloc, alloc->fraction)
                          ? alloc->fraction
                          : (double)alloc->limit / (double)alloc->device_total;
    alloc_unlock(alloc);
    return fraction;
}

int varve_alloc_set_memory_limit(struct varve_alloc *alloc, uint64_t bytes)
{
    alloc_lock(alloc);
    alloc->limit = bytes;
    emit_setting(alloc, CONFIG_LIMIT, bytes);
    alloc_unlock(alloc);
    return VARVE_OK;
}

int varve_alloc_set_allocated_limit(struct varve_alloc *alloc, uint64_t bytes)
{
    alloc_lock(alloc);
    alloc->allocated_limit = bytes;
    emit_setting(alloc, CONFIG_ALLOCATED_LIMIT, bytes);
    alloc_unlock(alloc);
    return VARVE_OK;
}

/* What counts as oversize has changed, and with it how many blocks and segments are. */
static void count_oversize(struct varve_alloc *alloc, uint64_t size)
{
    struct block_walk walk = {0};
    const struct block *block;
    int64_t blocks = 0, segments = 0;
    while ((block = walk_next(alloc, &walk)) != NULL) {
        blocks += block->is_allocated && block->size >= size;
        segments += block->expandable == NULL && block->prev == NULL && block_bytes_onwards(block) >= size;
    }
    stat_become(&alloc->counters.others.oversize_allocations, blocks);
    stat_become(&alloc->counters.others.oversize_segments, segments);
}

void settings_apply(struct varve_alloc *alloc, const struct varve_alloc_config *config)
{
    alloc->config = *config;
    alloc->can_expand = config->expandable_segments;
    alloc->has_divisions = false;
    for (unsigned i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        alloc->has_divisions = alloc->has_divisions || config->roundup_power2_divisions[i] > 1;
    }
    alloc->counters.others.max_split_size =
        config->max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)config->max_split_size;
}

int settings_check(const struct varve_alloc_config *config, const struct varve_device *device,
                   struct varve_message *message)
{
    const struct varve_device_ops *ops = device->ops;
    uint64_t unit = config->large_segment_size;
    if (config->graph_capture_record_stream_reuse) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "graph_capture_record_stream_reuse: reuse within a capture needs the graph itself, "
                                 "which no device here knows");
    }
    if (config->expandable_segments && ops->vmm_reserve == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "expandable_segments: device %s has no virtual memory", ops->name);
    }
    if (config->expandable_segments && ops->vmm_granularity != 0 && unit % ops->vmm_granularity != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "expandable_segments: device %s maps memory in pieces of %" PRIu64
                                 " bytes; large_segment_size is %" PRIu64
                                 ": set large_segment_size_mb to a multiple of %" PRIu64,
                                 ops->name, ops->vmm_granularity, unit, (ops->vmm_granularity + MIB - 1) / MIB);
    }
    return varve_alloc_config_check(config, message);
}

int varve_alloc_accepts_config(const struct varve_alloc *alloc, const struct varve_alloc_config *config,
                               struct varve_message *message)
{
    return settings_check(config, alloc->device, message);
}

int varve_alloc_set_config(struct varve_alloc *alloc, const struct varve_alloc_config *config,
                           struct varve_message *message)
{
    int error = settings_check(config, alloc->device, message);
    if (error != VARVE_OK) {
        return error;
    }
    alloc_lock(alloc);
    if (config->max_split_size != alloc->config.max_split_size) {
        count_oversize(alloc, config->max_split_size);
    }
    settings_apply(alloc, config);
    settings_emit(alloc);
    alloc_unlock(alloc);
    return VARVE_OK;
}

uint64_t varve_alloc_rounded_size(struct varve_alloc *alloc, uint64_t bytes, bool *is_small_out)
{
    alloc_lock(alloc);
    uint64_t rounded = 0;
    if (bytes > 0 && bytes < ROUNDING_REQUEST_LIMIT) {
        rounded = POLICY_CALL(alloc->policy, block_size, &alloc->config, bytes);
    }
    bool is_small = POLICY_CALL(alloc->policy, is_small, &alloc->config, rounded);
    alloc_unlock(alloc);
    if (is_small_out != NULL) {
        *is_small_out = is_small;
    }
    return rounded;
}

void varve_alloc_set_recorder(struct varve_alloc *alloc, const struct varve_alloc_recorder *recorder)
{
    alloc_lock(alloc);
    alloc->recorder = recorder;
    alloc_unlock(alloc);
}

static int add_callback(struct varve_alloc *alloc, struct callback_list *list,
                        uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss), void *context)
{
    alloc_lock(alloc);
    int error = VARVE_ERROR_FULL;
    if (list->count < CALLBACKS_MAX) {
        list->entries[list->count].call = callback;
        list->entries[list->count++].context = context;
        error = VARVE_OK;
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_add_miss_callback(struct varve_alloc *alloc,
                                  uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss),
                                  void *context)
{
    return add_callback(alloc, &alloc->misses, callback, context);
}

int varve_alloc_add_last_resort(struct varve_alloc *alloc,
                                uint64_t (*callback)(void *context, const struct varve_alloc_miss *miss), void *context)
{
    return add_callback(alloc, &alloc->last_resorts, callback, context);
}

static void remove_callbacks(struct callback_list *list, const void *context)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->entries[i].context != context) {
            list->entries[kept++] = list->entries[i];
        }
    }
    list->count = kept;
}

void varve_alloc_remove_callbacks(struct varve_alloc *alloc, const void *context)
{
    alloc_lock(alloc);
    remove_callbacks(&alloc->misses, context);
    remove_callbacks(&alloc->last_resorts, context);
    alloc_unlock(alloc);
}

int varve_alloc_add_oom_observer(struct varve_alloc *alloc,
                                 void (*observer)(void *context, const struct varve_alloc_oom *oom), void *context)
{
    alloc_lock(alloc);
    int error = VARVE_ERROR_FULL;
    if (alloc->observer_count < CALLBACKS_MAX) {
        alloc->observers[alloc->observer_count].call = observer;
        alloc->observers[alloc->observer_count++].context = context;
        error = VARVE_OK;
    }
    alloc_unlock(alloc);
    return error;
}
