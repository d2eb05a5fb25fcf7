/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index arrays of all types and lengths with one index out of bounds, in every place. What plans do, and what else is
 * refused and in which words, is beside NumPy in tests/conformance/test_index_plans.py.
 *
 * Costs: 1 s
 */
#include "cmocka.h"
#include "storage/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct varve_array array_of(void *data, enum varve_dtype dtype, int64_t size)
{
    struct varve_array array = {.data = data, .dtype = dtype};
    assert_int_equal(varve_geometry_contiguous(1, &size, &array.geometry, NULL), VARVE_OK);
    return array;
}

static bool fits(int64_t value, enum varve_dtype dtype)
{
    int64_t half = dtype == VARVE_DTYPE_I64 ? 0 : INT64_C(1) << (8 * varve_dtype_bytes(dtype) - 1);
    return half == 0 || (dtype == VARVE_DTYPE_U8 ? value >= 0 && value < 2 * half : value >= -half && value < half);
}

/* `count` indices, all good but for the one at `place`; size 5. */
static void check_bad(enum varve_dtype dtype, int64_t count, int64_t place, int64_t bad, bool is_backwards)
{
    static double data[5];
    struct varve_array source = array_of(data, VARVE_DTYPE_F64, 5);
    struct varve_index index = {.kind = VARVE_INDEX_ARRAY};
    void *block = malloc((size_t)count * varve_dtype_bytes(dtype));
    assert_non_null(block);
    index.array = array_of(block, dtype, count);
    if (is_backwards) {
        assert_int_equal(varve_geometry_slice(&index.array.geometry, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -1, NULL),
                         VARVE_OK);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t good = i % 2 == 0 || dtype == VARVE_DTYPE_U8 ? i % 5 : -1 - i % 5, value = i == place ? bad : good;
        int64_t at = index.array.geometry.offset + i * index.array.geometry.strides[0];
        memcpy((char *)block + at * (int64_t)varve_dtype_bytes(dtype), &value, varve_dtype_bytes(dtype));
    }
    struct varve_index_plan *plan;
    struct varve_message message;
    char reason[100];
    if (bad >= -5 && bad < 5) {
        assert_int_equal(varve_index_plan_get(&source, &index, 1, &plan, NULL), VARVE_OK);
        varve_index_plan_free(plan);
    } else {
        snprintf(reason, sizeof(reason), "index %lld is out of bounds for axis 0 with size 5", (long long)bad);
        assert_int_equal(varve_index_plan_get(&source, &index, 1, &plan, &message), VARVE_ERROR_INVALID);
        assert_string_equal(message.text, reason);
    }
    free(block);
}

/* One bad index in every place, of values that differ from good ones in few bits only. */
TEST(test_bad_places)
{
    static const int64_t ends[] = {5, INT8_MAX, UINT8_MAX, INT16_MAX, INT32_MAX, INT64_C(1) << 32, INT64_MAX};
    static const enum varve_dtype types[] = {VARVE_DTYPE_I64, VARVE_DTYPE_I32, VARVE_DTYPE_I16, VARVE_DTYPE_I8,
                                             VARVE_DTYPE_U8};
    for (unsigned i = 0; i < 7 * 7 * 5; i++) { /* three below each end to three above, of both signs */
        uint64_t end = (uint64_t)ends[i / 7 % 7] + i % 7 - 3;
        enum varve_dtype dtype = types[i / 49];
        for (int64_t count = 1; count < 11; count++) {
            for (int64_t place = 0; place < count; place++) {
                for (unsigned way = 0; way < 4; way++) {
                    int64_t value = (int64_t)(way % 2 == 0 ? end : -end);
                    if (fits(value, dtype)) {
                        check_bad(dtype, count, place, value, way > 1);
                    }
                }
            }
        }
    }
}
