/* SPDX-License-Identifier: Apache-2.0 */
/* Handles. Several may have one value; the planner counts them. */
#include "storage/runtime/runtime_internal.h"

#include <stdlib.h>

struct varve_tensor *tensor_new(struct varve_runtime *runtime, uint32_t number, const struct recipe_output *output)
{
    struct varve_tensor *tensor = calloc(1, sizeof(*tensor));
    if (tensor != NULL) {
        tensor->runtime = runtime;
        tensor->number = number;
        tensor->dtype = output->dtype;
        tensor->geometry = output->geometry;
        runtime->tensors++;
    }
    return tensor;
}

/* A handle for what a recipe of one output made. */
static int runtime_tensor_finish(struct varve_runtime *runtime, uint32_t number, const struct recipe_output *output,
                                 struct varve_tensor **tensor_out, struct varve_message *message)
{
    *tensor_out = tensor_new(runtime, number, output);
    if (*tensor_out == NULL) {
        varve_remat_release(runtime->remat, number);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a tensor");
    }
    return VARVE_OK;
}

int varve_runtime_checkpoint(struct varve_runtime *runtime, struct varve_storage *storage,
                             struct varve_tensor **tensor_out, struct varve_message *message)
{
    const struct varve_recipe call = {.name = "constant", .output_count = 1};
    struct recipe *recipe = recipe_new(runtime, &call, RECIPE_CONSTANT);
    struct varve_storage *base = varve_storage_base(storage);
    struct recipe_output output;
    if (recipe == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a recipe");
    }
    struct varve_array array;
    varve_storage_get_array(storage, &array);
    output = (struct recipe_output){.dtype = array.dtype, .geometry = array.geometry};
    recipe->outputs[0] = output;
    recipe->constant = varve_storage_retain(storage);
    uint32_t number;
    VARVE_TRY(recipe_compute(runtime, recipe, NULL, &number, message));
    varve_remat_drop_recipe(runtime->remat, number);
    int error = runtime_tensor_finish(runtime, number, &output, tensor_out, message);
    if (error == VARVE_OK) {
        (*tensor_out)->is_pinned = true;
        log_constant(*tensor_out, varve_storage_bytes(base != NULL ? base : storage));
    }
    return error;
}

int varve_tensor_copy(struct varve_tensor *tensor, struct varve_tensor **copy_out, struct varve_message *message)
{
    const struct recipe_output output = {.dtype = tensor->dtype, .geometry = tensor->geometry};
    varve_remat_retain(tensor->runtime->remat, tensor->number);
    int error = runtime_tensor_finish(tensor->runtime, tensor->number, &output, copy_out, message);
    if (error == VARVE_OK) {
        (*copy_out)->is_pinned = tensor->is_pinned;
        log_copy(*copy_out, tensor);
    }
    return error;
}

int varve_tensor_assign(struct varve_tensor *tensor, struct varve_tensor *value, struct varve_message *message)
{
    struct varve_remat *remat = tensor->runtime->remat;
    uint32_t old = tensor->number;
    if (value->runtime != tensor->runtime) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the tensors are of different runtimes");
    }
    if (tensor->borrowed > 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "the tensor is borrowed");
    }
    log_assign(tensor, value);
    varve_remat_retain(remat, value->number);
    tensor->number = value->number;
    tensor->dtype = value->dtype;
    tensor->geometry = value->geometry;
    tensor->is_pinned = value->is_pinned;
    varve_remat_release(remat, old);
    return VARVE_OK;
}

void varve_tensor_release(struct varve_tensor *tensor)
{
    if (tensor == NULL) {
        return;
    }
    while (tensor->borrowed > 0) {
        varve_tensor_return(tensor);
    }
    log_release(tensor);
    tensor->runtime->tensors--;
    varve_remat_release(tensor->runtime->remat, tensor->number);
    free(tensor);
}

static int runtime_tensor_materialize(struct varve_tensor *tensor, struct varve_message *message)
{
    struct varve_runtime *runtime = tensor->runtime;
    return runtime_result(runtime, varve_remat_materialize(runtime->remat, tensor->number, message), message);
}

int varve_tensor_borrow(struct varve_tensor *tensor, struct varve_storage **storage_out, struct varve_message *message)
{
    int error = runtime_tensor_materialize(tensor, message);
    if (error == VARVE_OK) {
        varve_remat_lock(tensor->runtime->remat, tensor->number);
        tensor->borrowed++;
        *storage_out = tensor->runtime->values[tensor->number];
    }
    return error;
}

void varve_tensor_return(struct varve_tensor *tensor)
{
    tensor->borrowed--;
    varve_remat_unlock(tensor->runtime->remat, tensor->number);
}

int varve_tensor_decheckpoint(struct varve_tensor *tensor, struct varve_storage **storage_out,
                              struct varve_message *message)
{
    int error = runtime_tensor_materialize(tensor, message);
    if (error == VARVE_OK) {
        varve_remat_pin(tensor->runtime->remat, tensor->number);
        log_pin(tensor);
        *storage_out = varve_storage_retain(tensor->runtime->values[tensor->number]);
    }
    return error;
}

int varve_tensor_pin(struct varve_tensor *tensor, struct varve_message *message)
{
    int error = tensor->is_pinned ? VARVE_OK : runtime_tensor_materialize(tensor, message);
    if (error == VARVE_OK && !tensor->is_pinned) {
        varve_remat_drop_recipe(tensor->runtime->remat, tensor->number);
        tensor->is_pinned = true;
        log_pin(tensor);
    }
    return error;
}

int varve_tensor_evict(struct varve_tensor *tensor, struct varve_message *message)
{
    return varve_remat_evict(tensor->runtime->remat, tensor->number, message);
}

bool varve_tensor_is_resident(const struct varve_tensor *tensor)
{
    return varve_remat_is_defined(tensor->runtime->remat, tensor->number);
}

enum varve_dtype varve_tensor_dtype(const struct varve_tensor *tensor)
{
    return tensor->dtype;
}

void varve_tensor_get_geometry(const struct varve_tensor *tensor, struct varve_geometry *geometry_out)
{
    *geometry_out = tensor->geometry;
}

int varve_tensor_view(struct varve_tensor *tensor, const struct varve_geometry *geometry,
                      struct varve_tensor **view_out, struct varve_message *message)
{
    const struct varve_recipe call = {.name = "view", .input_count = 1, .output_count = 1, .cost_ns = 1};
    const struct recipe_output output = {.dtype = tensor->dtype, .geometry = *geometry};
    struct recipe *recipe = recipe_new(tensor->runtime, &call, RECIPE_VIEW);
    if (recipe == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a recipe");
    }
    recipe->outputs[0] = output;
    uint32_t number;
    int error = recipe_compute(tensor->runtime, recipe, &tensor->number, &number, message);
    VARVE_THEN(error, runtime_tensor_finish(tensor->runtime, number, &output, view_out, message));
    if (error == VARVE_OK) {
        log_call(tensor->runtime, recipe, &tensor, view_out, call.cost_ns);
    }
    return error;
}

int varve_tensor_transpose(struct varve_tensor *tensor, int axis, int other, struct varve_tensor **view_out,
                           struct varve_message *message)
{
    struct varve_geometry geometry = tensor->geometry;
    int error = varve_geometry_transpose(&geometry, axis, other, message);
    return error == VARVE_OK ? varve_tensor_view(tensor, &geometry, view_out, message) : error;
}
