/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The random numbers of all tests, benchmarks and workload programs: splitmix64, the same sequence everywhere for the
 * same seed, any seed. In a header, since workload programs and benchmarks link nothing of the tests. A random test
 * takes its first seed from test_first_seed(), which prints it (cmocka.h).
 */
#ifndef VARVE_TESTS_SUPPORT_RANDOM_H
#define VARVE_TESTS_SUPPORT_RANDOM_H

#include <assert.h>
#include <stdint.h>

/// 64 random bits. `*state` is the seed at first.
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

/// 0 to `limit` - 1; `limit` is not 0.
static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    assert(limit != 0);
    return random_next(state) % limit;
}

#endif
