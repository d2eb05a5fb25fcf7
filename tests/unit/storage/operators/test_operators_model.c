/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on random views of one memory, which may overlap, beside the same on arrays that lie apart, one element
 * behind the other: the memory ends as if that result had been copied into the view, the bytes around it included.
 * Numbers are small and whole, so that every result is exact. What the results must be is beside NumPy in
 * tests/conformance/test_operators.py.
 *
 * Costs: 2 s, full 8 s
 */
#include "storage/storage.h"

#include "cmocka.h"
#include "support/random_views.h"
#include "support/structure.h"

#define ROOM 30000 /* bytes */
#define ELEMENTS 2500

/* On the heap, each of its exact size, so that a sanitizer sees what lies outside. */
static char *memory, *expected, *aside[3];

static int setup(void **state)
{
    (void)state;
    memory = malloc(ROOM);
    expected = malloc(ROOM);
    for (int i = 0; i < 3; i++) {
        aside[i] = malloc(ELEMENTS * 8);
    }
    return memory == NULL || expected == NULL || aside[2] == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    free(memory);
    free(expected);
    for (int i = 0; i < 3; i++) {
        free(aside[i]);
    }
    return 0;
}

static int64_t below(int64_t limit)
{
    return (int64_t)random_below(&random_state, (uint64_t)limit);
}

/* An operator and its arrays: 0 is the result, then the inputs. */
struct scene {
    enum varve_operator operation;
    unsigned count;
    struct varve_array arrays[3];
    int axis;
};

static bool random_view(struct varve_array *view, unsigned ndim, const int64_t *shape)
{
    return random_views_geometry(&random_state, &view->geometry, ndim, shape,
                                 (ROOM - 8) / (int64_t)varve_dtype_bytes(view->dtype));
}

/* A shape that is expanded to `shape`. */
static unsigned narrow_shape(unsigned ndim, const int64_t *shape, int64_t *narrow)
{
    unsigned less = below(4) == 0 ? (unsigned)below(ndim + 1) : 0;
    for (unsigned i = less; i < ndim; i++) {
        narrow[i - less] = below(6) == 0 ? 1 : shape[i];
    }
    return ndim - less;
}

static bool inputs_of_binary(struct scene *scene)
{
    bool is_matmul = scene->operation == VARVE_OPERATOR_MATMUL;
    int64_t shape[VARVE_DIMS_MAX], narrow[VARVE_DIMS_MAX], joined[VARVE_DIMS_MAX],
        sides[3] = {below(12), below(9), below(12)};
    unsigned ndim = random_views_shape(&random_state, shape, is_matmul ? 20 : 1500);
    for (unsigned i = 0; i < 2; i++) {
        unsigned narrow_ndim = narrow_shape(ndim, shape, narrow);
        if (is_matmul) {
            narrow[narrow_ndim++] = sides[i];
            narrow[narrow_ndim++] = sides[i + 1];
        }
        if (!random_view(&scene->arrays[1 + i], narrow_ndim, narrow)) {
            return false;
        }
    }
    assert_int_equal(varve_op_binary_shape(scene->operation, &scene->arrays[1], &scene->arrays[2], &ndim, joined, NULL),
                     0);
    return random_view(&scene->arrays[0], ndim, joined);
}

static bool input_of_reduction(struct scene *scene)
{
    int64_t shape[VARVE_DIMS_MAX], out_shape[VARVE_DIMS_MAX], reduced = 1;
    unsigned ndim = random_views_shape(&random_state, shape, ELEMENTS), out_ndim = 0;
    bool is_kept = below(2) == 0;
    scene->axis = ndim == 0 || below(4) == 0 ? VARVE_OP_ALL_AXES : (int)below((int64_t)ndim);
    for (unsigned i = 0; i < ndim; i++) {
        bool is_reduced = scene->axis == VARVE_OP_ALL_AXES || (int)i == scene->axis;
        reduced *= is_reduced ? shape[i] : 1;
        if (!is_reduced || is_kept) {
            out_shape[out_ndim++] = is_reduced ? 1 : shape[i];
        }
    }
    if (scene->axis >= 0 && below(2) == 0) {
        scene->axis -= (int)ndim;
    }
    if (scene->operation == VARVE_OPERATOR_SUM && scene->arrays[0].dtype > VARVE_DTYPE_BF16) {
        scene->arrays[0].dtype = VARVE_DTYPE_I64;
    }
    return (reduced > 0 || scene->operation == VARVE_OPERATOR_SUM) &&
           random_view(&scene->arrays[0], out_ndim, out_shape) && random_view(&scene->arrays[1], ndim, shape);
}

static bool input_of_single(struct scene *scene)
{
    int64_t shape[VARVE_DIMS_MAX];
    unsigned ndim = random_views_shape(&random_state, shape, ELEMENTS);
    for (unsigned i = 0; i < scene->count; i++) {
        if (!random_view(&scene->arrays[i], ndim, shape)) {
            return false;
        }
    }
    return true;
}

static bool is_reduction(enum varve_operator operation)
{
    return operation == VARVE_OPERATOR_SUM || operation == VARVE_OPERATOR_MAX;
}

/* False: the operator has no such types, or a view found no room. */
static bool scene_make(struct scene *scene, enum varve_operator operation)
{
    enum varve_dtype dtype = (enum varve_dtype)below(VARVE_DTYPE_LIMIT);
    bool is_binary = operation <= VARVE_OPERATOR_DIV || operation == VARVE_OPERATOR_MATMUL;
    char *data = memory + below(9);
    *scene = (struct scene){.operation = operation, .count = is_binary ? 3 : operation <= VARVE_OPERATOR_MAX ? 2 : 1};
    for (unsigned i = 0; i < 3; i++) {
        scene->arrays[i] = (struct varve_array){.data = data, .dtype = dtype};
    }
    if ((dtype > VARVE_DTYPE_BF16 && (operation == VARVE_OPERATOR_DIV || operation == VARVE_OPERATOR_UNIFORM)) ||
        (dtype == VARVE_DTYPE_BOOL && (operation == VARVE_OPERATOR_SUB || operation == VARVE_OPERATOR_RELU))) {
        return false;
    }
    if (!(is_binary                 ? inputs_of_binary(scene)
          : is_reduction(operation) ? input_of_reduction(scene)
                                    : input_of_single(scene))) {
        return false;
    }
    scene->arrays[0].data = memory + below(9); /* over the inputs at any address, or one of them */
    if (scene->count > 1 && below(4) == 0 && scene->arrays[0].dtype == dtype &&
        varve_geometry_has_shape(&scene->arrays[1].geometry, scene->arrays[0].geometry.ndim,
                                 scene->arrays[0].geometry.shape)) {
        scene->arrays[0] = scene->arrays[1];
    }
    return varve_geometry_count(&scene->arrays[0].geometry) <= ELEMENTS;
}

/* All elements that an input may have are 1 to 4, divisors powers of two, and may overlap. */
static void numbers_write(const struct scene *scene)
{
    static int8_t numbers[ROOM];
    struct varve_array to = scene->arrays[scene->count - 1], from = {.data = numbers, .dtype = VARVE_DTYPE_I8};
    int64_t count = (ROOM - 8) / (int64_t)varve_dtype_bytes(to.dtype);
    for (size_t i = 0; i < ROOM; i++) {
        memory[i] = (char)random_next(&random_state);
        numbers[i] = (int8_t)(scene->operation == VARVE_OPERATOR_DIV ? 1 << below(3) : below(5));
    }
    assert_int_equal(varve_geometry_contiguous(1, &count, &to.geometry, NULL), VARVE_OK);
    from.geometry = to.geometry;
    assert_int_equal(varve_array_copy(&to, &from, NULL), VARVE_OK);
}

static int run(const struct scene *scene)
{
    const struct varve_scalar start = {.kind = VARVE_SCALAR_INTEGER, .integer = 3}, step = {VARVE_SCALAR_REAL, 0, 0.5};
    const struct varve_array *out = &scene->arrays[0], *a = &scene->arrays[1], *b = &scene->arrays[2];
    switch (scene->operation) {
    case VARVE_OPERATOR_ADD:
        return varve_op_add(out, a, b, NULL);
    case VARVE_OPERATOR_SUB:
        return varve_op_sub(out, a, b, NULL);
    case VARVE_OPERATOR_MUL:
        return varve_op_mul(out, a, b, NULL);
    case VARVE_OPERATOR_DIV:
        return varve_op_div(out, a, b, NULL);
    case VARVE_OPERATOR_RELU:
        return varve_op_relu(out, a, NULL);
    case VARVE_OPERATOR_SUM:
        return varve_op_sum(out, a, scene->axis, NULL);
    case VARVE_OPERATOR_MAX:
        return varve_op_max(out, a, scene->axis, NULL);
    case VARVE_OPERATOR_MATMUL:
        return varve_op_matmul(out, a, b, NULL);
    case VARVE_OPERATOR_ARANGE:
        return varve_op_arange(out, start, step, NULL);
    default:
        return varve_op_uniform(out, 1, 2, -1, 1, NULL);
    }
}

static bool play(enum varve_operator operation, int round)
{
    struct scene scene;
    if (!scene_make(&scene, operation)) {
        return false;
    }
    numbers_write(&scene);
    memcpy(expected, memory, ROOM);
    struct scene apart = scene;
    for (unsigned i = 0; i < scene.count; i++) {
        struct varve_geometry *geometry = &apart.arrays[i].geometry;
        apart.arrays[i].data = aside[i];
        assert_int_equal(varve_geometry_contiguous(geometry->ndim, geometry->shape, geometry, NULL), VARVE_OK);
        assert_int_equal(i == 0 ? VARVE_OK : varve_array_copy(&apart.arrays[i], &scene.arrays[i], NULL), VARVE_OK);
    }
    assert_int_equal(run(&apart), VARVE_OK);
    struct varve_array into = scene.arrays[0];
    into.data = expected + ((char *)into.data - memory);
    assert_int_equal(varve_array_copy(&into, &apart.arrays[0], NULL), VARVE_OK);
    assert_int_equal(run(&scene), VARVE_OK);
    for (size_t i = 0; i < ROOM; i++) {
        if (memory[i] != expected[i]) {
            fail_msg("%s of %s, round %d: byte %zu is %d, not %d", varve_operator_name(operation),
                     varve_dtype_name(scene.arrays[0].dtype), round, i, memory[i], expected[i]);
        }
    }
    return true;
}

TEST_WITH(test_views, setup, teardown)
{
    static const enum varve_operator operations[] = {
        VARVE_OPERATOR_ADD, VARVE_OPERATOR_SUB, VARVE_OPERATOR_MUL,    VARVE_OPERATOR_DIV,    VARVE_OPERATOR_RELU,
        VARVE_OPERATOR_SUM, VARVE_OPERATOR_MAX, VARVE_OPERATOR_MATMUL, VARVE_OPERATOR_ARANGE, VARVE_OPERATOR_UNIFORM};
    int rounds = test_rounds(1000, 6000);
    random_state = test_first_seed(31);
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        int compared = 0;
        for (int round = 0; round < rounds; round++) {
            compared += play(operations[i], round);
        }
        if (compared < rounds / 5) {
            fail_msg("%s: only %d rounds of %d could be compared", varve_operator_name(operations[i]), compared,
                     rounds);
        }
    }
    assert_string_equal(varve_operator_name(VARVE_OPERATOR_LIMIT), "?");
}
