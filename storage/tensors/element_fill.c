/* SPDX-License-Identifier: Apache-2.0 */
/* One element, converted once, repeated over an array. */
#include "storage/tensors/element_loop.h"

#include <string.h>

struct element {
    size_t bytes;
    char value[8];
};

static void inner_fill(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct element *element = context;
    unsigned last = loop->ndim - 1;
    elements_move(data[0], loop->strides[0][last], element->value, 0, loop->shape[last], element->bytes);
}

int varve_array_fill(const struct varve_array *target, struct varve_scalar value, struct varve_message *message)
{
    struct element element = {.bytes = varve_dtype_bytes(target->dtype)};
    int error = elements_check_target(target, message);
    uint8_t boolean = value.integer != 0;
    if (error != 0) {
        return error;
    }
    switch (value.kind) {
    case VARVE_SCALAR_BOOL:
        elements_cast_find(target->dtype, VARVE_DTYPE_BOOL)(element.value, &boolean, 1);
        break;
    case VARVE_SCALAR_INTEGER:
        elements_cast_find(target->dtype, VARVE_DTYPE_I64)(element.value, &value.integer, 1);
        break;
    case VARVE_SCALAR_REAL:
        elements_cast_find(target->dtype, VARVE_DTYPE_F64)(element.value, &value.real, 1);
        break;
    default:
        return varve_message_set(message, VARVE_ERROR_INVALID, "%d is no kind of a number", (int)value.kind);
    }
    struct elements_loop loop;
    elements_loop_init(&loop, 1, (const struct varve_array *const[]){target});
    elements_loop_walk(&loop, 1, inner_fill, &element);
    return VARVE_OK;
}
