/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of arrays that are refused, and change nothing. What copies make of views, overlapping ones too, is beside
 * NumPy in tests/conformance/storage_cases.py, conversions and fills in test_casts.py.
 * Costs: 1 s
 */
#include "storage/storage.h"

#include "cmocka.h"

#include <string.h>

static char memory[256], before[256];

static void refuse_copy(struct varve_array target, struct varve_array source, const char *text)
{
    memset(memory, 7, sizeof(memory));
    memcpy(before, memory, sizeof(memory));
    struct varve_message message;
    assert_int_equal(varve_array_copy(&target, &source, &message), VARVE_ERROR_INVALID);
    if (strstr(message.text, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message.text, text);
    }
    assert_memory_equal(memory, before, sizeof(memory));
}

TEST(test_refusals)
{
    struct varve_array row = {.data = memory, .dtype = VARVE_DTYPE_F32, .geometry = {{3}, {1}, 0, 1}};
    struct varve_array plane = {.data = memory, .dtype = VARVE_DTYPE_F32, .geometry = {{2, 4}, {4, 1}, 0, 2}};
    refuse_copy(plane, row, "shape (3,) can't be expanded to (2, 4)");
    refuse_copy(row, plane, "shape (2, 4) can't be expanded to (3,)");
    struct varve_array bad = plane;
    bad.geometry.strides[0] = 0;
    refuse_copy(bad, plane, "share addresses: stride 0 of axis 0");
    bad.geometry.strides[0] = -3;
    refuse_copy(bad, plane, "share addresses: stride -3 of axis 0");
    assert_int_equal(varve_array_fill(&bad, (struct varve_scalar){VARVE_SCALAR_BOOL, 1, 0}, NULL), VARVE_ERROR_INVALID);
    bad.geometry.strides[0] = -4;
    bad.geometry.offset = 4;
    assert_int_equal(varve_array_copy(&bad, &plane, NULL), VARVE_OK);
    bad = plane;
    bad.dtype = VARVE_DTYPE_LIMIT;
    refuse_copy(bad, plane, "10 is no type of elements");
    refuse_copy(plane, bad, "10 is no type of elements");
    bad = plane;
    bad.data = NULL;
    refuse_copy(plane, bad, "has elements but no data");
    bad.geometry.shape[0] = 0;
    assert_int_equal(varve_array_copy(&bad, &bad, NULL), VARVE_OK);
    bad.geometry.shape[1] = -1;
    refuse_copy(bad, plane, "size -1 of axis 1 is negative");
}
