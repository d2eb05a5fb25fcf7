/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMM's pool_memory_resource. Sizes are multiples of 256 bytes. Each stream has a list of free blocks; a block comes
 * into the list of its stream, and merges there with neighbours of the same list and the same range of the device. A
 * request is served by the first of
 *
 *   1. its stream's list, best fit; what is left of the block goes back into it
 *   2. the list of another stream, one after the other, best fit: the stream waits for the other one,
 *      which keeps the rest
 *   3. its stream's list, after all blocks of another stream have gone over to it (and the stream waits for the other
 *      one); again one after the other until a block serves. Also where none does, the lists stay merged
 *   4. more memory: as much as the pool has already, at least what is wanted; with a maximum (option `maximum`) half of
 *      what is left to it. If the device refuses, half of that is tried, and so on down to what is wanted
 *
 * A pool with a maximum that can't grow by what is wanted first gives back free blocks that are a whole range, the
 * lowest first, until it can. Without a maximum nothing ever goes back, neither by empty_cache nor when
 * a request fails.
 *
 * The first memory of the pool is of the size `initial` (0: of the first request). RMM asks for it when the pool is
 * made, and fails where the device refuses; here it comes with the first request, which does without where it is
 * refused. The other streams are taken by their handles; there, by the addresses of their events.
 *
 * Source: rapidsai/rmm detail/stream_ordered_memory_resource.hpp, coalescing_free_list.hpp,
 * pool_memory_resource_impl.cpp, 2026.
 */
#include "alloc/backend/backend.h"
#include "alloc/core/stream_use.h"
#include "alloc/policy/rounding.h"

#include <stdlib.h>

#define BLOCK_UNIT UINT64_C(256)

enum { OPTION_INITIAL, OPTION_MAXIMUM };

static const struct varve_alloc_policy_option options[] = {
    {"initial", "size of the pool at first; 0: what the first request wants", 0, 0, UINT64_C(1) << 60, true},
    {"maximum", "of the pool; 0: none", 0, 0, UINT64_C(1) << 60, true},
    {.name = NULL},
};

struct rmm_pool {
    uint64_t initial, maximum; /* multiples of 512; 0: none */
    uint64_t bytes;            /* of the pool */
};

static uint64_t rmm_pool_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, BLOCK_UNIT);
}

/* Of the first block; the pool then grows by its own size. */
static uint64_t rmm_pool_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounding_up(rounded, ROUNDING_MIN_BLOCK);
}

static int rmm_pool_open(struct varve_alloc *alloc, const uint64_t *values, struct varve_message *message)
{
    uint64_t initial = rounding_up(values[OPTION_INITIAL], ROUNDING_MIN_BLOCK);
    uint64_t maximum = values[OPTION_MAXIMUM] & ~(ROUNDING_MIN_BLOCK - 1);
    if (values[OPTION_MAXIMUM] != 0 && (maximum == 0 || initial > maximum)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "policy rmm-pool: initial is more than maximum");
    }
    struct rmm_pool *pool = malloc(sizeof(*pool));
    if (pool == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for an allocator");
    }
    *pool = (struct rmm_pool){.initial = initial, .maximum = maximum};
    alloc->backend_state = pool;
    return VARVE_OK;
}

/* ---- free blocks ---- */

static void rmm_pool_free(struct varve_alloc *alloc, struct block *block)
{
    backend_coalesce(alloc, block, false);
    backend_put(alloc, block);
}

/* The front of a held block; the rest stays in the list that it came from. */
static struct block *rmm_pool_cut(struct varve_alloc *alloc, struct block *block, uint64_t wanted)
{
    struct block *front = block;
    if (block->size > wanted) {
        front = backend_cut(alloc, block, wanted);
        rmm_pool_free(alloc, block);
    }
    return front;
}

static struct block *rmm_pool_best_of(struct varve_alloc *alloc, const struct stream_bins *bins, uint64_t wanted)
{
    struct block *block = free_index_best(bins, wanted);
    if (block == NULL) {
        return NULL;
    }
    backend_take(alloc, block);
    return rmm_pool_cut(alloc, block, wanted);
}

static struct block *steal(struct varve_alloc *alloc, struct stream_bins *bins, uint64_t wanted)
{
    const struct free_index *index = &alloc->large.index;
    for (uint32_t i = 0; i < index->stream_count; i++) {
        struct block *block = index->streams[i] != bins ? rmm_pool_best_of(alloc, index->streams[i], wanted) : NULL;
        if (block != NULL && backend_adopt(alloc, block, bins) == VARVE_OK) {
            return block;
        }
        if (block != NULL) {
            rmm_pool_free(alloc, block); /* the device can't let the stream wait */
        }
    }
    return NULL;
}

/* All blocks of the other stream come over, with one wait for all. */
static void merge_list(struct varve_alloc *alloc, struct stream_bins *bins, struct stream_bins *other)
{
    if (other->blocks == 0 || stream_use_order(alloc, bins->stream, other->stream) != VARVE_OK) {
        return;
    }
    struct block *block;
    while ((block = free_index_best(other, 1)) != NULL) {
        backend_take(alloc, block);
        block->bins = bins;
        rmm_pool_free(alloc, block);
    }
}

static struct block *rmm_pool_merge_until(struct varve_alloc *alloc, struct stream_bins *bins, uint64_t wanted)
{
    const struct free_index *index = &alloc->large.index;
    struct block *block = NULL;
    for (uint32_t i = 0; block == NULL && i < index->stream_count; i++) {
        if (index->streams[i] != bins) {
            merge_list(alloc, bins, index->streams[i]);
            block = rmm_pool_best_of(alloc, bins, wanted);
        }
    }
    return block;
}

static struct block *rmm_pool_find(struct varve_alloc *alloc, const struct wanted_block *wanted)
{
    struct block *block = rmm_pool_best_of(alloc, wanted->bins, wanted->rounded);
    if (block == NULL) {
        block = steal(alloc, wanted->bins, wanted->rounded);
    }
    return block != NULL ? block : rmm_pool_merge_until(alloc, wanted->bins, wanted->rounded);
}

/* ---- growing ---- */

static uint64_t size_to_grow(const struct rmm_pool *pool, uint64_t wanted)
{
    uint64_t left = pool->maximum - pool->bytes;
    if (pool->maximum == 0) {
        return wanted > pool->bytes ? wanted : pool->bytes;
    }
    if (wanted > left) {
        return 0;
    }
    left = rounding_up(left / 2, ROUNDING_MIN_BLOCK);
    return wanted > left ? wanted : left;
}

static struct block *lowest_whole(const struct stream_bins *bins)
{
    struct block *lowest = NULL;
    for (struct block *block = free_index_best(bins, 1); block != NULL; block = free_index_next(block)) {
        if (!block_is_split(block) && (lowest == NULL || block->addr < lowest->addr)) {
            lowest = block;
        }
    }
    return lowest;
}

/* reclaim_free_blocks: the lists have been merged into the stream's. */
static void reclaim(struct varve_alloc *alloc, const struct stream_bins *bins, uint64_t wanted)
{
    struct rmm_pool *pool = alloc->backend_state;
    struct release_sum sum = {0};
    bool is_given = wanted <= pool->maximum;
    while (is_given && pool->maximum - pool->bytes < wanted) {
        struct block *block = lowest_whole(bins);
        uint64_t bytes = block != NULL ? block->size : 0;
        is_given = block != NULL && backend_give_back(alloc, block, VARVE_CAUSE_RELEASE_AVAILABLE, &sum);
        pool->bytes -= is_given ? bytes : 0;
    }
}

/* try_to_expand */
static int expand(struct varve_alloc *alloc, struct request *request, uint64_t bytes, uint64_t least,
                  struct block **block_out)
{
    struct rmm_pool *pool = alloc->backend_state;
    int error = VARVE_ERROR_NO_MEMORY;
    while (error == VARVE_ERROR_NO_MEMORY && bytes >= least) {
        error = backend_reserve(alloc, request, bytes, block_out);
        if (error == VARVE_OK) {
            pool->bytes += bytes;
        } else if (bytes == least) {
            break;
        }
        bytes = rounding_up(bytes / 2, ROUNDING_MIN_BLOCK);
        bytes = bytes > least ? bytes : least;
    }
    return error;
}

static int rmm_pool_grow(struct varve_alloc *alloc, struct request *request, struct block **block_out)
{
    struct rmm_pool *pool = alloc->backend_state;
    uint64_t wanted = rounding_up(request->wanted.rounded, ROUNDING_MIN_BLOCK);
    struct block *block = NULL;
    if (pool->bytes == 0 && pool->initial > 0 &&
        expand(alloc, request, pool->initial, pool->initial, &block) == VARVE_OK) {
        if (block->size >= wanted) {
            *block_out = rmm_pool_cut(alloc, block, request->wanted.rounded);
            return VARVE_OK;
        }
        backend_put(alloc, block);
    }
    uint64_t bytes = size_to_grow(pool, wanted);
    if (bytes == 0) {
        reclaim(alloc, request->wanted.bins, wanted);
        bytes = size_to_grow(pool, wanted);
    }
    int error = bytes > 0 ? expand(alloc, request, bytes, wanted, &block) : VARVE_ERROR_NO_MEMORY;
    if (error == VARVE_OK) {
        *block_out = rmm_pool_cut(alloc, block, request->wanted.rounded);
    }
    return error;
}

static int rmm_pool_alloc(struct varve_alloc *alloc, struct request *request, bool may_grow, struct block **block_out)
{
    int error = backend_prepare(alloc, BACKEND_CUTS);
    if (error != VARVE_OK) {
        return error;
    }
    *block_out = rmm_pool_find(alloc, &request->wanted);
    return *block_out == NULL && may_grow ? rmm_pool_grow(alloc, request, block_out) : VARVE_OK;
}

static int rmm_pool_release(struct varve_alloc *alloc, enum varve_cause cause, struct release_sum *sum)
{
    (void)alloc;
    (void)cause;
    (void)sum;
    return VARVE_OK;
}

static int rmm_pool_check(struct varve_alloc *alloc, struct varve_message *message)
{
    const struct rmm_pool *pool = alloc->backend_state;
    const struct block *block = free_index_first(&alloc->large.index);
    if (pool->maximum != 0 && pool->bytes > pool->maximum) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "the pool is larger than its maximum");
    }
    for (; block != NULL; block = free_index_following(&alloc->large.index, block)) {
        const struct block *next = backend_free_behind(block);
        if (next != NULL && next->bins == block->bins) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "two free neighbours were not merged");
        }
    }
    return VARVE_OK;
}

static const struct pool_backend backend = {
    .options = options,
    .open = rmm_pool_open,
    .alloc = rmm_pool_alloc,
    .free = rmm_pool_free,
    .release = rmm_pool_release,
    .check = rmm_pool_check,
};

const struct alloc_policy policy_rmm_pool = {
    .name = "rmm-pool",
    .meaning = "RMM's pool: best fit in the list of the stream, then in those of others. Its first size (0: of the "
               "first request), and the most (0: no limit).",
    .block_size = rmm_pool_block_size,
    .is_small = backend_is_small,
    .segment_size = rmm_pool_segment_size,
    .backend = &backend,
};
