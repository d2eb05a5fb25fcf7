/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operator asks of its operands before it computes: types, shapes, and inputs that the result does not disturb.
 */
#ifndef VARVE_STORAGE_OPERATORS_OPERANDS_H
#define VARVE_STORAGE_OPERATORS_OPERANDS_H

#include "storage/operators.h"

#define OPERANDS_MAX 2

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
/// Expand checked inputs to the shape of `out`; those that overlap it, and are not exactly it, are set aside first. Release
/// with operands_release(), after errors too.
int operands_prepare(struct operands *operands, const struct varve_array *out,
                     const struct varve_array *const *inputs, unsigned count, struct varve_message *message);
void operands_release(struct operands *operands);

#endif
