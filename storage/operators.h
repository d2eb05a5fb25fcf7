/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on arrays in host memory: enough to run and to test what the storages and rematerialization do. Part of
 * storage.h; pure functions of what the caller owns, from any thread.
 *
 * All operands have one type, and so has the result, but for sums of integers. Inputs are broadcast as NumPy does; the
 * result has the shape that this gives. f16 and bf16 are computed as f32 and rounded once at the end; integers wrap.
 * `out` may be one of the inputs, or overlap them in any way: the result is as if the inputs had been set aside (which
 * takes memory unless `out` is exactly an input). Functions return VARVE_OK or a negative enum varve_error with a
 * reason in `message` (may be NULL) and change nothing then: VARVE_ERROR_INVALID for types, shapes, axes and an `out`
 * with elements that share an address, VARVE_ERROR_NO_MEMORY.
 */
#ifndef VARVE_STORAGE_OPERATORS_H
#define VARVE_STORAGE_OPERATORS_H

#include "storage/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(code, NAME, name, KIND): KIND gives the arguments, see below; codes are stored in traces. */
#define VARVE_OPERATOR_LIST(X)      \
    X(0, ADD, add, BINARY)          \
    X(1, SUB, sub, BINARY)          \
    X(2, MUL, mul, BINARY)          \
    X(3, DIV, div, BINARY)          \
    X(4, POW, pow, BINARY)          \
    X(5, EXP, exp, UNARY)           \
    X(6, RELU, relu, UNARY)         \
    X(7, SUM, sum, REDUCTION)       \
    X(8, MEAN, mean, REDUCTION)     \
    X(9, MAX, max, REDUCTION)       \
    X(10, MATMUL, matmul, BINARY)   \
    X(11, FILL, fill, SETTER)       \
    X(12, ARANGE, arange, SEQUENCE) \
    X(13, UNIFORM, uniform, RANDOM) \
    X(14, NORMAL, normal, RANDOM)

enum varve_operator {
#define VARVE_OPERATOR_ENUM(code, NAME, name, KIND) VARVE_OPERATOR_##NAME = (code),
    VARVE_OPERATOR_LIST(VARVE_OPERATOR_ENUM)
#undef VARVE_OPERATOR_ENUM
        VARVE_OPERATOR_LIMIT,
};

/// "add" and so on, static; "?" for no operator of the list.
const char *varve_operator_name(enum varve_operator operation);

#define VARVE_OP_ALL_AXES INT32_MIN

/* The arguments of each kind, between `out` and `message`.
 *
 * BINARY     a, b. add, sub, mul: all types but bool, of which add is `or` and mul is `and`; div, pow: floating point
 *            only. matmul: matrices in the two last axes, the axes before them are broadcast; f16 and bf16 are summed
 *            in f32, integers wrap. f32 and f64 go to cblas_sgemm and cblas_dgemm of OpenBLAS if the process finds it
 *            (libopenblas.so.0; the environment's VARVE_BLAS names another library, or none), else to loops of ours.
 * UNARY      a. exp: floating point only; off by at most 1.1 units of the last place, halves by what rounding adds.
 *            relu: all but bool; NaN stays NaN.
 * REDUCTION  a, axis (from the end if negative; VARVE_OP_ALL_AXES). `out` has the shape of `a` without the axis or with
 *            size 1 there. sum: integers and bool into i64. mean: floating point only, NaN of no elements. max: NaN
 *            wins; an axis without elements has none. Sums are accumulated in f64, runs and eight rows at a time by
 *            halves and the rest with compensation: the error is a few units of 2^-53 of the sum of the magnitudes,
 *            however many there are.
 * SETTER     value: varve_array_fill.
 * SEQUENCE   start, step: element i, in the usual order, is start + i * step, computed as i64 or, if one of them is
 *            real, f64, and then converted as varve_array_copy does.
 * RANDOM     seed, stream, two numbers: the interval [a, b) of uniform, mean and standard deviation of normal. Floating
 *            point only. Element i depends on seed, stream, i and the type alone: Philox 4x32-10 with the seed as key
 *            and as counter the number of a block and the stream, the lower 32 bits of each first. A block of
 *            four words w gives
 *            - uniform: four f32 (f16, bf16 rounded from them) of the upper 24 bits of a word, or two f64 of the upper
 *              53 bits of two words, the second being the upper one. Divided by 2^24 or 2^53 that is u in [0, 1), and
 *              the element is a + u * (b - a), rounded after each operation: it can round to b;
 *            - normal: Box-Muller in f64 with r = sqrt(-2 ln((w[0] + 1) / 2^32)) and t = 2 pi w[1] / 2^32: r cos t, r
 *              sin t, and the same of w[2], w[3]: four elements of any type, mean + deviation * that,
 *              converted from f64.
 *            Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
 */
#define VARVE_OPERATOR_ARGUMENTS_BINARY const struct varve_array *a, const struct varve_array *b
#define VARVE_OPERATOR_ARGUMENTS_UNARY const struct varve_array *a
#define VARVE_OPERATOR_ARGUMENTS_REDUCTION const struct varve_array *a, int axis
#define VARVE_OPERATOR_ARGUMENTS_SETTER struct varve_scalar value
#define VARVE_OPERATOR_ARGUMENTS_SEQUENCE struct varve_scalar start, struct varve_scalar step
#define VARVE_OPERATOR_ARGUMENTS_RANDOM uint64_t seed, uint64_t stream, double a, double b

/// varve_op_add and so on.
#define VARVE_OPERATOR_FUNCTION(code, NAME, name, KIND) \
    int varve_op_##name(const struct varve_array *out, VARVE_OPERATOR_ARGUMENTS_##KIND, struct varve_message *message);
VARVE_OPERATOR_LIST(VARVE_OPERATOR_FUNCTION)
#undef VARVE_OPERATOR_FUNCTION

/// The shape that `out` must have for BINARY operators, written into `shape_out` (VARVE_DIMS_MAX sizes). Errors:
/// VARVE_ERROR_INVALID.
int varve_op_binary_shape(enum varve_operator operation, const struct varve_array *a, const struct varve_array *b,
                          unsigned *ndim_out, int64_t *shape_out, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
