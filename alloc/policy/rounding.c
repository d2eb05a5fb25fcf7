/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The less frequent half of rounding: sizes with power-of-two divisions, and segment sizes, which matter on a
 * miss only. Nothing overflows and every result is a multiple of 512: the comments say why.
 */
#include "alloc/policy/rounding.h"

uint64_t rounding_power2(uint64_t bytes, uint64_t divisions)
{
    uint64_t floor = UINT64_C(1) << (63 - __builtin_clzll(bytes));
    uint64_t step = floor >> (63 - __builtin_clzll(divisions));

    /* bytes > 512 * divisions, hence floor > 256 * divisions, and step, a power of two, is above 256. PyTorch
     * has a rule for step 0 too, but only a product that overflowed could lead there. */
    assert(divisions > 1 && step >= ROUNDING_MIN_BLOCK);
    return rounding_up(bytes, step);
}

uint64_t rounding_segment_size(const struct varve_alloc_config *config, uint64_t rounded)
{
    if (rounded <= ROUNDING_SMALL_SIZE) {
        return ROUNDING_SMALL_SEGMENT;
    }
    if (rounded < ROUNDING_MIN_LARGE) {
        return config->large_segment_size;
    }
    /* Rounding up a request makes it 2^60 bytes at most. */
    assert(rounded <= ROUNDING_REQUEST_LIMIT);
    return rounding_up(rounded, ROUNDING_LARGE_STEP);
}
