/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve_array_copy against a naive model: random views of one memory, which may overlap, copied element by element
 * from a copy of the memory made before. All bytes are compared, those around the target too. Then what is refused.
 * Conversions and fills are beside NumPy in tests/conformance/test_casts.py.
 *
 * Costs: 2 s, full 8 s
 */
#include "storage/storage.h"

#include "cmocka.h"
#include "support/random_views.h"
#include "support/structure.h"

#include <inttypes.h>

#define MEMORY_BYTES 60000

static char *memory; /* of its exact size, so that a sanitizer sees what lies outside */
static char *before;

static int setup(void **state)
{
    (void)state;
    memory = malloc(MEMORY_BYTES);
    before = malloc(MEMORY_BYTES);
    return memory == NULL || before == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    free(memory);
    free(before);
    return 0;
}

static int64_t below(int64_t limit)
{
    return (int64_t)random_below(&random_state, (uint64_t)limit);
}

static void memory_shuffle(void)
{
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        memory[i] = (char)random_next(&random_state);
    }
    memcpy(before, memory, MEMORY_BYTES);
}

/* ---- the model ---- */

/* Where the element `number`, counted in the usual order, lies. */
static int64_t place_of(const struct varve_geometry *geometry, int64_t number)
{
    int64_t place = geometry->offset;

    for (unsigned i = geometry->ndim; i-- > 0;) {
        place += number % geometry->shape[i] * geometry->strides[i];
        number /= geometry->shape[i];
    }
    return place;
}

static void compare(const char *what, int round, const struct varve_array *target)
{
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        if (memory[i] != before[i]) {
            char text[VARVE_SHAPE_TEXT_BYTES];

            fail_msg("%s %d: byte %zu is %d, not %d; target %s %s", what, round, i, memory[i], before[i],
                     varve_dtype_name(target->dtype),
                     varve_shape_text(target->geometry.ndim, target->geometry.shape, text, sizeof(text)));
        }
    }
}

/* ---- copies ---- */

/* The shape of a source that is expanded to `shape`: some axes of size 1, some of the first ones left out. */
static unsigned random_source_shape(unsigned ndim, const int64_t *shape, int64_t *source_shape)
{
    unsigned less = below(4) == 0 && ndim > 0 ? (unsigned)below(ndim) : 0;

    for (unsigned i = less; i < ndim; i++) {
        source_shape[i - less] = below(8) == 0 ? 1 : shape[i];
    }
    return ndim - less;
}

static void copy_round(int round)
{
    static const enum varve_dtype dtypes[] = {VARVE_DTYPE_F64, VARVE_DTYPE_F32, VARVE_DTYPE_BF16, VARVE_DTYPE_U8};
    int64_t shape[VARVE_DIMS_MAX], source_shape[VARVE_DIMS_MAX];
    struct varve_array target = {.data = memory + below(9), .dtype = dtypes[below(4)]};
    struct varve_array source = {.data = memory + below(9), .dtype = target.dtype};
    size_t bytes = varve_dtype_bytes(target.dtype);
    int64_t room = (MEMORY_BYTES - 8) / (int64_t)bytes;
    unsigned ndim = random_views_shape(&random_state, shape, room / 4);
    unsigned source_ndim = random_source_shape(ndim, shape, source_shape);
    struct varve_geometry expanded;
    struct varve_message message;
    char *old;

    if (!random_views_geometry(&random_state, &target.geometry, ndim, shape, room) ||
        !random_views_geometry(&random_state, &source.geometry, source_ndim, source_shape, room)) {
        return;
    }
    if (below(10) == 0 && source_ndim == ndim && memcmp(shape, source_shape, ndim * sizeof(*shape)) == 0) {
        source = target;
    }
    memory_shuffle();
    old = malloc(MEMORY_BYTES);
    assert_non_null(old);
    memcpy(old, before, MEMORY_BYTES);
    expanded = source.geometry;
    assert_int_equal(varve_geometry_expand(&expanded, ndim, shape, NULL), VARVE_OK);
    for (int64_t i = 0; i < varve_geometry_count(&target.geometry); i++) {
        memcpy(before + ((char *)target.data - memory) + place_of(&target.geometry, i) * (int64_t)bytes,
               old + ((char *)source.data - memory) + place_of(&expanded, i) * (int64_t)bytes, bytes);
    }
    free(old);
    if (varve_array_copy(&target, &source, &message) != VARVE_OK) {
        fail_msg("copy %d: %s", round, message.text);
    }
    compare("copy", round, &target);
}

TEST(test_copies_as_the_model)
{
    random_state = test_first_seed(11);
    for (int i = test_rounds(3000, 20000); i > 0; i--) {
        copy_round(i);
    }
}

/* Large enough for tiles, of all element sizes, with sides that leave something beside the tiles. */
TEST(test_transposes)
{
    static const int64_t sides[][2] = {{64, 64}, {128, 65}, {63, 190}, {257, 16}, {3, 500}, {500, 3}};
    static const enum varve_dtype dtypes[] = {VARVE_DTYPE_I8, VARVE_DTYPE_F16, VARVE_DTYPE_I32, VARVE_DTYPE_I64};

    random_state = test_first_seed(12);
    for (size_t i = 0; i < sizeof(sides) / sizeof(sides[0]) * 4; i++) {
        const int64_t *shape = sides[i / 4];
        struct varve_array target = {.dtype = dtypes[i % 4]};
        struct varve_array source = target;
        int64_t bytes = (int64_t)varve_dtype_bytes(target.dtype);
        int64_t count = shape[0] * shape[1];

        target.data = malloc((size_t)(count * bytes));
        source.data = malloc((size_t)(count * bytes));
        assert_non_null(target.data);
        assert_non_null(source.data);
        for (int64_t k = 0; k < count * bytes; k++) {
            ((char *)source.data)[k] = (char)random_next(&random_state);
        }
        assert_int_equal(varve_geometry_contiguous(2, shape, &source.geometry, NULL), VARVE_OK);
        assert_int_equal(varve_geometry_transpose(&source.geometry, 0, 1, NULL), VARVE_OK);
        assert_int_equal(varve_geometry_contiguous(2, source.geometry.shape, &target.geometry, NULL), VARVE_OK);
        assert_int_equal(varve_array_copy(&target, &source, NULL), VARVE_OK);
        for (int64_t row = 0; row < shape[0]; row++) {
            for (int64_t column = 0; column < shape[1]; column++) {
                assert_memory_equal((char *)target.data + (column * shape[0] + row) * bytes,
                                    (char *)source.data + (row * shape[1] + column) * bytes, (size_t)bytes);
            }
        }
        free(target.data);
        free(source.data);
    }
}

/* ---- refusals: nothing changes ---- */

static void refuse_copy(struct varve_array target, struct varve_array source, const char *text)
{
    struct varve_message message;

    memory_shuffle();
    assert_int_equal(varve_array_copy(&target, &source, &message), VARVE_ERROR_INVALID);
    if (strstr(message.text, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message.text, text);
    }
    assert_memory_equal(memory, before, MEMORY_BYTES);
}

TEST(test_refusals)
{
    struct varve_array row = {.data = memory, .dtype = VARVE_DTYPE_F32, .geometry = {{3}, {1}, 0, 1}};
    struct varve_array plane = {.data = memory, .dtype = VARVE_DTYPE_F32, .geometry = {{2, 4}, {4, 1}, 0, 2}};
    struct varve_array bad;

    random_state = test_first_seed(15);
    refuse_copy(plane, row, "shape (3,) can't be expanded to (2, 4)");
    refuse_copy(row, plane, "shape (2, 4) can't be expanded to (3,)");
    bad = plane;
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

TEST_FILE(setup, teardown)
