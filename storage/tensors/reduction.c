/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum, mean and max. The input is walked once, in the order in which it lies; each element of the result has an
 * accumulator, f64 for floating point and i64 for the rest. Runs along a reduced axis are folded in halves before they
 * are added, and so are eight runs across one; what additions in f64 lose is kept beside each sum.
 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"
#include "storage/tensors/element.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define CHUNK 512

/* ---- accumulating: inlined below, for each kind of processor and each step that matters ---- */

#define INLINED static inline __attribute__((always_inline))

INLINED double sum_f64(double x, double y)
{
    return x + y;
}

/* Choices between numbers that are there become vector code; one of two comparisons does not. */
INLINED double greater_f64(double x, double y)
{
    return x > y ? x : y;
}

INLINED float greater_f32(float x, float y)
{
    return x > y ? x : y;
}

/* NaN if one is. */
INLINED double max_f64(double x, double y)
{
    double greater = greater_f64(x, y);
    return x != x ? x : greater;
}

INLINED int64_t sum_i64(int64_t x, int64_t y)
{
    return (int64_t)((uint64_t)x + (uint64_t)y);
}

INLINED int64_t max_i64(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

/* The elements of a chunk become one: the second half is added to the first until one is left. */
#define FOLD(name, type)                                       \
    INLINED type fold_##name(type *values, int64_t count)      \
    {                                                          \
        while (count > 1) {                                    \
            int64_t half = count / 2;                          \
            int64_t rest = count - half;                       \
                                                               \
            ELEMENTS_LOOP                                      \
            for (int64_t i = 0; i < half; i++) {               \
                values[i] = name(values[i], values[rest + i]); \
            }                                                  \
            count = rest;                                      \
        }                                                      \
        return values[0];                                      \
    }

FOLD(sum_f64, double)
FOLD(max_f64, double)
FOLD(sum_i64, int64_t)
FOLD(max_i64, int64_t)

/* Add values to accumulators, one each, which are `step` apart. What an addition rounds off is the exact error of it.
 * Source: Knuth, The Art of Computer Programming, volume 2, 4.2.2, theorem B. */
INLINED void merge_sum_f64(double *sums, double *lost, int64_t step, const double *values, int64_t count)
{
    ELEMENTS_LOOP
    for (int64_t i = 0; i < count; i++) {
        double old = sums[i * step];
        double sum = old + values[i];
        double added = sum - old;
        sums[i * step] = sum;
        lost[i * step] += (old - (sum - added)) + (values[i] - added);
    }
}

#define MERGE(name, type)                                                                          \
    INLINED void merge_##name(type *accumulators, int64_t step, const type *values, int64_t count) \
    {                                                                                              \
        ELEMENTS_LOOP                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            accumulators[i * step] = name(accumulators[i * step], values[i]);                      \
        }                                                                                          \
    }

MERGE(max_f64, double)
MERGE(sum_i64, int64_t)
MERGE(max_i64, int64_t)

/* ---- eight elements at a time: of f64 and f32, where the next element is the next in memory ---- */

#define EIGHT 8

/* values[i] becomes what eight elements are together, the i-th one of `source` and those that are once, twice, …
 * `apart` elements behind it. */
typedef void fold_eight(double *values, const void *source, ptrdiff_t apart, int64_t count);

#define TREE(name) name(name(name(x0, x1), name(x2, x3)), name(name(x4, x5), name(x6, x7)))
/* One look for NaN, by pairs, costs less than one at each of seven choices. */
#define HAS_NAN                                                                                      \
    (__builtin_isunordered(x0, x1) | __builtin_isunordered(x2, x3) | __builtin_isunordered(x4, x5) | \
     __builtin_isunordered(x6, x7))

#define FOLD_EIGHT_DEFINE(name, TYPE, type, result, suffix, attributes)                                            \
    attributes static void fold_eight_##name##_##TYPE##suffix(double *values, const void *source, ptrdiff_t apart, \
                                                              int64_t count)                                       \
    {                                                                                                              \
        const element_##TYPE *from = source;                                                                       \
                                                                                                                   \
        ELEMENTS_LOOP                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                                      \
            type x0 = from[i], x1 = from[i + apart], x2 = from[i + 2 * apart], x3 = from[i + 3 * apart];           \
            type x4 = from[i + 4 * apart], x5 = from[i + 5 * apart], x6 = from[i + 6 * apart];                     \
            type x7 = from[i + 7 * apart];                                                                         \
                                                                                                                   \
            values[i] = (result);                                                                                  \
        }                                                                                                          \
    }
#define FOLD_EIGHTS(suffix, attributes)                                                                \
    FOLD_EIGHT_DEFINE(sum, F64, double, TREE(sum_f64), suffix, attributes)                             \
    FOLD_EIGHT_DEFINE(sum, F32, double, TREE(sum_f64), suffix, attributes)                             \
    FOLD_EIGHT_DEFINE(max, F64, double, HAS_NAN ? (double)NAN : TREE(greater_f64), suffix, attributes) \
    FOLD_EIGHT_DEFINE(max, F32, float, HAS_NAN ? NAN : TREE(greater_f32), suffix, attributes)

FOLD_EIGHTS(_plain, )
#if ELEMENTS_HAS_AVX2
FOLD_EIGHTS(_avx2, ELEMENTS_AVX2)
#endif

/* By whether the greatest one is wanted, and whether elements are f32. */
#define FOLD_EIGHT_TABLE(suffix)                                      \
    {                                                                 \
        {fold_eight_sum_F64##suffix, fold_eight_sum_F32##suffix},     \
            {fold_eight_max_F64##suffix, fold_eight_max_F32##suffix}, \
    }

static fold_eight *const folds_plain[2][2] = FOLD_EIGHT_TABLE(_plain);
#if ELEMENTS_HAS_AVX2
static fold_eight *const folds_avx2[2][2] = FOLD_EIGHT_TABLE(_avx2);
#endif

/* ---- runs ---- */

struct reduction;

/* Values onto accumulators that are `step` apart; 0 along a reduced axis. */
typedef void merge_f64(const struct reduction *reduction, double *accumulators, int64_t step, double *values,
                       int64_t count);
typedef void merge_i64(const struct reduction *reduction, int64_t *accumulators, int64_t step, int64_t *values,
                       int64_t count);

struct reduction {
    elements_cast *cast; /* to the type of the accumulators */
    merge_f64 *merge_f64;
    merge_i64 *merge_i64;
    fold_eight *fold_eight; /* NULL: not of that type */
    size_t bytes;           /* of an element of the input */
    bool is_max, is_float;
    int64_t lost; /* elements from a sum to what it has lost */
};

#define MERGES_DEFINE(suffix, attributes)                                                                            \
    attributes static void merge_f64##suffix(const struct reduction *reduction, double *accumulators, int64_t step,  \
                                             double *values, int64_t count)                                          \
    {                                                                                                                \
        double *lost = accumulators + reduction->lost;                                                               \
                                                                                                                     \
        if (step == 0) {                                                                                             \
            values[0] = reduction->is_max ? fold_max_f64(values, count) : fold_sum_f64(values, count);               \
            count = 1;                                                                                               \
        }                                                                                                            \
        if (reduction->is_max && step == 1) {                                                                        \
            merge_max_f64(accumulators, 1, values, count);                                                           \
        } else if (reduction->is_max) {                                                                              \
            merge_max_f64(accumulators, step, values, count);                                                        \
        } else if (step == 1) {                                                                                      \
            merge_sum_f64(accumulators, lost, 1, values, count);                                                     \
        } else {                                                                                                     \
            merge_sum_f64(accumulators, lost, step, values, count);                                                  \
        }                                                                                                            \
    }                                                                                                                \
                                                                                                                     \
    attributes static void merge_i64##suffix(const struct reduction *reduction, int64_t *accumulators, int64_t step, \
                                             int64_t *values, int64_t count)                                         \
    {                                                                                                                \
        if (step == 0) {                                                                                             \
            values[0] = reduction->is_max ? fold_max_i64(values, count) : fold_sum_i64(values, count);               \
            count = 1;                                                                                               \
        }                                                                                                            \
        if (reduction->is_max) {                                                                                     \
            merge_max_i64(accumulators, step, values, count);                                                        \
        } else if (step == 1) {                                                                                      \
            merge_sum_i64(accumulators, 1, values, count);                                                           \
        } else {                                                                                                     \
            merge_sum_i64(accumulators, step, values, count);                                                        \
        }                                                                                                            \
    }

MERGES_DEFINE(_plain, )
#if ELEMENTS_HAS_AVX2
MERGES_DEFINE(_avx2, ELEMENTS_AVX2)
#endif

static void loops_find(struct reduction *reduction, enum varve_dtype dtype)
{
    bool has_fold = dtype == VARVE_DTYPE_F64 || dtype == VARVE_DTYPE_F32;
    reduction->merge_f64 = merge_f64_plain;
    reduction->merge_i64 = merge_i64_plain;
    reduction->fold_eight = has_fold ? folds_plain[reduction->is_max][dtype == VARVE_DTYPE_F32] : NULL;
#if ELEMENTS_HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        reduction->merge_f64 = merge_f64_avx2;
        reduction->merge_i64 = merge_i64_avx2;
        reduction->fold_eight = has_fold ? folds_avx2[reduction->is_max][dtype == VARVE_DTYPE_F32] : NULL;
    }
#endif
}

/* The innermost axis: of operand 0, the input, and operand 1, the accumulators. */
struct run {
    const char *source;
    int64_t *accumulators; /* or double */
    ptrdiff_t stride;      /* bytes */
    int64_t step;          /* accumulators */
    int64_t count;
};

/* Parts of a run that are folded onto each other. Their distance is no large power of two, so that they do not compete
 * for the same lines of the cache. */
#define PART 248

/* A run of a reduced axis, eight parts at a time. */
static void run_fold(const struct reduction *reduction, const struct run *run)
{
    double values[PART + EIGHT];
    for (int64_t done = 0; done < run->count; done += EIGHT * PART) {
        int64_t count = run->count - done < EIGHT * PART ? run->count - done : EIGHT * PART;
        const char *source = run->source + done * run->stride;
        int64_t part = count / EIGHT, rest = count % EIGHT;
        reduction->fold_eight(values, source, part, part);
        reduction->cast(values + part, source + EIGHT * part * run->stride, rest);
        reduction->merge_f64(reduction, (double *)(void *)run->accumulators, 0, values, part + rest);
    }
}

static void run_reduce(const struct reduction *reduction, const struct run *run)
{
    char raw[CHUNK * 8] __attribute__((aligned(64)));
    union {
        double f64[CHUNK];
        int64_t i64[CHUNK];
    } values;
    if (reduction->fold_eight != NULL && run->step == 0 && run->stride == (ptrdiff_t)reduction->bytes) {
        run_fold(reduction, run);
        return;
    }
    for (int64_t done = 0; done < run->count; done += CHUNK) {
        int64_t part = run->count - done < CHUNK ? run->count - done : CHUNK;
        const char *source = run->source + done * run->stride;
        int64_t *accumulators = run->accumulators + done * run->step;
        if (run->stride != (ptrdiff_t)reduction->bytes) {
            elements_move(raw, (ptrdiff_t)reduction->bytes, source, run->stride, part, reduction->bytes);
            source = raw;
        }
        reduction->cast(&values, source, part);
        if (reduction->is_float) {
            reduction->merge_f64(reduction, (double *)(void *)accumulators, run->step, values.f64, part);
        } else {
            reduction->merge_i64(reduction, accumulators, run->step, values.i64, part);
        }
    }
}

/* Eight runs, `apart` bytes from each other, onto the same accumulators. */
static void runs_fold(const struct reduction *reduction, const struct run *run, ptrdiff_t apart)
{
    double values[CHUNK];
    for (int64_t done = 0; done < run->count; done += CHUNK) {
        int64_t part = run->count - done < CHUNK ? run->count - done : CHUNK;
        reduction->fold_eight(values, run->source + done * run->stride, apart / run->stride, part);
        reduction->merge_f64(reduction, (double *)(void *)(run->accumulators + done), 1, values, part);
    }
}

/* The two innermost axes. */
static void inner_reduce(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct reduction *reduction = context;
    unsigned last = loop->ndim - 1;
    struct run run = {.source = data[0],
                      .accumulators = (int64_t *)(void *)data[1],
                      .stride = loop->strides[0][last],
                      .step = loop->strides[1][last] / 8,
                      .count = loop->shape[last]};
    int64_t runs = last > 0 ? loop->shape[last - 1] : 1, i = 0;
    ptrdiff_t apart = last > 0 ? loop->strides[0][last - 1] : 0;
    int64_t step = last > 0 ? loop->strides[1][last - 1] / 8 : 0;
    if (reduction->fold_eight != NULL && step == 0 && run.step == 1 && run.stride == (ptrdiff_t)reduction->bytes) {
        for (; i + EIGHT <= runs; i += EIGHT) {
            runs_fold(reduction, &run, apart);
            run.source += EIGHT * apart;
        }
    }
    for (; i < runs; i++) {
        run_reduce(reduction, &run);
        run.source += apart;
        run.accumulators += step;
    }
}

/* ---- accumulators ---- */

static void accumulators_begin(const struct varve_array *accumulators, bool is_max, int64_t count)
{
    double *f64 = accumulators->data;
    int64_t *i64 = accumulators->data;
    for (int64_t i = 0; i < count; i++) {
        if (accumulators->dtype == VARVE_DTYPE_F64) {
            f64[i] = is_max ? (double)-INFINITY : 0;
            f64[count + i] = 0;
        } else {
            i64[i] = is_max ? INT64_MIN : 0;
        }
    }
}

/* Sums with what they have lost, which is no number once a sum is infinite; divided by `divisor`. */
static void accumulators_end(double *sums, int64_t count, double divisor)
{
    for (int64_t i = 0; i < count; i++) {
        sums[i] = (isfinite(sums[i]) ? sums[i] + sums[count + i] : sums[i]) / divisor;
    }
}

/* ---- shapes ---- */

static int axes_find(enum varve_operator operation, const struct varve_geometry *geometry, int axis,
                     struct reduction_axes *axes, struct varve_message *message)
{
    int64_t number = axis < 0 ? (int64_t)axis + geometry->ndim : axis;
    *axes = (struct reduction_axes){.kept_ndim = geometry->ndim, .divisor = 1};
    if (axis != VARVE_OP_ALL_AXES && (number < 0 || number >= geometry->ndim)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: axis %d is out of bounds for %u dimensions",
                                 varve_operator_name(operation), axis, geometry->ndim);
    }
    for (unsigned i = 0; i < geometry->ndim; i++) {
        axes->is_reduced[i] = axis == VARVE_OP_ALL_AXES || i == number;
        if (axes->is_reduced[i]) {
            axes->divisor *= geometry->shape[i];
            axes->kept_shape[i] = 1;
        } else {
            axes->kept_shape[i] = geometry->shape[i];
            axes->reduced_shape[axes->reduced_ndim++] = geometry->shape[i];
        }
    }
    return VARVE_OK;
}

/* ---- operators ---- */

int reduction_check(enum varve_operator operation, const struct varve_array *out, const struct varve_array *a, int axis,
                    struct reduction_axes *axes, struct varve_message *message)
{
    bool is_widened = operation == VARVE_OPERATOR_SUM && !dtype_is_float(a->dtype);
    int error = operands_check(operation, out, is_widened ? VARVE_DTYPE_I64 : a->dtype, &a, 1,
                               operation == VARVE_OPERATOR_MEAN, message);
    VARVE_THEN(error, axes_find(operation, &a->geometry, axis, axes, message));
    if (error != 0) {
        return error;
    }
    if (!varve_geometry_has_shape(&out->geometry, axes->reduced_ndim, axes->reduced_shape) &&
        !varve_geometry_has_shape(&out->geometry, axes->kept_ndim, axes->kept_shape)) {
        return operands_refuse_shape(operation, out, axes->reduced_ndim, axes->reduced_shape, message);
    }
    if (operation == VARVE_OPERATOR_MAX && axes->divisor == 0 && varve_geometry_count(&out->geometry) > 0) {
        char text[VARVE_SHAPE_TEXT_BYTES];
        return varve_message_set(message, VARVE_ERROR_INVALID, "max: shape %s has no elements to take it of",
                                 varve_shape_text(a->geometry.ndim, a->geometry.shape, text, sizeof(text)));
    }
    return VARVE_OK;
}

static int reduction_accumulate(enum varve_operator operation, const struct varve_array *accumulators,
                                const struct varve_array *a, struct varve_message *message)
{
    struct reduction reduction = {.cast = elements_cast_find(accumulators->dtype, a->dtype),
                                  .bytes = varve_dtype_bytes(a->dtype),
                                  .is_max = operation == VARVE_OPERATOR_MAX,
                                  .is_float = accumulators->dtype == VARVE_DTYPE_F64,
                                  .lost = varve_geometry_count(&accumulators->geometry)};
    struct varve_array expanded = *accumulators;
    struct elements_loop loop;
    int error = varve_geometry_expand(&expanded.geometry, a->geometry.ndim, a->geometry.shape, message);
    if (error == 0) {
        loops_find(&reduction, a->dtype);
        elements_loop_init(&loop, 2, (const struct varve_array *const[]){a, &expanded});
        elements_loop_walk(&loop, 2, inner_reduce, &reduction);
    }
    return error;
}

static int reduction_run(enum varve_operator operation, const struct varve_array *out, const struct varve_array *a,
                         int axis, struct varve_message *message)
{
    struct varve_array accumulators = {.dtype = dtype_is_float(a->dtype) ? VARVE_DTYPE_F64 : VARVE_DTYPE_I64};
    struct reduction_axes axes;
    int error = reduction_check(operation, out, a, axis, &axes, message);
    VARVE_THEN(error, varve_geometry_contiguous(axes.kept_ndim, axes.kept_shape, &accumulators.geometry, message));
    if (error != 0) {
        return error;
    }
    int64_t count = varve_geometry_count(&accumulators.geometry);
    accumulators.data = malloc((size_t)count * 16 + 1);
    if (accumulators.data == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRId64 " accumulators", count);
    }
    accumulators_begin(&accumulators, operation == VARVE_OPERATOR_MAX, count);
    error = reduction_accumulate(operation, &accumulators, a, message);
    if (error == 0) {
        if (accumulators.dtype == VARVE_DTYPE_F64 && operation != VARVE_OPERATOR_MAX) {
            accumulators_end(accumulators.data, count, operation == VARVE_OPERATOR_MEAN ? (double)axes.divisor : 1.0);
        }
        error = varve_geometry_reshape(&accumulators.geometry, out->geometry.ndim, out->geometry.shape, message);
    }
    if (error == 0) {
        elements_copy(out, &accumulators);
    }
    free(accumulators.data);
    return error;
}

int varve_op_sum(const struct varve_array *out, const struct varve_array *a, int axis, struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_SUM, out, a, axis, message);
}

int varve_op_mean(const struct varve_array *out, const struct varve_array *a, int axis, struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_MEAN, out, a, axis, message);
}

int varve_op_max(const struct varve_array *out, const struct varve_array *a, int axis, struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_MAX, out, a, axis, message);
}
