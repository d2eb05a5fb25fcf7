/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tensors/operands.h"

#include "storage/tensors/element_loop.h"

#include <stdlib.h>

const char *varve_operator_name(enum varve_operator operation)
{
    static const char *const names[VARVE_OPERATOR_LIMIT] = {
#define OPERATOR_NAME(code, NAME, name, KIND) [VARVE_OPERATOR_##NAME] = #name,
        VARVE_OPERATOR_LIST(OPERATOR_NAME)
#undef OPERATOR_NAME
    };
    return (unsigned)operation < VARVE_OPERATOR_LIMIT ? names[operation] : "?";
}

bool dtype_is_float(enum varve_dtype dtype)
{
    return dtype == VARVE_DTYPE_F64 || dtype == VARVE_DTYPE_F32 || dtype_is_half(dtype);
}

bool dtype_is_half(enum varve_dtype dtype)
{
    return dtype == VARVE_DTYPE_F16 || dtype == VARVE_DTYPE_BF16;
}

int operands_check(enum varve_operator operation, const struct varve_array *out, enum varve_dtype out_dtype,
                   const struct varve_array *const *inputs, unsigned count, bool wants_float,
                   struct varve_message *message)
{
    const char *name = varve_operator_name(operation);
    int error = elements_check_target(out, message);
    for (unsigned i = 0; i < count && error == 0; i++) {
        error = elements_check_source(inputs[i], message);
        if (error == 0 && inputs[i]->dtype != inputs[0]->dtype) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "%s: operands have types %s and %s", name,
                                     varve_dtype_name(inputs[0]->dtype), varve_dtype_name(inputs[i]->dtype));
        }
    }
    if (error != 0) {
        return error;
    }
    if (wants_float && !dtype_is_float(count > 0 ? inputs[0]->dtype : out->dtype)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: not supported for %s, only for floating point",
                                 name, varve_dtype_name(count > 0 ? inputs[0]->dtype : out->dtype));
    }
    if (out->dtype != out_dtype) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: the result has type %s, not %s", name,
                                 varve_dtype_name(out_dtype), varve_dtype_name(out->dtype));
    }
    return VARVE_OK;
}

int operands_refuse_shape(enum varve_operator operation, const struct varve_array *out, unsigned ndim,
                          const int64_t *shape, struct varve_message *message)
{
    char is[VARVE_SHAPE_TEXT_BYTES];
    char wanted[VARVE_SHAPE_TEXT_BYTES];
    return varve_message_set(message, VARVE_ERROR_INVALID, "%s: the result has shape %s, not %s",
                             varve_operator_name(operation), varve_shape_text(ndim, shape, wanted, sizeof(wanted)),
                             varve_shape_text(out->geometry.ndim, out->geometry.shape, is, sizeof(is)));
}

static int operands_input_prepare(struct operands *operands, unsigned number, const struct varve_array *out,
                                  const struct varve_array *input, struct varve_message *message)
{
    struct varve_array *prepared = &operands->inputs[number];
    const struct varve_geometry *shape = &out->geometry;
    *prepared = *input;
    if (elements_overlap(out, input) && !elements_are_same(out, input)) {
        int error = elements_set_aside(input, input->dtype, prepared, message);
        if (error != 0) {
            return error;
        }
        operands->memory[number] = prepared->data;
    }
    return varve_geometry_expand(&prepared->geometry, shape->ndim, shape->shape, message);
}

int operands_prepare(struct operands *operands, const struct varve_array *out, const struct varve_array *const *inputs,
                     unsigned count, struct varve_message *message)
{
    *operands = (struct operands){.count = count};
    for (unsigned i = 0; i < count; i++) {
        int error = operands_input_prepare(operands, i, out, inputs[i], message);
        if (error != 0) {
            return error;
        }
    }
    return VARVE_OK;
}

void operands_release(struct operands *operands)
{
    for (unsigned i = 0; i < operands->count; i++) {
        free(operands->memory[i]);
    }
}

/* The axes before the two last ones are broadcast. */
static int matmul_shape(const struct varve_array *a, const struct varve_array *b, unsigned *ndim_out,
                        int64_t *shape_out, struct varve_message *message)
{
    const struct varve_geometry *left = &a->geometry;
    const struct varve_geometry *right = &b->geometry;
    char text[VARVE_SHAPE_TEXT_BYTES];
    char other[VARVE_SHAPE_TEXT_BYTES];
    if (left->ndim < 2 || right->ndim < 2 || left->shape[left->ndim - 1] != right->shape[right->ndim - 2]) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "matmul: shapes %s and %s are no (…, n, k) and (…, k, m)",
                                 varve_shape_text(left->ndim, left->shape, text, sizeof(text)),
                                 varve_shape_text(right->ndim, right->shape, other, sizeof(other)));
    }
    unsigned ndim;
    int error =
        varve_shape_broadcast(left->ndim - 2, left->shape, right->ndim - 2, right->shape, &ndim, shape_out, message);
    if (error == 0) {
        shape_out[ndim] = left->shape[left->ndim - 2];
        shape_out[ndim + 1] = right->shape[right->ndim - 1];
        *ndim_out = ndim + 2;
    }
    return error;
}

int varve_op_binary_shape(enum varve_operator operation, const struct varve_array *a, const struct varve_array *b,
                          unsigned *ndim_out, int64_t *shape_out, struct varve_message *message)
{
    if (operation == VARVE_OPERATOR_MATMUL) {
        return matmul_shape(a, b, ndim_out, shape_out, message);
    }
    return varve_shape_broadcast(a->geometry.ndim, a->geometry.shape, b->geometry.ndim, b->geometry.shape, ndim_out,
                                 shape_out, message);
}
