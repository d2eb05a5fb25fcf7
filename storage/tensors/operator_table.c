/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"

enum operation_kind operation_kind(enum varve_operator code)
{
    static const enum operation_kind kinds[VARVE_OPERATOR_LIMIT] = {
#define OPERATION_KIND(code, NAME, name, KIND) [VARVE_OPERATOR_##NAME] = OPERATION_##KIND,
        VARVE_OPERATOR_LIST(OPERATION_KIND)
#undef OPERATION_KIND
    };
    return kinds[code];
}

int operation_check(const struct operation *operation, struct varve_message *message)
{
    const struct varve_array *const inputs[] = {&operation->inputs[0], &operation->inputs[1]};
    const struct varve_array *out = &operation->out;
    struct reduction_axes axes;
    switch (operation_kind(operation->code)) {
    case OPERATION_REDUCTION:
        return reduction_check(operation->code, out, inputs[0], operation->axis, &axes, message);
    case OPERATION_RANDOM:
        return random_check(operation->code, out, operation->a, operation->b, message);
    case OPERATION_BINARY:
    case OPERATION_UNARY:
        return operation->code == VARVE_OPERATOR_MATMUL
                   ? matmul_check(out, inputs[0], inputs[1], message)
                   : elementwise_check(operation->code, out, inputs, operation->count, message);
    default:
        return elements_check_target(out, message);
    }
}

#define RUN_BINARY(name) varve_op_##name(out, &operation->inputs[0], &operation->inputs[1], message)
#define RUN_UNARY(name) varve_op_##name(out, &operation->inputs[0], message)
#define RUN_REDUCTION(name) varve_op_##name(out, &operation->inputs[0], operation->axis, message)
#define RUN_SETTER(name) varve_op_##name(out, operation->value, message)
#define RUN_SEQUENCE(name) varve_op_##name(out, operation->start, operation->step, message)
#define RUN_RANDOM(name) varve_op_##name(out, operation->seed, operation->sequence, operation->a, operation->b, message)

int operation_run(const struct operation *operation, struct varve_message *message)
{
    const struct varve_array *out = &operation->out;
    switch (operation->code) {
#define OPERATION_RUN(code, NAME, name, KIND) \
    case VARVE_OPERATOR_##NAME:               \
        return RUN_##KIND(name);
        VARVE_OPERATOR_LIST(OPERATION_RUN)
#undef OPERATION_RUN
    default:
        return varve_message_set(message, VARVE_ERROR_INVALID, "no such operator");
    }
}

bool operation_is_real(const struct operation *operation)
{
    return operation->start.kind == VARVE_SCALAR_REAL || operation->step.kind == VARVE_SCALAR_REAL;
}

double scalar_real(struct varve_scalar scalar)
{
    return scalar.kind == VARVE_SCALAR_REAL ? scalar.real : (double)scalar.integer;
}
