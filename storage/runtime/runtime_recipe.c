/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes: how a tensor was made, kept as long as it may have to be made again. */
#include "storage/runtime/runtime_internal.h"

#include <stdlib.h>
#include <string.h>

#define ARGUMENT_ALIGNMENT 16U

static size_t aligned(size_t bytes)
{
    return (bytes + ARGUMENT_ALIGNMENT - 1) / ARGUMENT_ALIGNMENT * ARGUMENT_ALIGNMENT;
}

/* The structure, its outputs, arguments and name in one piece of memory. */
struct recipe *recipe_new(struct varve_runtime *runtime, const struct varve_recipe *call, enum recipe_kind kind)
{
    size_t head = aligned(sizeof(struct recipe)), outputs = aligned(call->output_count * sizeof(struct recipe_output));
    size_t name_bytes = strlen(call->name) + 1;
    char *piece = NULL;
    if (posix_memalign((void **)&piece, ARGUMENT_ALIGNMENT,
                       head + outputs + aligned(call->argument_bytes) + name_bytes) != 0) {
        return NULL;
    }
    struct recipe *recipe = (struct recipe *)piece;
    *recipe = (struct recipe){.kind = kind, .call = *call, .outputs = (struct recipe_output *)(piece + head)};
    memset(recipe->outputs, 0, outputs);
    recipe->call.arguments = piece + head + outputs;
    if (call->argument_bytes > 0) {
        memcpy(piece + head + outputs, call->arguments, call->argument_bytes);
    }
    recipe->call.name = piece + head + outputs + aligned(call->argument_bytes);
    memcpy(piece + head + outputs + aligned(call->argument_bytes), call->name, name_bytes);
    recipe->call.outputs = NULL;
    recipe->next = runtime->recipes;
    if (recipe->next != NULL) {
        recipe->next->previous = recipe;
    }
    runtime->recipes = recipe;
    return recipe;
}

void recipe_free(struct varve_runtime *runtime, struct recipe *recipe)
{
    if (recipe->previous != NULL) {
        recipe->previous->next = recipe->next;
    } else {
        runtime->recipes = recipe->next;
    }
    if (recipe->next != NULL) {
        recipe->next->previous = recipe->previous;
    }
    varve_storage_release(recipe->constant, NULL);
    free(recipe);
}

/* ---- the planner's operator ---- */

uint64_t recipe_output_bytes(const struct varve_runtime *runtime, const struct recipe *recipe, unsigned output)
{
    const struct recipe_output *of = &recipe->outputs[output];
    if (recipe->kind == RECIPE_VIEW) {
        return 0;
    }
    struct varve_allocation_info info;
    if (recipe->kind == RECIPE_CONSTANT) { /* memory that is not the allocator's does not count */
        return varve_alloc_describe(runtime->alloc, varve_storage_allocation(recipe->constant), &info) == VARVE_OK
                   ? info.block.bytes
                   : 0;
    }
    return varve_alloc_rounded_size(runtime->alloc,
                                    (uint64_t)varve_geometry_count(&of->geometry) * varve_dtype_bytes(of->dtype), NULL);
}

int recipe_compute(struct varve_runtime *runtime, struct recipe *recipe, const uint32_t *inputs, uint32_t *outputs_out,
                   struct varve_message *message)
{
    uint64_t sizes[VARVE_RECIPE_OUTPUTS_MAX];
    int32_t aliases[VARVE_RECIPE_OUTPUTS_MAX];
    const struct varve_remat_op op = {.inputs = inputs,
                                      .sizes = sizes,
                                      .aliases = aliases,
                                      .input_count = recipe->call.input_count,
                                      .output_count = recipe->call.output_count,
                                      .cost_ns = recipe->call.cost_ns,
                                      .user = recipe};
    for (unsigned i = 0; i < recipe->call.output_count; i++) {
        sizes[i] = recipe_output_bytes(runtime, recipe, i);
        aliases[i] = recipe->kind == RECIPE_VIEW ? 0 : -1;
    }
    runtime->pending = recipe;
    int error = runtime_result(runtime, varve_remat_compute(runtime->remat, &op, outputs_out, message), message);
    if (error != VARVE_OK && runtime->pending != NULL) {
        recipe_free(runtime, recipe); /* the planner did not take it */
    }
    runtime->pending = NULL;
    return error;
}

/* ---- running one for the program ---- */

static uint64_t runtime_recipe_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 29;
}

static uint64_t mix_type(uint64_t hash, enum varve_dtype dtype, const struct varve_geometry *geometry)
{
    hash = runtime_recipe_mix(hash, (uint64_t)dtype << 8 | geometry->ndim);
    for (unsigned i = 0; i < geometry->ndim; i++) {
        hash =
            runtime_recipe_mix(runtime_recipe_mix(hash, (uint64_t)geometry->shape[i]), (uint64_t)geometry->strides[i]);
    }
    return hash;
}

static uint64_t signature_of(const struct recipe *recipe, struct varve_tensor *const *inputs)
{
    uint64_t hash = recipe->call.input_count;
    for (const char *at = recipe->call.name; *at != '\0'; at++) {
        hash = runtime_recipe_mix(hash, (unsigned char)*at);
    }
    for (unsigned i = 0; i < recipe->call.input_count; i++) {
        hash = mix_type(hash, inputs[i]->dtype, &inputs[i]->geometry);
    }
    for (unsigned i = 0; i < recipe->call.output_count; i++) {
        hash = mix_type(hash, recipe->outputs[i].dtype, &recipe->outputs[i].geometry);
    }
    return hash;
}

static int check_call(const struct varve_runtime *runtime, const struct varve_recipe *call,
                      struct varve_tensor *const *inputs, struct varve_message *message)
{
    if (call->output_count == 0 || call->output_count > VARVE_RECIPE_OUTPUTS_MAX ||
        call->input_count > VARVE_RECIPE_INPUTS_MAX) {
        return varve_message_set(
            message, VARVE_ERROR_INVALID, "operator %s: %u inputs and %u outputs; 0 to %d and 1 to %d can be",
            call->name, call->input_count, call->output_count, VARVE_RECIPE_INPUTS_MAX, VARVE_RECIPE_OUTPUTS_MAX);
    }
    for (unsigned i = 0; i < call->input_count; i++) {
        if (inputs[i]->runtime != runtime) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "operator %s: input %u is of another runtime",
                                     call->name, i);
        }
    }
    if (call->is_in_place &&
        (call->input_count == 0 || inputs[0]->dtype != call->outputs[0].dtype ||
         !varve_geometry_has_shape(&inputs[0]->geometry, call->outputs[0].ndim, call->outputs[0].shape))) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "operator %s changes input 0, but output 0 has another type or shape", call->name);
    }
    return VARVE_OK;
}

static int set_types(struct recipe *recipe, const struct varve_tensor_type *types, struct varve_message *message)
{
    for (unsigned i = 0; i < recipe->call.output_count; i++) {
        VARVE_TRY(varve_geometry_contiguous(types[i].ndim, types[i].shape, &recipe->outputs[i].geometry, message));
        if (varve_dtype_bytes(types[i].dtype) == 0) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "output %u has no type", i);
        }
        recipe->outputs[i].dtype = types[i].dtype;
    }
    return VARVE_OK;
}

/* Handles of what was made; all or none. */
static int make_handles(struct varve_runtime *runtime, const struct recipe *recipe, const uint32_t *numbers,
                        struct varve_tensor **outputs, struct varve_message *message)
{
    unsigned count = recipe->call.output_count;
    bool is_done = true;
    for (unsigned i = 0; i < count; i++) {
        outputs[i] = tensor_new(runtime, numbers[i], &recipe->outputs[i]);
        is_done &= outputs[i] != NULL;
    }
    if (is_done) {
        return VARVE_OK;
    }
    for (unsigned i = 0; i < count; i++) {
        if (outputs[i] != NULL) {
            varve_tensor_release(outputs[i]);
            outputs[i] = NULL;
        } else {
            varve_remat_release(runtime->remat, numbers[i]);
        }
    }
    return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a tensor");
}

int recipe_run(struct varve_runtime *runtime, const struct varve_recipe *call, bool is_ours,
               struct varve_tensor *const *inputs, struct varve_tensor **outputs, struct varve_message *message)
{
    VARVE_TRY(check_call(runtime, call, inputs, message));
    struct recipe *recipe = recipe_new(runtime, call, RECIPE_OPERATOR);
    if (recipe == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a recipe");
    }
    recipe->is_ours = is_ours;
    int error = set_types(recipe, call->outputs, message);
    if (error != VARVE_OK) {
        recipe_free(runtime, recipe);
        return error;
    }
    recipe->signature = signature_of(recipe, inputs);
    uint32_t numbers[VARVE_RECIPE_INPUTS_MAX];
    for (unsigned i = 0; i < call->input_count; i++) {
        numbers[i] = inputs[i]->number;
    }
    uint32_t made[VARVE_RECIPE_OUTPUTS_MAX];
    error = recipe_compute(runtime, recipe, numbers, made, message);
    VARVE_THEN(error, make_handles(runtime, recipe, made, outputs, message));
    if (error == VARVE_OK) {
        log_call(runtime, recipe, inputs, outputs, varve_remat_cost(runtime->remat, made[0]));
    }
    return error;
}

int varve_runtime_run(struct varve_runtime *runtime, const struct varve_recipe *recipe,
                      struct varve_tensor *const *inputs, struct varve_tensor **outputs, struct varve_message *message)
{
    return recipe_run(runtime, recipe, false, inputs, outputs, message);
}
