/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes and strides: counts and ranges of random geometries against the list of their elements' offsets, and what is
 * refused. What slices, reshapes, permutations and expansions show is beside NumPy in
 * tests/conformance/test_python_storage.py.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "storage/storage.h"
#include "support/random.h"

#include <string.h>

#define ROUNDS 20000U
#define COUNT_MAX 4096

/* The offsets of all elements, in the usual order. */
struct list {
    int64_t offsets[COUNT_MAX];
    size_t count;
};

static void list_add(struct list *list, const struct varve_geometry *geometry, unsigned axis, int64_t offset)
{
    if (axis == geometry->ndim) {
        assert_true(list->count < COUNT_MAX);
        list->offsets[list->count++] = offset;
        return;
    }
    for (int64_t i = 0; i < geometry->shape[axis]; i++) {
        list_add(list, geometry, axis + 1, offset + i * geometry->strides[axis]);
    }
}

static void list_make(struct list *list, const struct varve_geometry *geometry)
{
    list->count = 0;
    list_add(list, geometry, 0, geometry->offset);
}

/* A view of contiguous elements: axes exchanged, sliced, expanded. */
static struct varve_geometry random_geometry(uint64_t *random)
{
    unsigned ndim = (unsigned)random_below(random, 5);
    int64_t shape[VARVE_DIMS_MAX] = {0};
    for (unsigned i = 0; i < ndim; i++) {
        shape[i] = random_below(random, 12) == 0 ? 0 : 1 + (int64_t)random_below(random, 5);
    }
    struct varve_geometry geometry;
    assert_int_equal(varve_geometry_contiguous(ndim, shape, &geometry, NULL), VARVE_OK);
    for (unsigned i = 0; i < ndim; i++) {
        int axis = (int)random_below(random, ndim);
        switch (random_below(random, 4)) {
        case 0:
            varve_geometry_transpose(&geometry, axis, (int)random_below(random, ndim), NULL);
            break;
        case 1:
            varve_geometry_slice(&geometry, axis, VARVE_SLICE_NONE, VARVE_SLICE_NONE, random_below(random, 2) ? -1 : 2,
                                 NULL);
            break;
        case 2:
            if (geometry.shape[axis] == 1) {
                memcpy(shape, geometry.shape, sizeof(shape));
                shape[axis] = 3;
                assert_int_equal(varve_geometry_expand(&geometry, ndim, shape, NULL), VARVE_OK);
            }
            break;
        default:
            break;
        }
    }
    return geometry;
}

TEST(test_count_range_contiguous)
{
    uint64_t random = test_first_seed(1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct varve_geometry geometry = random_geometry(&random);
        static struct list list;
        int64_t first, end, least = INT64_MAX, most = INT64_MIN;
        bool is_contiguous = true;
        list_make(&list, &geometry);
        assert_int_equal(varve_geometry_count(&geometry), list.count);
        for (size_t i = 0; i < list.count; i++) {
            least = list.offsets[i] < least ? list.offsets[i] : least;
            most = list.offsets[i] > most ? list.offsets[i] : most;
            is_contiguous = is_contiguous && list.offsets[i] == list.offsets[0] + (int64_t)i;
        }
        varve_geometry_range(&geometry, &first, &end);
        assert_int_equal(varve_geometry_check(&geometry, list.count > 0 ? (uint64_t)most + 1 : 0, NULL), VARVE_OK);
        if (list.count > 0) {
            struct varve_geometry moved = geometry;
            moved.offset -= least + 1;
            assert_int_equal(varve_geometry_check(&geometry, (uint64_t)most, NULL), VARVE_ERROR_INVALID);
            assert_int_equal(varve_geometry_check(&moved, UINT64_MAX, NULL), VARVE_ERROR_INVALID);
        }
        assert_int_equal(first, list.count > 0 ? least : 0);
        assert_int_equal(end, list.count > 0 ? most + 1 : 0);
        assert_int_equal(varve_geometry_is_contiguous(&geometry), is_contiguous);
    }
}

TEST(test_errors)
{
    struct varve_geometry geometry;
    struct varve_message message = {""};
    const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 31}, hidden[] = {INT64_MAX, 0, INT64_MAX};
    const int64_t negative[] = {3, -1}, usual[] = {2, 3}, other[] = {2, 4}, one[] = {5};
    const int twice[] = {0, -2};
    assert_int_equal(varve_geometry_contiguous(2, huge, &geometry, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "shape (2147483648, 2147483648) has too many elements");
    assert_int_equal(varve_geometry_contiguous(3, hidden, &geometry, NULL), VARVE_ERROR_INVALID);
    assert_int_equal(varve_geometry_contiguous(2, negative, &geometry, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "size -1 of axis 1 is negative");
    assert_int_equal(varve_geometry_contiguous(VARVE_DIMS_MAX + 1, usual, &geometry, NULL), VARVE_ERROR_INVALID);
    assert_int_equal(varve_geometry_contiguous(2, usual, &geometry, NULL), VARVE_OK);
    assert_int_equal(varve_geometry_select(&geometry, 1, 3, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "index 3 is out of bounds for axis 1 with size 3");
    assert_int_equal(varve_geometry_permute(&geometry, twice, 2, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "axis -2 is named twice");
    assert_int_equal(varve_geometry_expand(&geometry, 2, other, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "shape (2, 3) can't be expanded to (2, 4)");
    assert_int_equal(varve_geometry_reshape(&geometry, 2, other, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "shape (2, 3) can't be reshaped to (2, 4)");
    int64_t shape[VARVE_DIMS_MAX];
    unsigned ndim;
    assert_int_equal(varve_shape_broadcast(2, usual, 2, other, &ndim, shape, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, "shapes (2, 3) and (2, 4) do not broadcast");
    char text[VARVE_SHAPE_TEXT_BYTES];
    assert_string_equal(varve_shape_text(1, one, text, sizeof(text)), "(5,)");
    assert_string_equal(varve_shape_text(0, NULL, text, sizeof(text)), "()");
    assert_string_equal(varve_shape_text(2, usual, text, 4), "(2,");
}

/* Numbers that nobody computed: no sum of them overflows. */
TEST(test_check_of_any_numbers)
{
    uint64_t random = test_first_seed(1);
    const int64_t odd[] = {INT64_MIN, INT64_MAX, -1, INT64_C(1) << 59, -(INT64_C(1) << 59), 0, 1, 2};
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct varve_geometry geometry = {.ndim = (unsigned)random_below(&random, VARVE_DIMS_MAX + 2)};
        geometry.offset = odd[random_below(&random, 8)];
        for (unsigned i = 0; i < VARVE_DIMS_MAX; i++) {
            geometry.shape[i] = random_below(&random, 3) == 0 ? odd[random_below(&random, 8)] : 2;
            geometry.strides[i] = odd[random_below(&random, 8)];
        }
        if (varve_geometry_check(&geometry, 100, NULL) == VARVE_OK && varve_geometry_count(&geometry) > 0) {
            int64_t first, end;
            varve_geometry_range(&geometry, &first, &end);
            assert_true(first >= 0 && end <= 100);
        }
    }
}

TEST(test_types)
{
    enum varve_dtype dtype;
    for (unsigned i = 0; i < VARVE_DTYPE_LIMIT; i++) {
        assert_int_equal(varve_dtype_find(varve_dtype_name((enum varve_dtype)i), &dtype), VARVE_OK);
        assert_int_equal(dtype, i);
        assert_true(varve_dtype_bytes(dtype) >= 1 && varve_dtype_bytes(dtype) <= 8);
    }
    assert_int_equal(varve_dtype_find("float", &dtype), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_dtype_bytes(VARVE_DTYPE_LIMIT), 0);
    assert_string_equal(varve_dtype_name(VARVE_DTYPE_LIMIT), "?");
}

/* ---- copies that are refused, and change nothing: what copies make of views is in storage_cases.py ---- */

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

TEST(test_refused_copies)
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
