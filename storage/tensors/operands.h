/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operator asks of its operands before it computes: types, shapes, and inputs that the result
 * does not disturb.
 */
#ifndef VARVE_STORAGE_TENSORS_OPERANDS_H
#define VARVE_STORAGE_TENSORS_OPERANDS_H

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

#endif
