/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The usual policy's table, and what is rare of it: sizes of segments, and the search past blocks of
 * expandable segments. The rest is in pytorch_rules.h.
 */
#include "alloc/policy/pytorch_rules.h"

uint64_t pytorch_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    return rounding_segment_size(config, rounded);
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

struct block *pytorch_pass_expandable(bool is_expandable, struct block *block)
{
    return is_expandable ? prefer_least_growth(block) : skip_expandable(block);
}

const struct alloc_policy policy_pytorch = {
    .name = "pytorch",
    .meaning = "The rules of PyTorch's caching allocator, and all settings of --conf. Private pools, those of graph "
               "captures, have these under every policy.",
    .block_size = pytorch_block_size,
    .is_small = pytorch_is_small,
    .segment_size = pytorch_segment_size,
    .search = pytorch_search,
    .should_split = pytorch_should_split,
    .may_merge = pytorch_may_merge,
    .has_gc = true,
    .has_release_available = true,
};
