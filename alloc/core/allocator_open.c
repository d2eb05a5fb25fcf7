/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator's life and its entry points but for requests and frees (allocator_allocate.c): each takes the lock,
 * checks its arguments and leaves the work to the other files. The lock is recursive, because callbacks that run in the
 * middle of a request may free.
 */
#include "alloc/core/allocator_state.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/policy.h"

#include <inttypes.h>
#include <stdlib.h>

void varve_alloc_free_mutex_lock(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
}

void varve_alloc_free_mutex_unlock(struct varve_alloc *alloc)
{
    alloc_unlock(alloc);
}

/* ---- open and close ---- */

void varve_alloc_options_init(struct varve_alloc_options *options)
{
    *options = (struct varve_alloc_options){0};
    varve_alloc_config_init(&options->config);
}

static int allocator_open_check_options(const struct varve_alloc_options *options, struct varve_message *message)
{
    if (options->device == NULL || options->device->index < 0 || options->device->index > 255) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "an allocator needs a device numbered 0 to 255");
    }
    if (policy_find(options->policy) == NULL) {
#define POLICY_TEXT(code, text) " " text
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "there is no policy '%s'; there are:" POLICY_LIST(POLICY_TEXT), options->policy);
#undef POLICY_TEXT
    }
    return settings_check(&options->config, options->device, message);
}

static int open_backend(struct varve_alloc *alloc, const char *text, struct varve_message *message)
{
    uint64_t values[POLICY_OPTIONS_MAX] = {0};
    int error = policy_values(alloc->policy, text, values, message);
    return error == VARVE_OK && alloc->policy->backend != NULL && alloc->policy->backend->open != NULL
               ? alloc->policy->backend->open(alloc, values, message)
               : error;
}

int varve_alloc_open(const struct varve_alloc_options *options, struct varve_alloc **alloc_out,
                     struct varve_message *message)
{
    int error = allocator_open_check_options(options, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_alloc *alloc = aligned_alloc(_Alignof(struct varve_alloc), sizeof(*alloc));
    if (alloc == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *alloc = (struct varve_alloc){0};
    lock_init(&alloc->lock);
    alloc->device = options->device;
    uint64_t device_free = 0;
    error = alloc->device->ops->memory_info(alloc->device, &device_free, &alloc->device_total);
    if (error != VARVE_OK) {
        free(alloc);
        return varve_message_set(message, error, "device %d does not say how much memory it has",
                                 options->device->index);
    }
    alloc->policy = policy_find(options->policy);
    alloc->recorder = options->recorder;
    alloc->plan = options->plan;
    settings_apply(alloc, &options->config);
    alloc->fraction = options->config.memory_fraction;
    alloc->limit = options->memory_limit != 0 ? options->memory_limit : settings_limit(alloc, alloc->fraction);
    pool_init(alloc, &alloc->large, NULL, false);
    pool_init(alloc, &alloc->small, NULL, true);
    if (pool_bins(alloc, &alloc->large, 0) == NULL || pool_bins(alloc, &alloc->small, 0) == NULL) {
        varve_alloc_close(alloc);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    error = open_backend(alloc, options->policy, message);
    if (error != VARVE_OK) {
        varve_alloc_close(alloc);
        return error;
    }
    settings_emit(alloc);
    *alloc_out = alloc;
    return VARVE_OK;
}

/* The segment that begins with `block` goes back to the device, whatever is in use. */
static void release_segment_of(struct varve_alloc *alloc, struct block *block)
{
    if (block->prev != NULL || block->expandable != NULL) {
        return;
    }
    if (backend_of_pool(alloc, block_pool(block)) != NULL && alloc->policy->backend->abandon != NULL) {
        alloc->policy->backend->abandon(alloc, block);
        return;
    }
    alloc->device->ops->segment_free(alloc->device, block->addr, block_bytes_onwards(block));
}

void varve_alloc_close(struct varve_alloc *alloc)
{
    struct block_walk walk = {0};
    struct block *block;
    while ((block = walk_next(alloc, &walk)) != NULL) {
        release_segment_of(alloc, block);
    }
    expandable_close(alloc);
    if (alloc->policy->backend != NULL && alloc->policy->backend->close != NULL) {
        alloc->policy->backend->close(alloc);
    }
    free(alloc->backend_state);
    stream_use_close(alloc);
    share_close(alloc);
    private_pools_close(alloc);
    free_index_close(&alloc->large.index);
    free_index_close(&alloc->small.index);
    block_map_close(&alloc->map);
    block_slab_close(&alloc->slab);
    free(alloc->streams);
    free(alloc);
}

struct varve_device *varve_alloc_get_device(const struct varve_alloc *alloc)
{
    return alloc->device;
}

/* ---- questions about blocks, and the cache ---- */

static struct block *block_in_use(struct varve_alloc *alloc, uint64_t addr)
{
    struct block *block = block_map_find(&alloc->map, addr);
    return block != NULL && block->is_allocated ? block : NULL;
}

int varve_alloc_record_stream(struct varve_alloc *alloc, uint64_t addr, uint64_t stream, struct varve_message *message)
{
    alloc_lock(alloc);
    struct block *block = block_in_use(alloc, addr);
    int error = VARVE_OK;
    if (block == NULL) {
        error = varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                  "address %#" PRIx64 " is not allocated by this allocator", addr);
    } else if (block->bins->stream != stream) {
        error = stream_use_add(alloc, block, stream);
        if (error == VARVE_OK) {
            EMIT(alloc, (struct emission){.kind = VARVE_KIND_RECORD_STREAM,
                                          .bins = block->bins,
                                          .addr = addr,
                                          .size = block->size,
                                          .arg = stream,
                                          .id = block->id});
        } else {
            varve_message_set(message, error, "no memory to note that a block is used by another stream");
        }
    }
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_get_base_allocation(struct varve_alloc *alloc, uint64_t addr, uint64_t *base_out, uint64_t *bytes_out)
{
    alloc_lock(alloc);
    const struct block *block = block_in_use(alloc, addr);
    if (block != NULL) {
        const struct block *last = block;
        while (block->prev != NULL && block->prev->is_mapped) {
            block = block->prev;
        }
        while (last->next != NULL && last->next->is_mapped) {
            last = last->next;
        }
        *base_out = block->addr;
        *bytes_out = last->addr + last->size - block->addr;
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

static void allocator_open_describe(const struct block *block, struct varve_block_info *info_out)
{
    *info_out = (struct varve_block_info){
        .addr = block->addr,
        .bytes = block->size,
        .requested = block->requested,
        .allocation_id = block->id,
        .state = VARVE_BLOCK_ACTIVE_ALLOCATED,
    };
}

int varve_alloc_get_block(struct varve_alloc *alloc, uint64_t addr, struct varve_block_info *block_out)
{
    alloc_lock(alloc);
    const struct block *block = block_in_use(alloc, addr);
    if (block != NULL) {
        allocator_open_describe(block, block_out);
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

/* ---- allocations by handle ---- */

uint64_t varve_allocation_addr(struct varve_allocation allocation)
{
    const struct block *block = allocation.block;
    return block != NULL ? block->addr : 0;
}

/* NULL: it was freed. */
static struct block *allocator_open_block_of(struct varve_allocation allocation)
{
    struct block *block = allocation.block;
    return block != NULL && block->id == allocation.id && block->is_allocated ? block : NULL;
}

int varve_alloc_get_allocation(struct varve_alloc *alloc, uint64_t addr, struct varve_allocation *allocation_out)
{
    alloc_lock(alloc);
    struct block *block = block_in_use(alloc, addr);
    if (block != NULL) {
        *allocation_out = (struct varve_allocation){block, block->id};
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

int varve_alloc_describe(struct varve_alloc *alloc, struct varve_allocation allocation,
                         struct varve_allocation_info *info_out)
{
    alloc_lock(alloc);
    const struct block *block = allocator_open_block_of(allocation);
    if (block != NULL) {
        const struct pool *pool = block_pool(block);
        *info_out = (struct varve_allocation_info){
            .stream = block->bins->stream,
            .pool = pool->owner != NULL ? pool->owner->id : (struct varve_pool_id){0, 0},
            .segment_id = block->segment_id,
            .is_small = pool->is_small,
            .user = block->has_user ? block->user : NULL,
        };
        allocator_open_describe(block, &info_out->block);
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

int varve_alloc_set_user(struct varve_alloc *alloc, struct varve_allocation allocation, void *user)
{
    alloc_lock(alloc);
    struct block *block = allocator_open_block_of(allocation);
    if (block != NULL) {
        block->user = user;
        block->has_user = true;
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

/* ---- more questions about blocks, and the cache ---- */

int varve_alloc_find_block(struct varve_alloc *alloc, uint64_t addr, struct varve_block_info *block_out)
{
    alloc_lock(alloc);
    const struct block *block = block_map_find(&alloc->map, addr);
    uint64_t position = 0;
    if (block == NULL) {
        do {
            block = block_map_each(&alloc->map, &position);
        } while (block != NULL && addr - block->addr >= block->requested);
    }
    block = block != NULL && block->is_allocated ? block : NULL;
    if (block != NULL) {
        allocator_open_describe(block, block_out);
    }
    alloc_unlock(alloc);
    return block != NULL ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
}

int varve_alloc_empty_pool(struct varve_alloc *alloc, struct varve_pool_id id)
{
    alloc_lock(alloc);
    struct release_sum sum = {0};
    struct private_pool *pool;
    int error = VARVE_ERROR_NOT_FOUND;
    if (id.capture == 0 && id.user == 0) {
        error = release_cached(alloc, VARVE_CAUSE_EMPTY_CACHE, &sum);
    } else if ((pool = private_pool_find(alloc, id)) != NULL) {
        error = release_pool(alloc, pool, &sum);
    }
    if (error != VARVE_ERROR_NOT_FOUND) {
        EMIT(alloc, (struct emission){.kind = VARVE_KIND_EMPTY_CACHE, .size = sum.bytes, .arg = sum.segments});
        error = error == VARVE_OK ? sum.error : error;
    }
    ALLOC_CHECK_STEP(alloc);
    alloc_unlock(alloc);
    return error;
}

int varve_alloc_empty_cache(struct varve_alloc *alloc)
{
    return varve_alloc_empty_pool(alloc, (struct varve_pool_id){0, 0});
}

uint64_t varve_alloc_largest_free_block(struct varve_alloc *alloc)
{
    alloc_lock(alloc);
    uint64_t largest = 0;
    for (struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        for (uint32_t i = 0; i < pool->index.stream_count; i++) {
            const struct block *block = free_index_last(pool->index.streams[i]);
            largest = block != NULL && block->size > largest ? block->size : largest;
        }
    }
    alloc_unlock(alloc);
    return largest;
}

int varve_alloc_cache_info(struct varve_alloc *alloc, uint64_t *largest_out)
{
    *largest_out = 0;
    alloc_lock(alloc);
    uint64_t total = 0;
    int error = alloc->device->ops->memory_info(alloc->device, largest_out, &total);
    uint64_t largest = error == VARVE_OK ? varve_alloc_largest_free_block(alloc) : 0;
    *largest_out = largest > *largest_out ? largest : *largest_out;
    alloc_unlock(alloc);
    return error;
}
