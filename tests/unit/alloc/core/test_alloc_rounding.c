/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounding against a model that knows no bit tricks: it finds powers of two by doubling, divides the interval
 * between two of them into equal steps, and takes the first one that is large enough. All numbers of
 * divisions, sizes at every edge and at random, up to the last size below 2^60.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "alloc/policy/rounding.h"
#include "support/random.h"

#define MIB (UINT64_C(1) << 20)
#define LIMIT (UINT64_C(1) << 60)
#define RANDOM_SIZES 20000

/* ---- The model ---- */

static size_t model_entry(uint64_t bytes)
{
    size_t entry = 0;
    for (uint64_t end = 2 * MIB; end <= bytes && entry < VARVE_ALLOC_DIVISIONS - 1; end *= 2) {
        entry++;
    }
    return entry;
}

static uint64_t model_block_size(const uint64_t *table, uint64_t bytes)
{
    uint64_t divisions = table[model_entry(bytes)], low = 1, step = 512;
    if (bytes < 512) {
        return 512;
    }
    /* bytes > 512 * divisions, in a width where that can't overflow */
    if (divisions > 1 && (unsigned __int128)bytes > (unsigned __int128)512 * divisions) {
        while (low * 2 <= bytes) {
            low *= 2;
        }
        step = low / divisions; /* low is a multiple of it */
    }
    return (bytes + step - 1) / step * step;
}

static void compare(const struct varve_alloc_config *config, uint64_t bytes)
{
    uint64_t expected = model_block_size(config->roundup_power2_divisions, bytes);
    uint64_t rounded = rounding_block_size(config, bytes);
    if (rounded != expected) {
        fail_msg("%ju bytes with %ju divisions give %ju, not %ju", (uintmax_t)bytes,
                 (uintmax_t)config->roundup_power2_divisions[model_entry(bytes)], (uintmax_t)rounded,
                 (uintmax_t)expected);
    }
    assert_true(rounded >= bytes && rounded >= 512 && rounded % 512 == 0 && rounded <= LIMIT);
}

static void compare_all(const struct varve_alloc_config *config, uint64_t *random, unsigned random_sizes)
{
    for (uint64_t bytes = 0; bytes < 5000; bytes++) {
        compare(config, bytes);
    }
    for (unsigned log2 = 10; log2 <= 60; log2++) {
        uint64_t power = UINT64_C(1) << log2;
        for (uint64_t offset = 0; offset <= 513; offset++) {
            compare(config, power - 1 - offset);
            if (power + offset < LIMIT) {
                compare(config, power + offset);
            }
        }
    }
    for (unsigned i = 0; i < random_sizes; i++) {
        compare(config, random_next(random) >> (4 + random_next(random) % 52));
    }
}

/* ---- Tests ---- */

/* None, each number of divisions for all sizes, and tables of small numbers. */
TEST(test_block_sizes)
{
    struct varve_alloc_config config;
    uint64_t random = 0x9e3779b97f4a7c15;
    varve_alloc_config_init(&config);
    for (unsigned round = 0; round < 73; round++) {
        for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
            uint64_t log2 = round <= 64 ? round : random_next(&random) % 11;
            config.roundup_power2_divisions[i] = log2 != 0 ? UINT64_C(1) << (log2 - 1) : 0;
        }
        compare_all(&config, &random, round < 14 || round > 64 ? RANDOM_SIZES : 2000);
    }
}

/* What callers without an allocator get, by policy; 0 for what is no size. Four divisions below 2 MiB: between 1024 and
 * 2048 they are multiples of 256, which is why 512 * 4 is the border. */
TEST(test_known_sizes)
{
    static const struct {
        const char *policy;
        uint64_t bytes, block, segment; /* 1: not asked */
        uint64_t large_segment;         /* 0: 20 MiB */
    } cases[] = {
        {NULL, 0, 0, 0, 0},
        {NULL, 1, 512, 1, 0},
        {NULL, 512, 512, 2 * MIB, 0},
        {NULL, 513, 1024, 1, 0},
        {NULL, 1200, 1536, 1, 0},
        {NULL, 2048, 2048, 1, 0},
        {NULL, 2049, 2560, 1, 0},
        {NULL, 5000, 5120, 1, 0},
        {NULL, MIB, MIB, 2 * MIB, 0},
        {NULL, MIB + 512, MIB + MIB / 4, 20 * MIB, 0},
        {"pytorch", MIB + 1, MIB + MIB / 4, 1, 0},
        {NULL, 2 * MIB - 1, 2 * MIB, 1, 0},
        {NULL, 2 * MIB + 1, 2 * MIB + 512, 1, 0},
        {NULL, 10 * MIB - 512, 10 * MIB - 512, 20 * MIB, 0},
        {NULL, 10 * MIB, 10 * MIB, 10 * MIB, 0},
        {NULL, 10 * MIB + 512, 10 * MIB + 512, 12 * MIB, 0},
        {NULL, 12 * MIB, 12 * MIB, 12 * MIB, 0},
        {NULL, LIMIT - 1, LIMIT, 1, 0},
        {NULL, LIMIT - 512, LIMIT - 512, LIMIT, 0},
        {NULL, LIMIT, 0, LIMIT, 0},
        {NULL, LIMIT + 512, 0, 0, 0},
        {NULL, MIB, MIB, 2 * MIB, 64 * MIB},
        {NULL, 5 * MIB, 5 * MIB, 64 * MIB, 64 * MIB},
        {NULL, 11 * MIB, 11 * MIB, 12 * MIB, 64 * MIB},
        {"first-fit", MIB + 1, MIB + 512, 1, 0},
        {"first-fit", MIB, MIB, 20 * MIB, 0},
        {"cuda-async", 1, 512, 1, 0},
        {"cuda-async", MIB, MIB, MIB, 0},
        {"best-fit", 512, 0, 0, 0},
    };
    struct varve_alloc_config config;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        varve_alloc_config_init(&config);
        config.roundup_power2_divisions[0] = 4;
        config.large_segment_size = cases[i].large_segment != 0 ? cases[i].large_segment : 20 * MIB;
        uint64_t block = varve_alloc_block_size(cases[i].policy, &config, cases[i].bytes);
        uint64_t segment = varve_alloc_segment_size(cases[i].policy, &config, cases[i].bytes);
        if (block != cases[i].block || (cases[i].segment != 1 && segment != cases[i].segment)) {
            fail_msg("case %zu: %ju bytes give a block of %ju and a segment of %ju", i, (uintmax_t)cases[i].bytes,
                     (uintmax_t)block, (uintmax_t)segment);
        }
    }
}
