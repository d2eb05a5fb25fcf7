/* SPDX-License-Identifier: Apache-2.0 */
/* One operator with all its arguments, as a value: for whoever decides where it is computed. */
#ifndef VARVE_STORAGE_TENSORS_OPERATOR_TABLE_H
#define VARVE_STORAGE_TENSORS_OPERATOR_TABLE_H

#include "storage/tensors/operands.h"

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

#endif
