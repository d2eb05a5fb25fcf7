/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's decisions: best fit per stream, ties by address, with the exceptions for oversize blocks and for
 * expandable segments. Source: round_size, get_allocation_size, get_free_block, should_split of
 * c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11.
 */
#include "alloc/allocator_internal.h"

uint64_t pytorch_block_size(const struct varve_alloc *alloc, uint64_t bytes)
{
    return rounding_block_size(&alloc->config, bytes);
}

bool pytorch_is_small(const struct varve_alloc *alloc, uint64_t rounded)
{
    (void)alloc;
    return rounded <= ROUNDING_SMALL_SIZE;
}

uint64_t pytorch_segment_size(const struct varve_alloc *alloc, uint64_t rounded)
{
    return rounding_segment_size(&alloc->config, rounded);
}

/* What a free block at the edge of an expandable segment could grow to. */
static uint64_t expandable_size(const struct block *block)
{
    const struct block *next = block->next;

    return block->size + (next != NULL && !next->is_mapped ? next->size : 0);
}

/* Only consecutive descents are followed: this is no full search. */
static struct block *prefer_least_growth(struct block *block)
{
    while (block->expandable != NULL) {
        struct block *next = free_index_next(block);
        if (next == NULL || expandable_size(next) >= expandable_size(block)) {
            break;
        }
        block = next;
    }
    return block;
}

static struct block *skip_expandable(struct block *block)
{
    do {
        block = free_index_next(block);
    } while (block != NULL && block->expandable != NULL);
    return block;
}

struct block *pytorch_search(const struct varve_alloc *alloc, const struct request *request)
{
    const struct varve_alloc_config *config = &alloc->config;
    uint64_t size = request->rounded;
    struct block *block = free_index_lower_bound(request->home, size, 0);

    if (block != NULL && __builtin_expect(block->expandable != NULL, 0)) {
        block = request->is_expandable ? prefer_least_growth(block) : skip_expandable(block);
    }
    if (block == NULL || (size < config->max_split_size && block->size >= config->max_split_size)) {
        return NULL; /* an oversize block is not for a smaller request */
    }
    if (size >= config->max_split_size && block->size >= size + config->max_non_split_rounding_size) {
        return NULL; /* it would not be split, and waste too much */
    }
    return block;
}

bool pytorch_should_split(const struct varve_alloc *alloc, const struct request *request,
                          const struct block *block)
{
    const struct pool *pool = block_pool(block);
    uint64_t remaining = block->size - request->rounded;

    if (pool->owner != NULL && pool->owner->no_split) {
        return false;
    }
    if (pool->is_small || request->is_expandable) {
        return remaining >= ROUNDING_MIN_BLOCK;
    }
    return request->rounded < alloc->config.max_split_size && remaining > ROUNDING_SMALL_SIZE;
}

bool pytorch_may_merge(const struct varve_alloc *alloc, const struct block *block,
                       const struct block *neighbour)
{
    (void)alloc;
    (void)block;
    (void)neighbour;
    return true;
}

const struct alloc_policy policy_pytorch = {
    .name = "pytorch",
    .block_size = pytorch_block_size,
    .is_small = pytorch_is_small,
    .segment_size = pytorch_segment_size,
    .search = pytorch_search,
    .should_split = pytorch_should_split,
    .may_merge = pytorch_may_merge,
    .has_gc = true,
    .has_release_available = true,
};
