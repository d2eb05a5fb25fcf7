/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's decisions: best fit per stream, ties by address, with the exceptions for oversize blocks and for
 * expandable segments. Inline, for they are part of each cached request: POLICY_CALL calls them by name where
 * the policy is this one. Source: round_size, get_allocation_size, get_free_block, should_split of
 * c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.11.
 */
#ifndef VARVE_ALLOC_POLICY_PYTORCH_RULES_H
#define VARVE_ALLOC_POLICY_PYTORCH_RULES_H

#include "alloc/policy/policy.h"
#include "alloc/policy/rounding.h"

/* pytorch_rules.c: what is rare */
uint64_t pytorch_segment_size(const struct varve_alloc_config *config, uint64_t rounded);
/// The best block is of an expandable segment: which one it is to be instead.
struct block *pytorch_pass_expandable(bool is_expandable, struct block *block);

HOT uint64_t pytorch_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    return rounding_block_size(config, bytes);
}

HOT bool pytorch_is_small(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    return rounded <= ROUNDING_SMALL_SIZE;
}

/* By value, so that it stays in registers. */
HOT struct block *pytorch_search_for(const struct varve_alloc_config *config, struct wanted_block wanted)
{
    uint64_t size = wanted.rounded;
    struct block *block = free_index_best(wanted.bins, size);

    if (block != NULL && UNLIKELY(block->is_expandable)) {
        block = pytorch_pass_expandable(wanted.is_expandable, block);
    }
    if (block == NULL || (size < config->max_split_size && block->size >= config->max_split_size)) {
        return NULL; /* an oversize block is not for a smaller request */
    }
    if (UNLIKELY(size >= config->max_split_size) && block->size >= size + config->max_non_split_rounding_size) {
        return NULL; /* it would not be split, and waste too much */
    }
    return block;
}

HOT struct block *pytorch_search(const struct varve_alloc_config *config, const struct wanted_block *wanted)
{
    return pytorch_search_for(config, *wanted);
}

HOT bool pytorch_cuts(const struct varve_alloc_config *config, const struct pool *pool, struct wanted_block wanted,
                      uint64_t size)
{
    uint64_t remaining = size - wanted.rounded;

    if (UNLIKELY(pool->no_split)) {
        return false;
    }
    if (pool->is_small || wanted.is_expandable) {
        return remaining >= ROUNDING_MIN_BLOCK;
    }
    return wanted.rounded < config->max_split_size && remaining > ROUNDING_SMALL_SIZE;
}

HOT bool pytorch_should_split(const struct varve_alloc_config *config, const struct wanted_block *wanted,
                              const struct block *block)
{
    return pytorch_cuts(config, block_pool(block), *wanted, block->size);
}

HOT bool pytorch_may_merge(const struct varve_alloc_config *config, const struct block *block,
                           const struct block *neighbour)
{
    (void)config;
    (void)block;
    (void)neighbour;
    return true;
}

/* A decision of a policy; of the usual one it is inline. */
#define POLICY_CALL(policy, function, ...) \
    (LIKELY((policy) == &policy_pytorch) ? pytorch_##function(__VA_ARGS__) : (policy)->function(__VA_ARGS__))

#endif
