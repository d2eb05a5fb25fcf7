/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operator asks of its operands before it computes: types, shapes, and inputs that the result
 * does not disturb.
 */
#ifndef VARVE_STORAGE_TENSORS_OPERANDS_H
#define VARVE_STORAGE_TENSORS_OPERANDS_H

#include "storage/array.h"
#include "storage/operators.h"

#define OPERANDS_MAX 2

/* What a reduction does with each axis of its input. */
struct reduction_axes {
    bool is_reduced[VARVE_DIMS_MAX];
    int64_t kept_shape[VARVE_DIMS_MAX];    /* with 1 for the reduced ones */
    int64_t reduced_shape[VARVE_DIMS_MAX]; /* without them */
    unsigned kept_ndim, reduced_ndim;
    int64_t divisor; /* elements of the input for one of the result */
};

struct operands {
    unsigned count;
    struct varve_array inputs[OPERANDS_MAX];
    void *memory[OPERANDS_MAX]; /* copies to free, or NULL */
};

bool dtype_is_float(enum varve_dtype dtype);
bool dtype_is_half(enum varve_dtype dtype);

/// All arrays are sound, of one type (and `out` of `out_dtype`), and floating point if `wants_float`.
int operands_check(enum varve_operator operation, const struct varve_array *out, enum varve_dtype out_dtype,
                   const struct varve_array *const *inputs, unsigned count, bool wants_float,
                   struct varve_message *message);
/// "add: the result has shape (2, 3), not (3,)".
int operands_refuse_shape(enum varve_operator operation, const struct varve_array *out, unsigned ndim,
                          const int64_t *shape, struct varve_message *message);
/// All that an operator asks of its operands and arguments, by the kind of the operator.
int elementwise_check(enum varve_operator operation, const struct varve_array *out,
                      const struct varve_array *const *inputs, unsigned count, struct varve_message *message);
int reduction_check(enum varve_operator operation, const struct varve_array *out, const struct varve_array *a, int axis,
                    struct reduction_axes *axes, struct varve_message *message);
int matmul_check(const struct varve_array *out, const struct varve_array *a, const struct varve_array *b,
                 struct varve_message *message);
int random_check(enum varve_operator operation, const struct varve_array *out, double a, double b,
                 struct varve_message *message);
/// Expand checked inputs to the shape of `out`; those that overlap it, and are not exactly it, are set aside first.
/// Release with operands_release(), after errors too.
int operands_prepare(struct operands *operands, const struct varve_array *out, const struct varve_array *const *inputs,
                     unsigned count, struct varve_message *message);
void operands_release(struct operands *operands);

/* One operator with all its arguments, as a value: for whoever decides where it is computed. */

enum operation_kind {
    OPERATION_BINARY,
    OPERATION_UNARY,
    OPERATION_REDUCTION,
    OPERATION_SETTER,
    OPERATION_SEQUENCE,
    OPERATION_RANDOM,
};

struct operation {
    enum varve_operator code;
    unsigned count; /* inputs */
    struct varve_array out, inputs[OPERANDS_MAX];
    int axis;                        /* REDUCTION */
    struct varve_scalar value;       /* SETTER */
    struct varve_scalar start, step; /* SEQUENCE */
    uint64_t seed, sequence;         /* RANDOM: `sequence` is called stream in operators.h */
    double a, b;                     /* RANDOM */
};

enum operation_kind operation_kind(enum varve_operator code);
/// What varve_op_… asks before it computes; elements are not looked at. Errors: VARVE_ERROR_INVALID.
int operation_check(const struct operation *operation, struct varve_message *message);
/// varve_op_… on host memory, checks included.
int operation_run(const struct operation *operation, struct varve_message *message);
/// As real numbers, as arange computes unless both are integers.
bool operation_is_real(const struct operation *operation);
double scalar_real(struct varve_scalar scalar);

/* The product of two matrices, by a BLAS that is looked for once or by loops of our own. */

struct gemm {
    enum varve_dtype dtype; /* of all three: F64, F32 or I64 */
    int64_t rows, columns, depth;
    bool is_turned[2]; /* inputs: is the first axis the dense one? */
    int64_t lead[2];   /* elements between rows, or columns if turned */
    int64_t out_lead;  /* elements between rows of the result */
};

/// May the library that gemm_run() calls take turned inputs of that type as they are?
bool gemm_takes_turned(enum varve_dtype dtype);
/// Are the matrices in these two axes rows that lie densely, one after the other? Axes of size 1 have any stride.
/// `lead_out`: elements between rows, at least 1.
bool gemm_is_dense(const struct varve_geometry *geometry, unsigned row_axis, unsigned column_axis, int64_t *lead_out);
/// out = a b. Addresses are multiples of the element's size, and `out` shares nothing with the inputs.
void gemm_run(const struct gemm *gemm, void *out, const void *a, const void *b);

#endif
