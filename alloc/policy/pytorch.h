/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * PyTorch's decisions: best fit per stream, ties by address, with the exceptions for oversize blocks and for
 * expandable segments. Inline, for they are part of each cached request: POLICY_CALL calls them by name where
 * the policy is this one. Source: round_size, get_allocation_size, get_free_block, should_split of
 * c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11.
 */
#ifndef VARVE_ALLOC_POLICY_PYTORCH_H
#define VARVE_ALLOC_POLICY_PYTORCH_H

#include "alloc/core/allocator.h"

HOT uint64_t pytorch_block_size(const struct varve_alloc *alloc, uint64_t bytes)
{
    return rounding_block_size(&alloc->config, bytes);
}

HOT bool pytorch_is_small(const struct varve_alloc *alloc, uint64_t rounded)
{
    (void)alloc;
    return rounded <= ROUNDING_SMALL_SIZE;
}

HOT struct block *pytorch_search(const struct varve_alloc *alloc, const struct request *request)
{
    const struct varve_alloc_config *config = &alloc->config;
    uint64_t size = request->rounded;
    struct block *block = index_best(request->home, size);

    if (block != NULL && UNLIKELY(block->expandable != NULL)) {
        block = pytorch_pass_expandable(request, block);
    }
    if (block == NULL || (size < config->max_split_size && block->size >= config->max_split_size)) {
        return NULL; /* an oversize block is not for a smaller request */
    }
    if (UNLIKELY(size >= config->max_split_size) &&
        block->size >= size + config->max_non_split_rounding_size) {
        return NULL; /* it would not be split, and waste too much */
    }
    return block;
}

HOT bool pytorch_should_split(const struct varve_alloc *alloc, const struct request *request,
                              const struct block *block)
{
    const struct pool *pool = block_pool(block);
    uint64_t remaining = block->size - request->rounded;

    if (UNLIKELY(pool->owner != NULL) && pool->owner->no_split) {
        return false;
    }
    if (pool->is_small || request->is_expandable) {
        return remaining >= ROUNDING_MIN_BLOCK;
    }
    return request->rounded < alloc->config.max_split_size && remaining > ROUNDING_SMALL_SIZE;
}

HOT bool pytorch_may_merge(const struct varve_alloc *alloc, const struct block *block,
                           const struct block *neighbour)
{
    (void)alloc;
    (void)block;
    (void)neighbour;
    return true;
}

#define POLICY_CALL(alloc, function, ...)                                                  \
    (LIKELY((alloc)->policy == &policy_pytorch) ? pytorch_##function((alloc), __VA_ARGS__) \
                                                : (alloc)->policy->function((alloc), __VA_ARGS__))

#endif
