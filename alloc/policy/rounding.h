/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the size of a request to the size of its block, and from that to the size of a new segment. Every
 * request is rounded, so the plain case (no power-of-two divisions for its size) is inline; the other is in
 * rounding.c. Requests are below 2^60 bytes, so that no sum here can overflow. Called by the policies,
 * core/request_way.c and forecasts. Source: CachingAllocator round_size and get_allocation_size,
 * c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11.
 */
#ifndef VARVE_ALLOC_POLICY_ROUNDING_H
#define VARVE_ALLOC_POLICY_ROUNDING_H

#include "alloc/alloc.h"

#include <assert.h>

#define ROUNDING_MIN_BLOCK UINT64_C(512)           /* all blocks are multiples of it */
#define ROUNDING_SMALL_SIZE (UINT64_C(1) << 20)    /* largest block of a small pool */
#define ROUNDING_SMALL_SEGMENT (UINT64_C(2) << 20) /* segment of a small pool */
#define ROUNDING_MIN_LARGE (UINT64_C(10) << 20)    /* from here on a block has a segment of its own size */
#define ROUNDING_LARGE_STEP (UINT64_C(2) << 20)    /* of which such a segment is a multiple */
#define ROUNDING_REQUEST_LIMIT (UINT64_C(1) << 60) /* requests are smaller */
#define ROUNDING_DIVISIONS_LOG2 20                 /* first interval of the table: below 2^(20+1) */

/// The rule for sizes above 512 * divisions; `divisions` is at least 2.
uint64_t rounding_power2(uint64_t bytes, uint64_t divisions);
/// Size of a new segment for a block of `rounded` bytes.
uint64_t rounding_segment_size(const struct varve_alloc_config *config, uint64_t rounded);

/// `step` is a power of two.
static inline uint64_t rounding_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) & ~(step - 1);
}

/// Entry of config->roundup_power2_divisions that holds for a size; `bytes` is not 0.
static inline unsigned rounding_interval(uint64_t bytes)
{
    unsigned log2 = 63 - (unsigned)__builtin_clzll(bytes);

    if (log2 < ROUNDING_DIVISIONS_LOG2) {
        return 0;
    }
    log2 -= ROUNDING_DIVISIONS_LOG2;
    return log2 < VARVE_ALLOC_DIVISIONS ? log2 : VARVE_ALLOC_DIVISIONS - 1;
}

/// Size of the block that serves a request of `bytes`.
static inline uint64_t rounding_block_size(const struct varve_alloc_config *config, uint64_t bytes)
{
    uint64_t divisions;

    assert(bytes < ROUNDING_REQUEST_LIMIT);
    if (bytes < ROUNDING_MIN_BLOCK) {
        return ROUNDING_MIN_BLOCK;
    }
    divisions = config->roundup_power2_divisions[rounding_interval(bytes)];
    /* The second test is bytes > 512 * divisions, written so that it holds for any number of divisions. */
    if (__builtin_expect(divisions > 1, 0) && (bytes - 1) / ROUNDING_MIN_BLOCK >= divisions) {
        return rounding_power2(bytes, divisions);
    }
    return rounding_up(bytes, ROUNDING_MIN_BLOCK);
}

#endif
