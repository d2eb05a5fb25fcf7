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
    uint64_t divisions = table[model_entry(bytes)];
    uint64_t low = 1, step = 512, result;
    if (bytes < 512) {
        return 512;
    }
    /* bytes > 512 * divisions, in a width where that can't overflow */
    if (divisions > 1 && (unsigned __int128)bytes > (unsigned __int128)512 * divisions) {
        while (low * 2 <= bytes) {
            low *= 2;
        }
        step = low / divisions;
        for (result = low; result < bytes;) {
            result += step;
        }
        return result;
    }
    result = bytes / step * step;
    return result == bytes ? result : result + step;
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

static void compare_all(const struct varve_alloc_config *config, uint64_t *random)
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
    for (unsigned i = 0; i < RANDOM_SIZES; i++) {
        compare(config, random_next(random) >> (4 + random_next(random) % 52));
    }
}

/* ---- Tests ---- */

TEST(test_one_number_for_all)
{
    struct varve_alloc_config config;
    uint64_t random = 0x9e3779b97f4a7c15;
    varve_alloc_config_init(&config);
    compare_all(&config, &random);
    /* Beyond 4096 divisions the model would take long; the steps are the same ones, only finer. */
    for (uint64_t divisions = 1; divisions <= 4096; divisions *= 2) {
        for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
            config.roundup_power2_divisions[i] = divisions;
        }
        compare_all(&config, &random);
    }
}

TEST(test_a_table_of_all_numbers)
{
    struct varve_alloc_config config;
    uint64_t random = 20240229;
    varve_alloc_config_init(&config);
    for (unsigned round = 0; round < 8; round++) {
        for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
            unsigned log2 = (unsigned)(random_next(&random) % 11);
            config.roundup_power2_divisions[i] = log2 ? UINT64_C(1) << (log2 - 1) : 0;
        }
        compare_all(&config, &random);
    }
}

TEST(test_more_divisions_than_blocks)
{
    struct varve_alloc_config config;
    uint64_t random = 77;
    varve_alloc_config_init(&config);
    for (unsigned log2 = 13; log2 < 64; log2++) {
        uint64_t divisions = UINT64_C(1) << log2;
        for (size_t i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
            config.roundup_power2_divisions[i] = divisions;
        }
        for (unsigned i = 0; i < 2000; i++) {
            uint64_t bytes = (random_next(&random) >> (4 + random_next(&random) % 52)) | 1;
            uint64_t rounded = rounding_block_size(&config, bytes);
            uint64_t step = 512;

            /* Steps of at least 512, at most the interval's share, and no more than one step is added. */
            if (log2 < 51 && bytes > 512 * divisions) {
                for (step = 512; step * divisions * 2 <= bytes;) {
                    step *= 2;
                }
            }
            if (rounded < bytes || rounded - bytes >= step || rounded % step != 0) {
                fail_msg("%ju bytes with 2^%u divisions give %ju", (uintmax_t)bytes, log2, (uintmax_t)rounded);
            }
        }
    }
}

TEST(test_known_sizes)
{
    struct varve_alloc_config config;
    varve_alloc_config_init(&config);
    assert_int_equal(rounding_block_size(&config, 0), 512);
    assert_int_equal(rounding_block_size(&config, 1), 512);
    assert_int_equal(rounding_block_size(&config, 512), 512);
    assert_int_equal(rounding_block_size(&config, 513), 1024);
    assert_int_equal(rounding_block_size(&config, LIMIT - 1), LIMIT);

    /* Four divisions between 1024 and 2048 are multiples of 256, which is why 512 * 4 is the border. */
    config.roundup_power2_divisions[0] = 4;
    assert_int_equal(rounding_block_size(&config, 1200), 1536);
    assert_int_equal(rounding_block_size(&config, 2048), 2048);
    assert_int_equal(rounding_block_size(&config, 2049), 2560);
    assert_int_equal(rounding_block_size(&config, 5000), 5120);
    assert_int_equal(rounding_block_size(&config, MIB + 1), MIB + MIB / 4);
    assert_int_equal(rounding_block_size(&config, 2 * MIB - 1), 2 * MIB);
    assert_int_equal(rounding_block_size(&config, 2 * MIB + 1), 2 * MIB + 512);
}

TEST(test_segments)
{
    struct varve_alloc_config config;
    varve_alloc_config_init(&config);
    assert_int_equal(rounding_segment_size(&config, 512), 2 * MIB);
    assert_int_equal(rounding_segment_size(&config, MIB), 2 * MIB);
    assert_int_equal(rounding_segment_size(&config, MIB + 512), 20 * MIB);
    assert_int_equal(rounding_segment_size(&config, 10 * MIB - 512), 20 * MIB);
    assert_int_equal(rounding_segment_size(&config, 10 * MIB), 10 * MIB);
    assert_int_equal(rounding_segment_size(&config, 10 * MIB + 512), 12 * MIB);
    assert_int_equal(rounding_segment_size(&config, 12 * MIB), 12 * MIB);
    assert_int_equal(rounding_segment_size(&config, LIMIT), LIMIT);
    assert_int_equal(rounding_segment_size(&config, LIMIT - 512), LIMIT);
    config.large_segment_size = 64 * MIB;
    assert_int_equal(rounding_segment_size(&config, MIB), 2 * MIB);
    assert_int_equal(rounding_segment_size(&config, 5 * MIB), 64 * MIB);
    assert_int_equal(rounding_segment_size(&config, 11 * MIB), 12 * MIB);
}

/* What callers without an allocator get: the same, by policy; 0 for what is no size. */
TEST(test_public)
{
    struct varve_alloc_config config;
    varve_alloc_config_init(&config);
    config.roundup_power2_divisions[0] = 4;
    assert_int_equal(varve_alloc_block_size(NULL, &config, 5000), 5120);
    assert_int_equal(varve_alloc_block_size("pytorch", &config, MIB + 1), MIB + MIB / 4);
    assert_int_equal(varve_alloc_block_size("first-fit", &config, MIB + 1), MIB + 512);
    assert_int_equal(varve_alloc_block_size("cuda-async", &config, 1), 512);
    assert_int_equal(varve_alloc_block_size(NULL, &config, 0), 0);
    assert_int_equal(varve_alloc_block_size(NULL, &config, LIMIT), 0);
    assert_int_equal(varve_alloc_block_size("best-fit", &config, 512), 0);
    assert_int_equal(varve_alloc_segment_size(NULL, &config, MIB), 2 * MIB);
    assert_int_equal(varve_alloc_segment_size("first-fit", &config, MIB), 20 * MIB);
    assert_int_equal(varve_alloc_segment_size("cuda-async", &config, MIB), MIB);
    assert_int_equal(varve_alloc_segment_size(NULL, &config, LIMIT), LIMIT);
    assert_int_equal(varve_alloc_segment_size(NULL, &config, LIMIT + 512), 0);
    assert_int_equal(varve_alloc_segment_size(NULL, &config, 0), 0);
    assert_int_equal(varve_alloc_segment_size("best-fit", &config, 512), 0);
}
