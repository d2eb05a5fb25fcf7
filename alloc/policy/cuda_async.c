/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's own pools as a policy, to compare others with: each request is one allocation of the device's
 * stream-ordered memory (cuMemAllocFromPoolAsync), each free frees it at once (cuMemFreeAsync), and
 * nothing is cached here. What is reserved is therefore what is allocated; what the driver's pool holds
 * beyond that is seen in the device's free memory alone.
 *
 * Private pools are the exception. A captured graph goes on using its memory after it was freed, and the
 * driver would make nodes of the graph of what is allocated meanwhile; so they are served as under the policy
 * `pytorch`, from segments of their own.
 */
#include "alloc/policy/pytorch.h"

static uint64_t block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    (void)config;
    return rounding_up(bytes > 0 ? bytes : 1, ROUNDING_MIN_BLOCK);
}

static struct block *search(const struct varve_alloc_config *config, const struct wanted_block *wanted)
{
    return wanted->stream_ordered ? NULL : pytorch_search(config, wanted);
}

static bool should_split(const struct varve_alloc_config *config, const struct wanted_block *wanted,
                         const struct block *block)
{
    return !wanted->stream_ordered && pytorch_should_split(config, wanted, block);
}

const struct alloc_policy policy_cuda_async = {
    .name = "cuda-async",
    .block_size = block_size,
    .is_small = pytorch_is_small,
    .segment_size = pytorch_segment_size,
    .search = search,
    .should_split = should_split,
    .may_merge = pytorch_may_merge,
    .stream_ordered = true,
};
