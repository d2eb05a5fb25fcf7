/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address-ordered first fit in one pool: the textbook's allocator, for comparison, and the proof that a
 * policy is a table of functions. The lowest fitting block of the stream serves; every remainder is kept;
 * segments are of 20 MiB at least. The index is ordered by size, so a search looks at every block that fits:
 * this policy is for studies, not for speed.
 */
#include "alloc/policy/policy.h"
#include "alloc/policy/rounding.h"

static uint64_t first_fit_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, ROUNDING_MIN_BLOCK);
}

static bool first_fit_is_small(const struct varve_alloc_config *config, uint64_t rounded)
{
    (void)config;
    (void)rounded;
    return false;
}

static uint64_t first_fit_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    uint64_t least = config->large_segment_size;
    return rounded < least ? least : rounding_up(rounded, ROUNDING_LARGE_STEP);
}

static struct block *first_fit_search(const struct varve_alloc_config *config, const struct wanted_block *wanted)
{
    struct block *lowest = free_index_lower_bound(wanted->bins, wanted->rounded, 0);
    (void)config;
    for (struct block *block = lowest; block != NULL; block = free_index_next(block)) {
        if (block->addr < lowest->addr) {
            lowest = block;
        }
    }
    return lowest;
}

static bool first_fit_should_split(const struct varve_alloc_config *config, const struct wanted_block *wanted,
                                   const struct block *block)
{
    (void)config;
    return !block_pool(block)->no_split && block->size - wanted->rounded >= ROUNDING_MIN_BLOCK;
}

static bool first_fit_may_merge(const struct varve_alloc_config *config, const struct block *block,
                                const struct block *neighbour)
{
    (void)config;
    (void)block;
    (void)neighbour;
    return true;
}

const struct alloc_policy policy_first_fit = {
    .name = "first-fit",
    .meaning = "The lowest free block that serves; segments of at least 20 MiB.",
    .block_size = first_fit_block_size,
    .is_small = first_fit_is_small,
    .segment_size = first_fit_segment_size,
    .search = first_fit_search,
    .should_split = first_fit_should_split,
    .may_merge = first_fit_may_merge,
};
