/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index plans against a naive model: for each element of the result, the coordinates in the source by the rules as they are
 * written down, one element at a time. Random expressions on small arrays of every kind of order; each array is a heap block
 * of its own size, so that a sanitizer sees a read or write beside it. Then the errors, and that a refused plan or run
 * leaves everything as it was.
 * Costs: 1 s
 */
#include "cmocka.h"
#include "storage/storage.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AXES 4
#define ENTRIES 8
#define PICKED_MAX 256

static uint64_t random_state;

static int64_t below(int64_t limit)
{
    return (int64_t)random_below(&random_state, (uint64_t)limit);
}

static bool chance(int64_t percent)
{
    return below(100) < percent;
}

/* ---- arrays in blocks of their own ---- */

/* The whole block is that of `array`: random order of axes, some backwards, some with gaps. */
struct block {
    struct varve_array array;
    size_t bytes;
};

static void block_make(struct block *block, enum varve_dtype dtype, unsigned ndim, const int64_t *shape)
{
    struct varve_geometry *geometry = &block->array.geometry;
    int64_t first, end, size = 1;
    unsigned order[VARVE_DIMS_MAX] = {0};

    *geometry = (struct varve_geometry){.ndim = ndim};
    for (unsigned i = 0; i < ndim; i++) {
        unsigned j = (unsigned)below(i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (unsigned i = ndim; i-- > 0;) {
        unsigned axis = chance(60) ? i : order[i];

        axis = geometry->strides[axis] != 0 ? VARVE_DIMS_MAX : axis;
        for (unsigned j = ndim; axis == VARVE_DIMS_MAX; j--) {
            axis = geometry->strides[j - 1] == 0 ? j - 1 : axis;
        }
        size *= 1 + (chance(20) ? 1 : 0);
        geometry->shape[axis] = shape[axis];
        geometry->strides[axis] = chance(25) ? -size : size;
        size *= shape[axis] > 0 ? shape[axis] : 1;
    }
    varve_geometry_range(geometry, &first, &end);
    geometry->offset = -first;
    block->bytes = (size_t)(end - first) * varve_dtype_bytes(dtype);
    block->array.dtype = dtype;
    block->array.data = malloc(block->bytes > 0 ? block->bytes : 1);
    assert_non_null(block->array.data);
    for (size_t i = 0; i < block->bytes; i++) {
        ((unsigned char *)block->array.data)[i] = (unsigned char)below(dtype == VARVE_DTYPE_BOOL ? 2 : 256);
    }
}

static char *element_at(const struct varve_array *array, const int64_t *at)
{
    int64_t offset = array->geometry.offset;

    for (unsigned i = 0; i < array->geometry.ndim; i++) {
        offset += at[i] * array->geometry.strides[i];
    }
    return (char *)array->data + offset * (int64_t)varve_dtype_bytes(array->dtype);
}

/* Coordinates of element `number` in the usual order. */
static void coordinates(unsigned ndim, const int64_t *shape, int64_t number, int64_t *at)
{
    for (unsigned i = ndim; i-- > 0;) {
        at[i] = number % shape[i];
        number /= shape[i];
    }
}

static void integer_store(const struct varve_array *array, const int64_t *at, int64_t value)
{
    memcpy(element_at(array, at), &value, varve_dtype_bytes(array->dtype)); /* the low bytes */
}

/* ---- expressions and what they mean ---- */

/* What becomes of an axis of the source. */
struct model_axis {
    enum { FIXED, SLICED, PICKED } kind;
    int64_t fixed;
    int64_t positions[16]; /* SLICED: of its entries */
    unsigned rest;         /* SLICED: its axis among those that are left */
    int64_t picked[PICKED_MAX];
};

struct model {
    struct model_axis axes[AXES];
    unsigned axis; /* the next one */
    unsigned rest_ndim;
    int64_t rest_shape[VARVE_DIMS_MAX];
    unsigned picked_ndim; /* the shape of arrays and masks */
    int64_t picked_shape[2];
    int64_t picked_count;
    bool has_advanced;
    unsigned advanced_at;
    bool is_behind; /* of the advanced indices something else has come */
};

struct scene {
    struct block source;
    struct varve_index indices[ENTRIES];
    struct block blocks[ENTRIES]; /* of their arrays */
    unsigned count;
    struct model model;
};

static void model_advanced(struct model *model)
{
    static const unsigned none = VARVE_DIMS_MAX;

    if (model->advanced_at == none) {
        model->advanced_at = model->rest_ndim;
    } else if (model->is_behind) {
        model->advanced_at = 0;
    }
    model->is_behind = false;
}

static void model_rest(struct model *model, int64_t size)
{
    model->is_behind = model->advanced_at != VARVE_DIMS_MAX;
    model->rest_shape[model->rest_ndim++] = size;
}

static void add_integer(struct scene *scene, int64_t size)
{
    struct model_axis *axis = &scene->model.axes[scene->model.axis++];
    int64_t value = below(size);

    axis->kind = FIXED;
    axis->fixed = value;
    scene->indices[scene->count++] =
        (struct varve_index){.kind = VARVE_INDEX_INTEGER, .start = chance(50) ? value - size : value};
    model_advanced(&scene->model);
}

static void axis_slice(struct model *model, int64_t size, int64_t start, int64_t stop, int64_t step)
{
    struct model_axis *axis = &model->axes[model->axis++];
    bool is_up = step == VARVE_SLICE_NONE || step > 0;
    int64_t stride = step == VARVE_SLICE_NONE ? 1 : step, count = 0;
    int64_t first = start == VARVE_SLICE_NONE ? (is_up ? 0 : size - 1) : start < 0 ? start + size : start;
    int64_t end = stop == VARVE_SLICE_NONE ? (is_up ? size : -1) : stop < 0 ? stop + size : stop;

    first = is_up && first < 0 ? 0 : !is_up && first > size - 1 ? size - 1 : first;
    for (int64_t at = first; is_up ? at < end : at > end; at += stride) {
        if (at < 0 || at >= size) {
            break;
        }
        axis->positions[count++] = at;
        if (stride > 100 || stride < -100) {
            break;
        }
    }
    axis->kind = SLICED;
    axis->rest = model->rest_ndim;
    model_rest(model, count);
}

static void add_slice(struct scene *scene, int64_t size)
{
    static const int64_t steps[] = {VARVE_SLICE_NONE, 1, 2, 3, 7, -1, -2, -9, INT64_MAX, -INT64_MAX};
    int64_t start = chance(30) ? VARVE_SLICE_NONE : below(2 * size + 5) - size - 2;
    int64_t stop = chance(30) ? VARVE_SLICE_NONE : below(2 * size + 5) - size - 2;
    int64_t step = steps[below(sizeof(steps) / sizeof(*steps))];

    scene->indices[scene->count++] =
        (struct varve_index){.kind = VARVE_INDEX_SLICE, .start = start, .stop = stop, .step = step};
    axis_slice(&scene->model, size, start, stop, step);
}

/* An array that broadcasts to the common shape. */
static void add_array(struct scene *scene, int64_t size)
{
    static const enum varve_dtype types[] = {VARVE_DTYPE_I64, VARVE_DTYPE_I32, VARVE_DTYPE_I16,
                                             VARVE_DTYPE_I8, VARVE_DTYPE_U8};
    struct model *model = &scene->model;
    struct model_axis *axis = &model->axes[model->axis++];
    struct block *block = &scene->blocks[scene->count];
    int64_t shape[2] = {model->picked_shape[0], model->picked_shape[1]}, at[2] = {0}, own[2] = {0};
    enum varve_dtype dtype = types[below(5)];

    for (unsigned i = 0; i < model->picked_ndim && model->has_advanced; i++) {
        shape[i] = chance(20) ? 1 : shape[i];
    }
    block_make(block, dtype, model->picked_ndim, shape);
    for (int64_t i = 0; i < model->picked_count; i++) {
        int64_t value = 0;

        coordinates(model->picked_ndim, model->picked_shape, i, at);
        for (unsigned j = 0; j < model->picked_ndim; j++) {
            own[j] = shape[j] == 1 ? 0 : at[j];
        }
        value = (own[0] * 31 + own[1] * 17 + 5 + (int64_t)block->bytes) %
                size; /* the same for the same element */
        axis->picked[i] = value;
        integer_store(&block->array, own, dtype != VARVE_DTYPE_U8 && value % 2 == 0 ? value - size : value);
    }
    axis->kind = PICKED;
    scene->indices[scene->count++] = (struct varve_index){.kind = VARVE_INDEX_ARRAY, .array = block->array};
    model->has_advanced = true;
    model_advanced(model);
}

/* The only array of its expression: it says how many there are. */
static void add_mask(struct scene *scene, unsigned taken)
{
    struct model *model = &scene->model;
    struct block *block = &scene->blocks[scene->count];
    int64_t shape[AXES], at[AXES], size = 1, percent = below(101);

    for (unsigned i = 0; i < taken; i++) {
        shape[i] = scene->source.array.geometry.shape[model->axis + i];
        size *= shape[i];
        model->axes[model->axis + i].kind = PICKED;
    }
    block_make(block, VARVE_DTYPE_BOOL, taken, shape);
    model->picked_ndim = 1;
    model->picked_count = 0;
    for (int64_t i = 0; i < size; i++) {
        bool is_set = chance(percent);

        coordinates(taken, shape, i, at);
        *element_at(&block->array, at) = is_set ? (char)(1 + below(255)) : 0;
        for (unsigned j = 0; is_set && j < taken; j++) {
            model->axes[model->axis + j].picked[model->picked_count] = at[j];
        }
        model->picked_count += is_set;
    }
    model->picked_shape[0] = model->picked_count;
    model->axis += taken;
    model->has_advanced = true;
    scene->indices[scene->count++] = (struct varve_index){.kind = VARVE_INDEX_MASK, .array = block->array};
    model_advanced(model);
}

static void add_ellipsis(struct scene *scene, unsigned axes)
{
    scene->indices[scene->count++] = (struct varve_index){.kind = VARVE_INDEX_ELLIPSIS};
    scene->model.is_behind = scene->model.advanced_at != VARVE_DIMS_MAX;
    for (unsigned i = 0; i < axes; i++) {
        axis_slice(&scene->model, scene->source.array.geometry.shape[scene->model.axis], VARVE_SLICE_NONE,
                   VARVE_SLICE_NONE, VARVE_SLICE_NONE);
    }
}

static void scene_entries(struct scene *scene)
{
    const struct varve_geometry *source = &scene->source.array.geometry;
    struct model *model = &scene->model;
    bool had_ellipsis = false, with_arrays = chance(50), with_mask = !with_arrays && chance(60);

    while (model->axis < source->ndim && scene->count < ENTRIES && !(had_ellipsis && chance(10))) {
        int64_t size = source->shape[model->axis], kind = below(100);
        unsigned left = source->ndim - model->axis;

        if (kind < 8) {
            scene->indices[scene->count++] = (struct varve_index){.kind = VARVE_INDEX_NEW_AXIS};
            model_rest(model, 1);
        } else if (kind < 16 && !had_ellipsis) {
            add_ellipsis(scene, left == 1 || chance(20) ? 0 : (unsigned)below(left));
            had_ellipsis = true;
        } else if (kind < 35 && size > 0) {
            add_integer(scene, size);
        } else if (kind < 70 && with_arrays && size > 0) {
            add_array(scene, size);
        } else if (kind < 70 && with_mask && !model->has_advanced) {
            add_mask(scene, 1 + (unsigned)below(left));
        } else {
            add_slice(scene, size);
        }
    }
    /* What no index takes is where the ellipsis stands, or at the end. */
    if (had_ellipsis) {
        while (model->axis < source->ndim && scene->count < ENTRIES) {
            add_slice(scene, source->shape[model->axis]);
        }
    }
    while (!had_ellipsis && model->axis < source->ndim) {
        axis_slice(model, source->shape[model->axis], VARVE_SLICE_NONE, VARVE_SLICE_NONE, VARVE_SLICE_NONE);
    }
}

/* False: not one that can be compared. */
static bool scene_make(struct scene *scene)
{
    int64_t shape[AXES], size = 1;
    unsigned ndim = (unsigned)below(AXES + 1);

    memset(scene, 0, sizeof(*scene));
    for (unsigned i = 0; i < ndim; i++) {
        shape[i] = chance(8) ? 0 : chance(20) ? 1 + below(14) : 1 + below(4);
        shape[i] = size * shape[i] > PICKED_MAX ? 1 : shape[i];
        size *= shape[i] > 0 ? shape[i] : 1;
    }
    block_make(&scene->source, (enum varve_dtype)below(VARVE_DTYPE_LIMIT), ndim, shape);
    scene->model.advanced_at = VARVE_DIMS_MAX;
    scene->model.picked_ndim = 1 + (unsigned)below(2);
    scene->model.picked_shape[0] = chance(10) ? 0 : 1 + below(5);
    scene->model.picked_shape[1] = 1 + below(4);
    scene->model.picked_count =
        scene->model.picked_shape[0] * (scene->model.picked_ndim > 1 ? scene->model.picked_shape[1] : 1);
    scene_entries(scene);
    return scene->model.axis == ndim;
}

static void scene_free(struct scene *scene)
{
    free(scene->source.array.data);
    for (unsigned i = 0; i < ENTRIES; i++) {
        free(scene->blocks[i].array.data);
    }
}

static void model_shape(const struct model *model, unsigned *ndim_out, int64_t *shape)
{
    unsigned ndim = 0;

    for (unsigned i = 0; i <= model->rest_ndim; i++) {
        for (unsigned j = 0; i == model->advanced_at && model->has_advanced && j < model->picked_ndim; j++) {
            shape[ndim++] = model->picked_shape[j];
        }
        if (i < model->rest_ndim) {
            shape[ndim++] = model->rest_shape[i];
        }
    }
    *ndim_out = ndim;
}

/* The element of the source that element `number` of the result is. */
static char *model_element(const struct scene *scene, int64_t number)
{
    const struct model *model = &scene->model;
    int64_t shape[VARVE_DIMS_MAX], at[VARVE_DIMS_MAX], rest[VARVE_DIMS_MAX] = {0}, source[AXES], picked = 0;
    unsigned ndim, next = 0;

    model_shape(model, &ndim, shape);
    coordinates(ndim, shape, number, at);
    for (unsigned i = 0; i <= model->rest_ndim; i++) {
        for (unsigned j = 0; i == model->advanced_at && model->has_advanced && j < model->picked_ndim; j++) {
            picked = picked * model->picked_shape[j] + at[next++];
        }
        if (i < model->rest_ndim) {
            rest[i] = at[next++];
        }
    }
    for (unsigned i = 0; i < scene->source.array.geometry.ndim; i++) {
        const struct model_axis *axis = &model->axes[i];

        source[i] = axis->kind == FIXED    ? axis->fixed
                    : axis->kind == SLICED ? axis->positions[rest[axis->rest]]
                                           : axis->picked[picked];
    }
    return element_at(&scene->source.array, source);
}

/* ---- the model beside the plans ---- */

static void check_get(const struct scene *scene, const char *where)
{
    const struct varve_array *source = &scene->source.array;
    size_t bytes = varve_dtype_bytes(source->dtype);
    struct varve_index_plan *plan = NULL;
    struct varve_message message;
    int64_t shape[VARVE_DIMS_MAX], at[VARVE_DIMS_MAX];
    struct block target;
    unsigned ndim;

    if (varve_index_plan_get(source, scene->indices, scene->count, &plan, &message) != VARVE_OK) {
        fail_msg("%s: %s", where, message.text);
    }
    model_shape(&scene->model, &ndim, shape);
    if (!varve_geometry_has_shape(&plan->result, ndim, shape)) {
        fail_msg("%s: another shape", where);
    }
    assert_int_equal(plan->kind, scene->model.has_advanced ? VARVE_PLAN_GATHER : VARVE_PLAN_VIEW);
    block_make(&target, source->dtype, ndim, shape);
    assert_int_equal(varve_index_plan_run(plan, &target.array, source, &message), VARVE_OK);
    for (int64_t i = 0; i < plan->element_count; i++) {
        coordinates(ndim, shape, i, at);
        if (memcmp(element_at(&target.array, at), model_element(scene, i), bytes) != 0) {
            fail_msg("%s: element %lld of the result", where, (long long)i);
        }
    }
    varve_index_plan_free(plan);
    free(target.array.data);
}

/* Values of the result's shape, or of one that is expanded to it: of the first axis there is one. */
static void check_set(struct scene *scene, const char *where)
{
    struct varve_array *source = &scene->source.array;
    size_t bytes = varve_dtype_bytes(source->dtype);
    unsigned char *expected = malloc(scene->source.bytes + 1);
    unsigned char *actual = source->data;
    struct varve_index_plan *plan = NULL;
    struct varve_message message;
    int64_t shape[VARVE_DIMS_MAX], at[VARVE_DIMS_MAX], value_shape[VARVE_DIMS_MAX], count = 1;
    struct block value;
    unsigned ndim;
    bool is_expanded = chance(30);

    assert_non_null(expected);
    model_shape(&scene->model, &ndim, shape);
    for (unsigned i = 0; i < ndim; i++) {
        count *= shape[i];
        value_shape[i] = i == 0 && is_expanded ? 1 : shape[i];
    }
    block_make(&value, source->dtype, ndim, value_shape);
    memcpy(expected, actual, scene->source.bytes);
    source->data = expected;
    for (int64_t i = 0; i < count; i++) {
        coordinates(ndim, shape, i, at);
        at[0] = is_expanded ? 0 : at[0];
        memcpy(model_element(scene, i), element_at(&value.array, at), bytes);
    }
    source->data = actual;
    if (varve_index_plan_set(source, scene->indices, scene->count, &value.array, &plan, &message) !=
            VARVE_OK ||
        varve_index_plan_run(plan, source, &value.array, &message) != VARVE_OK) {
        fail_msg("%s: %s", where, message.text);
    }
    if (memcmp(actual, expected, scene->source.bytes) != 0) {
        fail_msg("%s: set", where);
    }
    varve_index_plan_free(plan);
    free(value.array.data);
    free(expected);
}

TEST(test_random)
{
    uint64_t seed = test_first_seed(7);
    unsigned compared = 0, advanced = 0;

    for (unsigned i = 0; i < 20000; i++, seed++) {
        struct scene scene;
        char where[80];

        random_state = seed;
        snprintf(where, sizeof(where), "seed %llu", (unsigned long long)seed);
        if (scene_make(&scene)) {
            check_get(&scene, where);
            check_set(&scene, where);
            compared++;
            advanced += scene.model.has_advanced;
        }
        scene_free(&scene);
    }
    print_message("%u expressions, %u of them with arrays or masks\n", compared, advanced);
    assert_true(compared > 15000 && advanced > 5000);
}

/* ---- errors ---- */

static int32_t five[5] = {0, 1, 2, 3, 4};
static int64_t three[3] = {0, -6, 1};
static unsigned char mask[4] = {1, 0, 1, 1};
static float numbers[2];

static struct varve_array array_of(void *data, enum varve_dtype dtype, int64_t size)
{
    struct varve_array array = {.data = data, .dtype = dtype};

    assert_int_equal(varve_geometry_contiguous(1, &size, &array.geometry, NULL), VARVE_OK);
    return array;
}

static void refuse(const struct varve_index *indices, unsigned count, const char *reason)
{
    static double data[10];
    struct varve_array source = {.data = data, .dtype = VARVE_DTYPE_F64};
    struct varve_index_plan *untouched = (struct varve_index_plan *)data, *plan = untouched;
    struct varve_scalar zero = {.kind = VARVE_SCALAR_INTEGER};
    struct varve_message message = {.text = ""};

    assert_int_equal(varve_geometry_contiguous(2, (int64_t[]){5, 2}, &source.geometry, NULL), VARVE_OK);
    assert_int_equal(varve_index_plan_get(&source, indices, count, &plan, &message), VARVE_ERROR_INVALID);
    assert_string_equal(message.text, reason);
    assert_int_equal(varve_index_plan_get(&source, indices, count, &plan, NULL), VARVE_ERROR_INVALID);
    assert_int_equal(varve_index_plan_fill(&source, indices, count, zero, &plan, &message),
                     VARVE_ERROR_INVALID);
    assert_string_equal(message.text, reason);
    assert_int_equal(varve_index_plan_set(&source, indices, count, &source, &plan, &message),
                     VARVE_ERROR_INVALID);
    assert_ptr_equal(plan, untouched);
}

TEST(test_errors)
{
    struct varve_index seven = {.kind = VARVE_INDEX_INTEGER, .start = 7};
    struct varve_index one = {.kind = VARVE_INDEX_INTEGER, .start = 1};
    struct varve_index dots = {.kind = VARVE_INDEX_ELLIPSIS};
    struct varve_index still = {.kind = VARVE_INDEX_SLICE, .step = 0};
    struct varve_index of_five = {.kind = VARVE_INDEX_ARRAY, .array = array_of(five, VARVE_DTYPE_I32, 5)};
    struct varve_index of_three = {.kind = VARVE_INDEX_ARRAY, .array = array_of(three, VARVE_DTYPE_I64, 3)};
    struct varve_index of_reals = {.kind = VARVE_INDEX_ARRAY, .array = array_of(numbers, VARVE_DTYPE_F32, 2)};
    struct varve_index short_mask = {.kind = VARVE_INDEX_MASK, .array = array_of(mask, VARVE_DTYPE_BOOL, 4)};
    struct varve_index no_mask = {.kind = VARVE_INDEX_MASK, .array = array_of(mask, VARVE_DTYPE_U8, 4)};
    struct varve_index unknown = {.kind = (enum varve_index_kind)77};

    refuse(&seven, 1, "index 7 is out of bounds for axis 0 with size 5");
    refuse((struct varve_index[]){one, seven}, 2, "index 7 is out of bounds for axis 1 with size 2");
    refuse((struct varve_index[]){of_three}, 1, "index -6 is out of bounds for axis 0 with size 5");
    refuse((struct varve_index[]){dots, of_five}, 2, "index 2 is out of bounds for axis 1 with size 2");
    refuse((struct varve_index[]){one, one, one}, 3,
           "too many indices for array: array is 2-dimensional, but 3 were indexed");
    refuse(
        (struct varve_index[]){short_mask}, 1,
        "boolean index did not match indexed array along axis 0; size of axis is 5 but size of corresponding "
        "boolean axis is 4");
    refuse(
        (struct varve_index[]){dots, short_mask}, 2,
        "boolean index did not match indexed array along axis 1; size of axis is 2 but size of corresponding "
        "boolean axis is 4");
    refuse((struct varve_index[]){of_five, of_three}, 2,
           "shape mismatch: indexing arrays could not be broadcast together with shapes (5,) (3,)");
    refuse((struct varve_index[]){dots, one, dots}, 3, "an index can only have a single ellipsis ('...')");
    refuse(&still, 1, "slice step cannot be zero");
    refuse(&of_reals, 1, "arrays used as indices must be of integer (or boolean) type, not f32");
    refuse(&no_mask, 1, "a mask is of type bool, not u8");
    refuse(&unknown, 1, "77 is no kind of index");
}

static bool fits(int64_t value, enum varve_dtype dtype)
{
    switch (dtype) {
    case VARVE_DTYPE_I64:
        return true;
    case VARVE_DTYPE_I32:
        return value == (int32_t)value;
    case VARVE_DTYPE_I16:
        return value == (int16_t)value;
    case VARVE_DTYPE_I8:
        return value == (int8_t)value;
    default:
        return value == (uint8_t)value;
    }
}

/* `count` indices, all good but for the one at `place`; size 5. */
static void check_bad(enum varve_dtype dtype, int64_t count, int64_t place, int64_t bad, bool is_backwards)
{
    static double data[5];
    struct varve_array source = array_of(data, VARVE_DTYPE_F64, 5);
    struct varve_index index = {.kind = VARVE_INDEX_ARRAY};
    struct varve_index_plan *plan;
    struct varve_message message;
    char reason[100];
    void *block = malloc((size_t)count * varve_dtype_bytes(dtype));

    assert_non_null(block);
    index.array = array_of(block, dtype, count);
    if (is_backwards) {
        assert_int_equal(
            varve_geometry_slice(&index.array.geometry, 0, VARVE_SLICE_NONE, VARVE_SLICE_NONE, -1, NULL),
            VARVE_OK);
    }
    for (int64_t i = 0; i < count; i++) {
        integer_store(&index.array, &i,
                      i == place                              ? bad
                      : i % 2 == 0 || dtype == VARVE_DTYPE_U8 ? i % 5
                                                              : -1 - i % 5);
    }
    if (bad >= -5 && bad < 5) {
        assert_int_equal(varve_index_plan_get(&source, &index, 1, &plan, NULL), VARVE_OK);
        varve_index_plan_free(plan);
    } else {
        snprintf(reason, sizeof(reason), "index %lld is out of bounds for axis 0 with size 5",
                 (long long)bad);
        assert_int_equal(varve_index_plan_get(&source, &index, 1, &plan, &message), VARVE_ERROR_INVALID);
        assert_string_equal(message.text, reason);
    }
    free(block);
}

/* One bad index in every place, of values that differ from good ones in few bits only. */
TEST(test_bad_places)
{
    static const int64_t values[] = {
        4,
        -5,
        5,
        -6,
        6,
        100,
        -100,
        127,
        -128,
        255,
        INT16_MAX,
        INT16_MIN,
        INT32_MAX,
        INT32_MIN,
        INT32_MIN + 4,
        (INT64_C(1) << 31) + 1,
        INT64_C(1) << 32,
        (INT64_C(1) << 32) + 1,
        (INT64_C(1) << 32) - 1,
        -(INT64_C(1) << 32),
        -(INT64_C(1) << 32) + 2,
        -(INT64_C(1) << 31) - 1,
        INT64_MAX,
        INT64_MIN,
        INT64_MIN + 3,
    };
    static const enum varve_dtype types[] = {VARVE_DTYPE_I64, VARVE_DTYPE_I32, VARVE_DTYPE_I16,
                                             VARVE_DTYPE_I8, VARVE_DTYPE_U8};

    for (unsigned i = 0; i < sizeof(values) / sizeof(*values); i++) {
        for (unsigned j = 0; j < sizeof(types) / sizeof(*types); j++) {
            for (int64_t count = 1; count < 11 && fits(values[i], types[j]); count++) {
                for (int64_t place = 0; place < count; place++) {
                    check_bad(types[j], count, place, values[i], false);
                    check_bad(types[j], count, place, values[i], true);
                }
            }
        }
    }
}

/* Of equal indices the last one wins, also where values are converted. */
TEST(test_last_wins)
{
    int64_t positions[4] = {1, 0, 1, -1};
    int16_t values[4] = {10, 20, 30, 40};
    float data[2] = {1, 2};
    struct varve_array target = array_of(data, VARVE_DTYPE_F32, 2),
                       value = array_of(values, VARVE_DTYPE_I16, 4);
    struct varve_index index = {.kind = VARVE_INDEX_ARRAY, .array = array_of(positions, VARVE_DTYPE_I64, 4)};
    struct varve_index_plan *plan;

    assert_int_equal(varve_index_plan_set(&target, &index, 1, &value, &plan, NULL), VARVE_OK);
    assert_int_equal(plan->kind, VARVE_PLAN_SCATTER);
    assert_int_equal(plan->temporary_bytes, 16);
    assert_int_equal(plan->index_bytes, 16);
    assert_int_equal(plan->read_bytes, 24);
    assert_int_equal(plan->written_bytes, 16);
    positions[0] = 99; /* the plan has its own */
    assert_int_equal(varve_index_plan_run(plan, &target, &value, NULL), VARVE_OK);
    assert_true(data[0] == 20 && data[1] == 40);
    varve_index_plan_free(plan);
    varve_index_plan_free(NULL);
}
