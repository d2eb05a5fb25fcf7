/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sum, mean and max. The input is walked once, in the order in which it lies; each element of the result has an accumulator,
 * f64 for floating point and i64 for the rest. Runs along a reduced axis are folded in halves before they are added; what
 * additions in f64 lose is kept beside each sum.
 */
#include "storage/operators/operands.h"

#include "storage/elements/cast.h"
#include "storage/elements/copy.h"
#include "storage/elements/element.h"
#include "storage/elements/loop.h"
#include "storage/elements/move.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define CHUNK 512

/* ---- accumulating: inlined below, for each kind of processor and each step that matters ---- */

#define INLINED static inline __attribute__((always_inline))

/* The elements of a chunk become one: the second half is added to the first until one is left. */
#define FOLD(name, type, expression)                      \
    INLINED type fold_##name(type *values, int64_t count) \
    {                                                     \
        while (count > 1) {                               \
            int64_t half = count / 2;                     \
            int64_t rest = count - half;                  \
                                                          \
            ELEMENTS_LOOP                                 \
            for (int64_t i = 0; i < half; i++) {          \
                type x = values[i];                       \
                type y = values[rest + i];                \
                                                          \
                values[i] = (expression);                 \
            }                                             \
            count = rest;                                 \
        }                                                 \
        return values[0];                                 \
    }

#define MAX_F64(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define MAX_I64(x, y) ((x) > (y) ? (x) : (y))
#define SUM_I64(x, y) ((int64_t)((uint64_t)(x) + (uint64_t)(y)))
FOLD(sum_f64, double, x + y)
FOLD(max_f64, double, MAX_F64(x, y))
FOLD(sum_i64, int64_t, SUM_I64(x, y))
FOLD(max_i64, int64_t, MAX_I64(x, y))

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

#define MERGE(name, type, expression)                                                              \
    INLINED void merge_##name(type *accumulators, int64_t step, const type *values, int64_t count) \
    {                                                                                              \
        ELEMENTS_LOOP                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type x = accumulators[i * step];                                                       \
            type y = values[i];                                                                    \
                                                                                                   \
            accumulators[i * step] = (expression);                                                 \
        }                                                                                          \
    }

MERGE(max_f64, double, MAX_F64(x, y))
MERGE(sum_i64, int64_t, SUM_I64(x, y))
MERGE(max_i64, int64_t, MAX_I64(x, y))

/* ---- runs ---- */

struct reduction;

/* Values onto accumulators that are `step` apart; 0 along a reduced axis. */
typedef void merge_f64(const struct reduction *reduction, double *accumulators, int64_t step, double *values,
                       int64_t count);
typedef void merge_i64(const struct reduction *reduction, int64_t *accumulators, int64_t step,
                       int64_t *values, int64_t count);

struct reduction {
    elements_cast *cast; /* to the type of the accumulators */
    merge_f64 *merge_f64;
    merge_i64 *merge_i64;
    size_t bytes; /* of an element of the input */
    bool is_max, is_float;
    int64_t lost; /* elements from a sum to what it has lost */
};

#define MERGES_DEFINE(suffix, attributes)                                                              \
    attributes static void merge_f64##suffix(const struct reduction *reduction, double *accumulators,  \
                                             int64_t step, double *values, int64_t count)              \
    {                                                                                                  \
        double *lost = accumulators + reduction->lost;                                                 \
                                                                                                       \
        if (step == 0) {                                                                               \
            values[0] = reduction->is_max ? fold_max_f64(values, count) : fold_sum_f64(values, count); \
            count = 1;                                                                                 \
        }                                                                                              \
        if (reduction->is_max && step == 1) {                                                          \
            merge_max_f64(accumulators, 1, values, count);                                             \
        } else if (reduction->is_max) {                                                                \
            merge_max_f64(accumulators, step, values, count);                                          \
        } else if (step == 1) {                                                                        \
            merge_sum_f64(accumulators, lost, 1, values, count);                                       \
        } else {                                                                                       \
            merge_sum_f64(accumulators, lost, step, values, count);                                    \
        }                                                                                              \
    }                                                                                                  \
                                                                                                       \
    attributes static void merge_i64##suffix(const struct reduction *reduction, int64_t *accumulators, \
                                             int64_t step, int64_t *values, int64_t count)             \
    {                                                                                                  \
        if (step == 0) {                                                                               \
            values[0] = reduction->is_max ? fold_max_i64(values, count) : fold_sum_i64(values, count); \
            count = 1;                                                                                 \
        }                                                                                              \
        if (reduction->is_max) {                                                                       \
            merge_max_i64(accumulators, step, values, count);                                          \
        } else if (step == 1) {                                                                        \
            merge_sum_i64(accumulators, 1, values, count);                                             \
        } else {                                                                                       \
            merge_sum_i64(accumulators, step, values, count);                                          \
        }                                                                                              \
    }

MERGES_DEFINE(_plain, )
#if ELEMENTS_HAS_AVX2
MERGES_DEFINE(_avx2, ELEMENTS_AVX2)
#endif

static void merges_find(struct reduction *reduction)
{
    reduction->merge_f64 = merge_f64_plain;
    reduction->merge_i64 = merge_i64_plain;
#if ELEMENTS_HAS_AVX2
    if (__builtin_cpu_supports("avx2")) {
        reduction->merge_f64 = merge_f64_avx2;
        reduction->merge_i64 = merge_i64_avx2;
    }
#endif
}

/* Operand 0 is the input, operand 1 the accumulators. */
static void inner_reduce(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct reduction *reduction = context;
    unsigned last = loop->ndim - 1;
    ptrdiff_t stride = loop->strides[0][last];
    int64_t step = loop->strides[1][last] / 8;
    int64_t count = loop->shape[last];
    char raw[CHUNK * 8] __attribute__((aligned(64)));
    union {
        double f64[CHUNK];
        int64_t i64[CHUNK];
    } values;

    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t part = count - done < CHUNK ? count - done : CHUNK;
        const char *source = data[0] + done * stride;

        if (stride != (ptrdiff_t)reduction->bytes) {
            elements_move(raw, (ptrdiff_t)reduction->bytes, source, stride, part, reduction->bytes);
            source = raw;
        }
        reduction->cast(&values, source, part);
        if (reduction->is_float) {
            reduction->merge_f64(reduction, (double *)(void *)data[1] + done * step, step, values.f64, part);
        } else {
            reduction->merge_i64(reduction, (int64_t *)(void *)data[1] + done * step, step, values.i64, part);
        }
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

struct axes {
    bool is_reduced[VARVE_DIMS_MAX];
    int64_t kept_shape[VARVE_DIMS_MAX];    /* with 1 for the reduced ones */
    int64_t reduced_shape[VARVE_DIMS_MAX]; /* without them */
    unsigned kept_ndim, reduced_ndim;
    int64_t divisor; /* elements of the input for one of the result */
};

static int axes_find(enum varve_operator operation, const struct varve_geometry *geometry, int axis,
                     struct axes *axes, struct varve_message *message)
{
    int64_t number = axis < 0 ? (int64_t)axis + geometry->ndim : axis;

    *axes = (struct axes){.kept_ndim = geometry->ndim, .divisor = 1};
    if (axis != VARVE_OP_ALL_AXES && (number < 0 || number >= geometry->ndim)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "%s: axis %d is out of bounds for %u dimensions",
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

static int reduction_check(enum varve_operator operation, const struct varve_array *out,
                           const struct varve_array *a, int axis, struct axes *axes,
                           struct varve_message *message)
{
    bool is_widened = operation == VARVE_OPERATOR_SUM && !dtype_is_float(a->dtype);
    int error = operands_check(operation, out, is_widened ? VARVE_DTYPE_I64 : a->dtype, &a, 1,
                               operation == VARVE_OPERATOR_MEAN, message);

    if (error == 0) {
        error = axes_find(operation, &a->geometry, axis, axes, message);
    }
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

static int accumulate(enum varve_operator operation, const struct varve_array *accumulators,
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
        merges_find(&reduction);
        elements_loop_init(&loop, 2, (const struct varve_array *const[]){a, &expanded});
        elements_loop_walk(&loop, 1, inner_reduce, &reduction);
    }
    return error;
}

static int reduction_run(enum varve_operator operation, const struct varve_array *out,
                         const struct varve_array *a, int axis, struct varve_message *message)
{
    struct varve_array accumulators = {.dtype = dtype_is_float(a->dtype) ? VARVE_DTYPE_F64 : VARVE_DTYPE_I64};
    int64_t count;
    struct axes axes;
    int error = reduction_check(operation, out, a, axis, &axes, message);

    if (error == 0) {
        error = varve_geometry_contiguous(axes.kept_ndim, axes.kept_shape, &accumulators.geometry, message);
    }
    if (error != 0) {
        return error;
    }
    count = varve_geometry_count(&accumulators.geometry);
    accumulators.data = malloc((size_t)count * 16 + 1);
    if (accumulators.data == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRId64 " accumulators",
                                 count);
    }
    accumulators_begin(&accumulators, operation == VARVE_OPERATOR_MAX, count);
    error = accumulate(operation, &accumulators, a, message);
    if (error == 0) {
        if (accumulators.dtype == VARVE_DTYPE_F64 && operation != VARVE_OPERATOR_MAX) {
            accumulators_end(accumulators.data, count,
                             operation == VARVE_OPERATOR_MEAN ? (double)axes.divisor : 1.0);
        }
        error =
            varve_geometry_reshape(&accumulators.geometry, out->geometry.ndim, out->geometry.shape, message);
    }
    if (error == 0) {
        elements_copy(out, &accumulators);
    }
    free(accumulators.data);
    return error;
}

int varve_op_sum(const struct varve_array *out, const struct varve_array *a, int axis,
                 struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_SUM, out, a, axis, message);
}

int varve_op_mean(const struct varve_array *out, const struct varve_array *a, int axis,
                  struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_MEAN, out, a, axis, message);
}

int varve_op_max(const struct varve_array *out, const struct varve_array *a, int axis,
                 struct varve_message *message)
{
    return reduction_run(VARVE_OPERATOR_MAX, out, a, axis, message);
}
