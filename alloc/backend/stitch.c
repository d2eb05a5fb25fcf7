/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual memory stitching, as in GMLake (Guo et al., ASPLOS 2024): physical memory comes in units of 2 MiB, and a
 * large request that no free block can serve gets a new range of addresses, onto which the units of several free blocks
 * are mapped one behind the other. What is still missing is created. So holes of whole units never keep a request of at
 * least `min` bytes from being served; the price is calls of the driver, and a wait for the stream
 * before each unmapping.
 *
 * Requests above 1 MiB are multiples of 2 MiB; smaller ones have a pool of their own. Best fit, the lowest address
 * among equals; what a request leaves of a block stays free, but for a stitched block that is not larger than the
 * request times `reuse`: that is given out whole, so that it need not be stitched again (GMLake's reuse limit;
 * its default is 10).
 *
 * Where this differs from GMLake: there a unit is mapped at several addresses at once, and a stitched range that is
 * free is kept beside the blocks that it consists of. Here a unit has one address at a time and moves. What is reserved
 * follows the same rule (nothing is created as long as free units serve); calls of the driver are spent on unmapping in
 * place of kept ranges.
 */
#include "alloc/backend/backend.h"
#include "alloc/core/request_way.h"
#include "alloc/core/allocator_emit.h"
#include "alloc/policy/pytorch_rules.h"

#include <inttypes.h>
#include <stdlib.h>

#define UNIT (UINT64_C(2) << 20)
#define STITCHED 1 /* backend_word of a block that was made for one request */

enum { OPTION_MIN, OPTION_REUSE };

static const struct varve_alloc_policy_option options[] = {
    {"min", "the least request that is stitched, and no stitching below it", 32 * (UINT64_C(1) << 20), UNIT,
     UINT64_C(1) << 40, true},
    {"reuse", "a stitched block is given out whole to requests down to this part of it", 1, 1, 1000, false},
    {.name = NULL},
};

struct stitch {
    uint64_t min, reuse;
};

static uint64_t stitch_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    return bytes > ROUNDING_SMALL_SIZE ? rounding_up(bytes, UNIT) : backend_block_size(config, bytes);
}

static uint64_t stitch_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounding_up(rounded, UNIT);
}

static int stitch_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    const struct varve_device_ops *ops = alloc->device->ops;
    if (ops->vmm_reserve == NULL || (ops->vmm_granularity != 0 && UNIT % ops->vmm_granularity != 0)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "policy stitch: device %s cannot map memory in pieces of 2 MiB", ops->name);
    }
    struct stitch *stitch = malloc(sizeof(*stitch));
    if (stitch == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *stitch = (struct stitch){values[OPTION_MIN], values[OPTION_REUSE]};
    alloc->backend_state = stitch;
    return VARVE_OK;
}

/* ---- more memory ---- */

/* The whole units of a free block that are wanted, by their handles; the rest of it stays free. */
static uint64_t stitch_detach(struct varve_alloc *alloc, struct block *block, uint64_t wanted, uint64_t *handles)
{
    uint64_t addr, bytes = expandable_releasable(block, &addr);
    if (bytes > wanted) {
        if (block_slab_reserve(&alloc->slab, 1) != VARVE_OK) {
            return 0;
        }
        backend_take(alloc, block);
        struct block *front = backend_cut(alloc, block, addr + wanted - block->addr);
        backend_put(alloc, block);
        backend_put(alloc, front);
        block = front;
    }
    int ignored = VARVE_OK; /* what the device keeps stays where it is */
    return bytes > 0 ? expandable_detach(alloc, block, VARVE_CAUSE_NONE, handles, &ignored) : 0;
}

/* Units of free blocks of the request's stream, the largest blocks first. */
static uint64_t stitch_gather(struct varve_alloc *alloc, const struct request *request, uint64_t wanted,
                              uint64_t *handles)
{
    struct block *block = free_index_last(request->wanted.bins);
    uint64_t found = 0;
    while (block != NULL && found < wanted) {
        struct block *previous = free_index_previous(block);
        found += stitch_detach(alloc, block, wanted - found, handles + found / UNIT);
        block = previous;
    }
    return found;
}

/* The lowest unmapped range of the stream that is large enough, or a new one. */
static int stitch_find_space(struct varve_alloc *alloc, const struct request *request, uint64_t bytes,
                             struct block **space_out)
{
    struct block *space = request->pool->unmapped;
    while (space != NULL && (space->bins != request->wanted.bins || space->size < bytes)) {
        space = space->right;
    }
    *space_out = space;
    if (space != NULL) {
        return VARVE_OK;
    }
    int error = expandable_reserve(alloc, request, UNIT, space_out);
    return error != VARVE_OK || (*space_out)->size >= bytes ? error : VARVE_ERROR_NO_MEMORY;
}

/* A free block of `bytes` at new addresses, with `given` units first. */
static int stitch_attach(struct varve_alloc *alloc, struct request *request, uint64_t bytes, const uint64_t *handles,
                         uint64_t given, struct block **block_out)
{
    struct block *space = NULL;
    int error = stitch_find_space(alloc, request, bytes, &space);
    VARVE_THEN(error, expandable_attach(alloc, space, bytes, handles, given, request->message));
    *block_out = space;
    return error;
}

static int stitch_units(struct varve_alloc *alloc, struct request *request, uint64_t bytes, uint64_t *handles,
                        struct block **block_out)
{
    const struct stitch *stitch = alloc->backend_state;
    uint64_t given = bytes >= stitch->min ? stitch_gather(alloc, request, bytes, handles) : 0;
    int error = VARVE_ERROR_NO_MEMORY;
    if (segment_is_within_limit(alloc, bytes)) { /* what was gathered is not reserved now */
        error = stitch_attach(alloc, request, bytes, handles, given / UNIT, block_out);
    }
    if (error == VARVE_OK || given == 0) {
        return error;
    }
    /* the units come back, at other addresses */
    if (stitch_attach(alloc, request, given, handles, given / UNIT, block_out) != VARVE_OK) {
        for (uint64_t i = 0; i < given / UNIT; i++) {
            alloc->device->ops->vmm_release(alloc->device, handles[i], UNIT);
        }
    }
    return error;
}

/* Free and in the index afterwards. */
static int stitch_grow(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    uint64_t bytes = rounding_up(request->wanted.rounded, UNIT);
    uint64_t *handles = calloc(bytes / UNIT, sizeof(*handles));
    int error = handles != NULL ? stitch_units(alloc, request, bytes, handles, block_out) : VARVE_ERROR_NO_MEMORY;
    request->segment_bytes = bytes;
    free(handles);
    return error == VARVE_OK || error == VARVE_ERROR_NO_MEMORY
               ? error
               : device_message(alloc, error, request->message, "the device failed to map %" PRIu64 " bytes", bytes);
}

/* ---- requests and frees ---- */

static int stitch_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    const struct stitch *stitch = alloc->backend_state;
    uint64_t wanted = request->wanted.rounded;
    struct block *block = free_index_best(request->wanted.bins, wanted);
    bool is_new = block == NULL && may_grow;
    int error = is_new ? stitch_grow(alloc, request, &block) : VARVE_OK;
    if (error == VARVE_OK && block != NULL) {
        error = backend_prepare(alloc, 1);
    }
    if (error != VARVE_OK || block == NULL) {
        return error;
    }
    backend_take(alloc, block);
    if (block->size > wanted && (is_new || block->backend_word != STITCHED || block->size / stitch->reuse > wanted)) {
        struct block *rest = block;
        block = backend_cut(alloc, rest, wanted);
        rest->backend_word = 0;
        backend_put(alloc, rest);
    }
    block->backend_word = wanted >= stitch->min && (is_new || block->backend_word == STITCHED) ? STITCHED : 0;
    *block_out = block;
    return VARVE_OK;
}

static void stitch_free(struct varve_alloc *alloc, struct block *block)
{
    const struct stitch *stitch = alloc->backend_state;
    struct block *neighbours[2] = {backend_free_before(block), backend_free_behind(block)};
    if (stitch->reuse > 1 && block->backend_word == STITCHED) {
        backend_put(alloc, block); /* it is kept as it is */
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (neighbours[i] != NULL && (stitch->reuse == 1 || neighbours[i]->backend_word != STITCHED)) {
            backend_take(alloc, neighbours[i]);
            backend_merge(alloc, block, neighbours[i]);
        }
    }
    block->backend_word = 0;
    backend_put(alloc, block);
}

static void stitch_release_pool(struct varve_alloc *alloc, struct pool *pool, enum varve_cause cause,
                                struct release_sum *sum)
{
    struct block *block = free_index_first(&pool->index);
    while (block != NULL) {
        struct block *next = free_index_following(&pool->index, block);
        uint64_t addr;
        if (expandable_releasable(block, &addr) > 0) {
            sum->segments++;
            sum->bytes += expandable_release(alloc, block, cause, &sum->error);
        }
        block = next;
    }
}

static int stitch_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    stitch_release_pool(alloc, &alloc->large, cause, sum);
    stitch_release_pool(alloc, &alloc->small, cause, sum);
    return VARVE_OK;
}

/* Every large block consists of whole units, and free neighbours were merged. */
static int stitch_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct stitch *stitch = alloc->backend_state;
    const struct block *block = free_index_first(&alloc->large.index);
    for (; block != NULL; block = free_index_following(&alloc->large.index, block)) {
        if (block->size % UNIT != 0 || block->addr % UNIT != 0) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "a part of a unit is free");
        }
        if (stitch->reuse == 1 && backend_free_behind(block) != NULL) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free blocks were not merged");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = stitch_open,
    .alloc = stitch_alloc,
    .free = stitch_free,
    .release = stitch_release,
    .check = stitch_check,
};

const struct alloc_policy policy_stitch = {
    .name = "stitch",
    .meaning = "Stitching of virtual memory, as in GMLake: free blocks of physical memory are mapped one behind the "
               "other for a request of at least `min` bytes; a stitched block is given out whole to requests down to "
               "1/`reuse` of it.",
    .block_size = stitch_block_size,
    .is_small = pytorch_is_small,
    .segment_size = stitch_segment_size,
    .may_merge = pytorch_may_merge,
    .backend = &backend,
};
