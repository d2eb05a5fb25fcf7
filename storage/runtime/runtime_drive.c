/* SPDX-License-Identifier: Apache-2.0 */
/* What the planner has the runtime do: run operators into new storages, and let storages go. */
#include "storage/runtime/runtime_internal.h"
#include "base/error.h"
#include "trace/emit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COST_SAMPLES 2

/* ---- costs by name and types ---- */

static struct cost_entry *find_cost(const struct varve_runtime *runtime, uint64_t signature)
{
    size_t slot = signature & (runtime->cost_capacity - 1);
    while (runtime->costs[slot].ns != 0 && runtime->costs[slot].signature != signature) {
        slot = (slot + 1) & (runtime->cost_capacity - 1);
    }
    return &runtime->costs[slot];
}

/* 0: it is to be measured. */
static uint64_t known_cost(const struct varve_runtime *runtime, uint64_t signature)
{
    const struct cost_entry *entry = runtime->cost_capacity == 0 ? NULL : find_cost(runtime, signature);
    return entry == NULL || entry->samples < COST_SAMPLES ? 0 : entry->ns;
}

/* Returns the cost to go by. Without memory for it the next one is measured again. */
static uint64_t keep_cost(struct varve_runtime *runtime, uint64_t signature, uint64_t ns)
{
    if (runtime->cost_count * 2 >= runtime->cost_capacity) {
        size_t capacity = runtime->cost_capacity > 0 ? runtime->cost_capacity * 2 : 256;
        struct varve_runtime grown = {.costs = calloc(capacity, sizeof(*grown.costs)), .cost_capacity = capacity};
        if (grown.costs == NULL) {
            return ns;
        }
        for (size_t i = 0; i < runtime->cost_capacity; i++) {
            if (runtime->costs[i].ns != 0) {
                *find_cost(&grown, runtime->costs[i].signature) = runtime->costs[i];
            }
        }
        free(runtime->costs);
        runtime->costs = grown.costs;
        runtime->cost_capacity = capacity;
    }
    struct cost_entry *entry = find_cost(runtime, signature);
    runtime->cost_count += entry->ns == 0;
    if (entry->ns == 0 || ns < entry->ns) {
        entry->ns = ns > 0 ? ns : 1;
    }
    entry->signature = signature;
    entry->samples++;
    return entry->ns;
}

/* ---- values ---- */

/* Eight bytes at a time, each multiplied into the sum of those before. */
static uint64_t hash_bytes(const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = bytes ^ UINT64_C(0x9e3779b97f4a7c15), word;
    for (; bytes > 0; at += sizeof(word)) {
        uint64_t some = bytes < sizeof(word) ? bytes : sizeof(word);
        word = 0;
        memcpy(&word, at, some);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
        bytes -= some;
    }
    return hash;
}

static int runtime_drive_hash_of(struct varve_storage *storage, uint64_t *hash_out, struct varve_message *message)
{
    struct varve_storage *host;
    int error = varve_storage_to(storage, varve_memory_host(), varve_storage_dtype(storage), &host, message);
    if (error == VARVE_OK) {
        *hash_out = hash_bytes(varve_storage_data(host), varve_storage_bytes(host));
        varve_storage_release(host, NULL);
    }
    return error;
}

/* The first run's hashes are kept, those of others compared. */
static int runtime_drive_check_values(struct recipe *recipe, struct varve_storage *const *outputs,
                                      struct varve_message *message)
{
    int error = VARVE_OK;
    for (unsigned i = 0; i < recipe->call.output_count && error == VARVE_OK; i++) {
        uint64_t hash = 0;
        error = runtime_drive_hash_of(outputs[i], &hash, message);
        if (error == VARVE_OK && recipe->has_hashes && hash != recipe->outputs[i].hash) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT,
                                      "operator %s, run again, made something else than before (output %u)",
                                      recipe->call.name, i);
        }
        recipe->outputs[i].hash = recipe->has_hashes ? recipe->outputs[i].hash : hash;
    }
    recipe->has_hashes |= error == VARVE_OK;
    return error;
}

/* ---- running ---- */

static int make_output(struct varve_runtime *runtime, const struct recipe_output *output,
                       struct varve_storage **storage_out, struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = runtime->memory, .stream = runtime->stream};
    return varve_storage_empty(&options, output->dtype, output->geometry.ndim, output->geometry.shape, storage_out,
                               message);
}

/* A function of the program's: it has the workspace that it declares, and no more. */
static int runtime_drive_call_function(struct varve_runtime *runtime, const struct recipe *recipe,
                                       struct varve_storage *const *inputs, struct varve_storage *const *outputs,
                                       struct varve_message *message)
{
    uint64_t allocated = (uint64_t)varve_alloc_memory_allocated(runtime->alloc);
    uint64_t workspace = varve_alloc_rounded_size(runtime->alloc, recipe->call.workspace_bytes, NULL);
    if (recipe->is_ours) {
        return recipe->call.run(recipe->call.arguments, inputs, outputs, runtime->stream, message);
    }
    runtime->is_in_function = true;
    runtime->has_exceeded = false;
    runtime->function_limit = allocated + workspace > 0 ? allocated + workspace : 1; /* 0 would be none */
    varve_alloc_set_allocated_limit(runtime->alloc, runtime->function_limit);
    int error = recipe->call.run(recipe->call.arguments, inputs, outputs, runtime->stream, message);
    varve_alloc_set_allocated_limit(runtime->alloc, runtime->budget);
    runtime->is_in_function = false;
    if (runtime->has_exceeded) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY,
                                 "operator %s asked for more than the %" PRIu64 " bytes of workspace that it declares",
                                 recipe->call.name, recipe->call.workspace_bytes);
    }
    return error;
}

static int measured_call(struct varve_runtime *runtime, struct recipe *recipe, struct varve_storage *const *inputs,
                         struct varve_storage *const *outputs, uint64_t *cost_ns, struct varve_message *message)
{
    uint64_t cost = recipe->call.cost_ns != 0 ? recipe->call.cost_ns : known_cost(runtime, recipe->signature);
    struct varve_device *device = varve_alloc_get_device(runtime->alloc);
    uint64_t begin = 0;
    int error = VARVE_OK;
    if (cost == 0) {
        error = device->ops->stream_synchronize(device, runtime->stream);
        begin = varve_clock_monotonic_ns();
    }
    VARVE_THEN(error, runtime_drive_call_function(runtime, recipe, inputs, outputs, message));
    if (error == VARVE_OK && cost == 0) {
        error = device->ops->stream_synchronize(device, runtime->stream);
        cost = keep_cost(runtime, recipe->signature, varve_clock_monotonic_ns() - begin);
    }
    *cost_ns = cost;
    return error;
}

static int run_operator(struct varve_runtime *runtime, struct recipe *recipe, struct varve_remat_run *run,
                        struct varve_message *message)
{
    struct varve_storage *inputs[VARVE_RECIPE_INPUTS_MAX] = {NULL}, *outputs[VARVE_RECIPE_OUTPUTS_MAX] = {NULL};
    for (unsigned i = 0; i < run->input_count; i++) {
        inputs[i] = runtime->values[run->inputs[i]];
    }
    int error = VARVE_OK;
    for (unsigned i = 0; i < run->output_count && error == VARVE_OK; i++) {
        error = make_output(runtime, &recipe->outputs[i], &outputs[i], message);
    }
    if (error == VARVE_OK && recipe->call.is_in_place) {
        error = varve_storage_copy_on(outputs[0], inputs[0], runtime->stream, message);
    }
    VARVE_THEN(error, measured_call(runtime, recipe, inputs, outputs, &run->cost_ns, message));
    if (error == VARVE_OK && runtime->checks_values) {
        error = runtime_drive_check_values(recipe, outputs, message);
    }
    for (unsigned i = 0; i < run->output_count; i++) {
        uint32_t number = run->outputs[i];
        if (error == VARVE_OK && number != VARVE_REMAT_NONE && runtime->values[number] == NULL) {
            runtime->values[number] = outputs[i];
        } else if (outputs[i] != NULL) {
            varve_storage_release(outputs[i], NULL);
        }
    }
    return error;
}

static bool reserve_values(struct varve_runtime *runtime, const struct varve_remat_run *run)
{
    uint32_t wanted = 0, capacity = runtime->value_capacity > 0 ? runtime->value_capacity : 64;
    for (unsigned i = 0; i < run->output_count; i++) {
        if (run->outputs[i] != VARVE_REMAT_NONE && run->outputs[i] >= wanted) {
            wanted = run->outputs[i] + 1;
        }
    }
    if (wanted <= runtime->value_capacity) {
        return true;
    }
    while (capacity < wanted) {
        capacity *= 2;
    }
    struct varve_storage **values = realloc(runtime->values, capacity * sizeof(*values));
    if (values == NULL) {
        return false;
    }
    memset(values + runtime->value_capacity, 0, (capacity - runtime->value_capacity) * sizeof(*values));
    runtime->values = values;
    runtime->value_capacity = capacity;
    return true;
}

static int runtime_drive_run(void *context, struct varve_remat_run *run, struct varve_message *message)
{
    struct varve_runtime *runtime = context;
    struct recipe *recipe = varve_remat_user(runtime->remat, run->op);
    struct varve_message reason = {.text = ""};
    if (!reserve_values(runtime, run)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a table of tensors");
    }
    switch (recipe->kind) {
    case RECIPE_CONSTANT:
        runtime->values[run->outputs[0]] = varve_storage_retain(recipe->constant);
        return VARVE_OK;
    case RECIPE_VIEW:
        return varve_storage_view(runtime->values[run->inputs[0]], &recipe->outputs[0].geometry,
                                  &runtime->values[run->outputs[0]], message);
    case RECIPE_OPERATOR:
        break;
    }
    int error = run_operator(runtime, recipe, run, &reason);
    if (error == VARVE_OK) {
        return VARVE_OK;
    }
    return strncmp(reason.text, "operator ", 9) == 0
               ? varve_message_set(message, error, "%s", reason.text)
               : varve_message_set(message, error, "operator %s: %s", recipe->call.name,
                                   reason.text[0] != '\0' ? reason.text : varve_strerror(error));
}

/* ---- memory ---- */

static void drop_value(void *context, uint32_t tensor)
{
    struct varve_runtime *runtime = context;
    if (tensor < runtime->value_capacity && runtime->values[tensor] != NULL) {
        varve_storage_release(runtime->values[tensor], NULL);
        runtime->values[tensor] = NULL;
    }
}

static void runtime_drive_evict(void *context, uint32_t storage)
{
    struct varve_runtime *runtime = context;
    for (uint32_t t = varve_remat_first_tensor(runtime->remat, storage); t != VARVE_REMAT_NONE;
         t = varve_remat_next_tensor(runtime->remat, t)) {
        drop_value(runtime, t);
    }
}

static void forget_op(void *context, void *user)
{
    struct varve_runtime *runtime = context;
    if (runtime->pending == user) {
        runtime->pending = NULL;
    }
    recipe_free(runtime, user);
}

static uint64_t runtime_drive_bytes_used(void *context)
{
    const struct varve_runtime *runtime = context;
    return (uint64_t)varve_alloc_memory_allocated(runtime->alloc);
}

static uint64_t runtime_drive_bytes_needed(void *context, uint32_t op)
{
    const struct varve_runtime *runtime = context;
    const struct recipe *recipe = varve_remat_user(runtime->remat, op);
    uint64_t bytes = varve_alloc_rounded_size(runtime->alloc, recipe->call.workspace_bytes, NULL);
    for (unsigned i = 0; recipe->kind == RECIPE_OPERATOR && i < recipe->call.output_count; i++) {
        bytes += recipe_output_bytes(runtime, recipe, i);
    }
    return bytes;
}

/* On other misses than those of the budget the allocator has ways of its own first. */
uint64_t drive_on_miss(void *context, const struct varve_alloc_miss *miss)
{
    struct varve_runtime *runtime = context;
    if (miss->excess == 0) {
        return 0;
    }
    if (runtime->is_in_function) {
        runtime->has_exceeded = true;
        return 0;
    }
    return varve_remat_make_room(runtime->remat, miss->excess);
}

/* The device has too little, or nowhere in one piece. What goes is no more workspace for the function
 * that is running. */
uint64_t drive_on_last_resort(void *context, const struct varve_alloc_miss *miss)
{
    struct varve_runtime *runtime = context;
    uint64_t before = (uint64_t)varve_alloc_memory_allocated(runtime->alloc);
    uint64_t freed = varve_remat_make_room(runtime->remat, miss->rounded);
    if (runtime->is_in_function) {
        runtime->function_limit -= before - (uint64_t)varve_alloc_memory_allocated(runtime->alloc);
        varve_alloc_set_allocated_limit(runtime->alloc, runtime->function_limit);
    }
    return freed;
}

static void runtime_drive_event(void *context, const struct varve_remat_event *event)
{
    struct varve_runtime *runtime = context;
    if (event->kind == VARVE_REMAT_EVENT_FAILED) {
        const struct recipe *recipe = varve_remat_user(runtime->remat, event->op);
        snprintf(runtime->failed, sizeof(runtime->failed), "%s", recipe->call.name);
    }
    emit_event(runtime, event);
}

void drive_init(struct varve_runtime *runtime, struct varve_remat_driver *driver_out)
{
    *driver_out = (struct varve_remat_driver){.context = runtime,
                                              .run = runtime_drive_run,
                                              .evict = runtime_drive_evict,
                                              .forget_view = drop_value,
                                              .forget_op = forget_op,
                                              .bytes_used = runtime_drive_bytes_used,
                                              .bytes_needed = runtime_drive_bytes_needed,
                                              .event = runtime_drive_event};
}
