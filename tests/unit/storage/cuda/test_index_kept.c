/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is brought to a GPU of a plan's indices: of equal positions only the last one is left, so that the order in
 * which threads put values does not matter; a mask's words have the number of elements before each part; and the bits
 * that all positions share.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/cuda/gpu_index.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 60
#define COLUMNS 4

static struct varve_message message;

static struct varve_array array_of(void *data, enum varve_dtype dtype, unsigned ndim, const int64_t *shape)
{
    struct varve_array array = {.data = data, .dtype = dtype};
    assert_int_equal(varve_geometry_contiguous(ndim, shape, &array.geometry, &message), 0);
    return array;
}

struct kept {
    void *bytes;
    uint64_t size, positions;
};

static struct kept kept_of(const struct varve_index_plan *plan)
{
    struct kept kept = {.size = gpu_index_bytes(plan)};
    kept.bytes = malloc(kept.size + 1);
    assert_non_null(kept.bytes);
    ((unsigned char *)kept.bytes)[kept.size] = 0x5a;
    assert_int_equal(gpu_index_write(plan, kept.bytes, &kept.positions, &message), 0);
    assert_int_equal(((unsigned char *)kept.bytes)[kept.size], 0x5a); /* no byte more */
    return kept;
}

/* Values put in any order end as they do one after the other. */
static void put_check(const int32_t *list, const int64_t *rows, int64_t count, uint64_t *random)
{
    int64_t last[ROWS], seen[ROWS], at[200];
    for (int64_t i = 0; i < ROWS; i++) {
        last[i] = seen[i] = -1;
    }
    for (int64_t i = 0; i < count; i++) {
        last[rows[i]] = i;
        at[i] = i;
    }
    for (int64_t i = count; i-- > 1;) {
        int64_t other = (int64_t)random_below(random, (uint64_t)i + 1), kept = at[i];
        at[i] = at[other];
        at[other] = kept;
    }
    for (int64_t i = 0; i < count; i++) {
        if (list[at[i]] != INT32_MIN) {
            assert_int_equal(list[at[i]], rows[at[i]] * COLUMNS * 4);
            seen[rows[at[i]]] = at[i];
        }
    }
    assert_memory_equal(seen, last, sizeof(last));
}

TEST(test_equal_positions)
{
    const int64_t whole[] = {ROWS, COLUMNS};
    float values[200 * COLUMNS], target[ROWS * COLUMNS];
    uint64_t random = 31;
    for (int round = 0; round < 500; round++) {
        int64_t rows[200], count = 1 + (int64_t)random_below(&random, 200), shape[] = {count, COLUMNS};
        uint64_t range = 1 + random_below(&random, ROWS);
        struct varve_index index = {.kind = VARVE_INDEX_ARRAY, .array = array_of(rows, VARVE_DTYPE_I64, 1, &count)};
        struct varve_array to = array_of(target, VARVE_DTYPE_F32, 2, whole);
        struct varve_array value = array_of(values, VARVE_DTYPE_F32, 2, shape);
        for (int64_t i = 0; i < count; i++) {
            rows[i] = (int64_t)random_below(&random, range);
        }
        struct varve_index_plan *plan;
        assert_int_equal(varve_index_plan_set(&to, &index, 1, &value, &plan, &message), 0);
        struct kept kept = kept_of(plan);
        assert_int_equal(kept.size, (uint64_t)count * sizeof(int32_t));
        assert_int_equal(kept.positions % (COLUMNS * 4), 0);
        put_check(kept.bytes, rows, count, &random);
        free(kept.bytes);
        varve_index_plan_free(plan);
    }
}

/* What is picked twice stays, and so does what one number is put to. */
TEST(test_nothing_left_out)
{
    int64_t picks[] = {7, -1, 7, 0}, four[] = {4};
    const int64_t whole[] = {ROWS};
    int16_t data[ROWS] = {0};
    struct varve_index index = {.kind = VARVE_INDEX_ARRAY, .array = array_of(picks, VARVE_DTYPE_I64, 1, four)};
    struct varve_array array = array_of(data, VARVE_DTYPE_I16, 1, whole);
    const struct varve_scalar one = {.kind = VARVE_SCALAR_INTEGER, .integer = 1};
    const int32_t expected[] = {14, 2 * (ROWS - 1), 14, 0};
    struct varve_index_plan *plans[2];
    assert_int_equal(varve_index_plan_get(&array, &index, 1, &plans[0], &message), 0);
    assert_int_equal(varve_index_plan_fill(&array, &index, 1, one, &plans[1], &message), 0);
    for (unsigned i = 0; i < 2; i++) {
        struct kept kept = kept_of(plans[i]);
        assert_int_equal(kept.size, sizeof(expected));
        assert_memory_equal(kept.bytes, expected, sizeof(expected));
        assert_int_equal(kept.positions, 14 | 2 * (ROWS - 1));
        free(kept.bytes);
        varve_index_plan_free(plans[i]);
    }
}

/* A mask alone: ranks, then words. With axes around it the positions of its elements are listed. */
TEST(test_masks)
{
    enum { SIZE = 5000, WIDTH = 3 };
    static bool mask[SIZE];
    static uint8_t data[SIZE * WIDTH];
    const int64_t one[] = {SIZE}, two[] = {SIZE, WIDTH};
    struct varve_index index = {.kind = VARVE_INDEX_MASK, .array = array_of(mask, VARVE_DTYPE_BOOL, 1, one)};
    struct varve_array flat = array_of(data, VARVE_DTYPE_U8, 1, one), rows = array_of(data, VARVE_DTYPE_U8, 2, two);
    uint64_t random = 5, rank = 0, words = (SIZE + 63) / 64, parts = (words + INDEX_PART_WORDS - 1) / INDEX_PART_WORDS;
    int64_t at = 0;
    for (int64_t i = 0; i < SIZE; i++) {
        mask[i] = random_below(&random, 3) != 0;
    }
    struct varve_index_plan *plan;
    assert_int_equal(varve_index_plan_get(&flat, &index, 1, &plan, &message), 0);
    struct kept kept = kept_of(plan);
    assert_int_equal(kept.size, (words + parts) * 8);
    for (uint64_t i = 0; i < words * 64; i++) {
        uint64_t word = ((uint64_t *)kept.bytes)[parts + i / 64];
        if (i % (64 * INDEX_PART_WORDS) == 0) {
            assert_int_equal(((uint64_t *)kept.bytes)[i / (64 * INDEX_PART_WORDS)], rank);
        }
        assert_int_equal(word >> i % 64 & 1, i < SIZE && mask[i]);
        rank += word >> i % 64 & 1;
    }
    free(kept.bytes);
    varve_index_plan_free(plan);
    assert_int_equal(varve_index_plan_get(&rows, &index, 1, &plan, &message), 0);
    kept = kept_of(plan);
    assert_int_equal(kept.size, rank * 4);
    for (int64_t i = 0; i < SIZE; i++) {
        if (mask[i]) {
            assert_int_equal(((int32_t *)kept.bytes)[at++], i * WIDTH);
        }
    }
    free(kept.bytes);
    varve_index_plan_free(plan);
}
