/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index plans on storages. Plans run in host memory: what lies elsewhere is copied there, as a whole, and back.
 */
#include "storage/core/emit.h"
#include "storage/core/object.h"

static int view_by_plan(struct varve_storage *storage, const struct varve_index_plan *plan,
                        struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_array view;
    int error = varve_index_plan_view(plan, &storage->array, &view, message);

    return error == VARVE_OK ? varve_storage_view(storage, &view.geometry, storage_out, message) : error;
}

/* In host memory, a contiguous copy if need be. */
static int host_of(const struct varve_storage *storage, struct varve_storage **host_out,
                   struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = varve_memory_host()};

    return varve_storage_clone(storage, &options, host_out, message);
}

static int gather_here(struct varve_storage *storage, const struct varve_index_plan *plan,
                       struct varve_storage **storage_out, struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = storage->memory};
    struct varve_storage *result;
    int error = varve_storage_empty(&options, storage->array.dtype, plan->result.ndim, plan->result.shape,
                                    &result, message);

    if (error != VARVE_OK) {
        return error;
    }
    object_touch(storage);
    error = varve_index_plan_run(plan, &result->array, &storage->array, message);
    if (error != VARVE_OK) {
        varve_storage_release(result, NULL);
        return error;
    }
    emit_copy(result, storage->memory, &storage->array, storage->id);
    *storage_out = result;
    return VARVE_OK;
}

static int gather_elsewhere(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                            struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_storage *host, *picked;
    int error = host_of(storage, &host, message);

    if (error != VARVE_OK) {
        return error;
    }
    error = varve_storage_index(host, indices, count, &picked, message);
    if (error == VARVE_OK) {
        error = varve_storage_to(picked, storage->memory, storage->array.dtype, storage_out, message);
        varve_storage_release(picked, NULL);
    }
    varve_storage_release(host, NULL);
    return error;
}

int varve_storage_index(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                        struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_index_plan *plan;
    int error = varve_index_plan_get(&storage->array, indices, count, &plan, message);

    if (error != VARVE_OK) {
        return error;
    }
    if (plan->kind == VARVE_PLAN_VIEW) {
        error = view_by_plan(storage, plan, storage_out, message);
    } else if (storage->memory->is_addressable) {
        error = gather_here(storage, plan, storage_out, message);
    } else {
        error = gather_elsewhere(storage, indices, count, storage_out, message);
    }
    varve_index_plan_free(plan);
    return object_created(error, storage_out, __builtin_return_address(0));
}

/* What is assigned: elements, or a number if `source` is NULL. */
struct value {
    const struct varve_storage *source;
    struct varve_scalar number;
};

static int plan_value(const struct varve_array *target, const struct varve_index *indices, unsigned count,
                      const struct value *value, struct varve_index_plan **plan_out,
                      struct varve_message *message)
{
    return value->source != NULL
               ? varve_index_plan_set(target, indices, count, &value->source->array, plan_out, message)
               : varve_index_plan_fill(target, indices, count, value->number, plan_out, message);
}

/* Both are in host memory. */
static int set_here(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                    const struct value *value, struct varve_message *message)
{
    struct varve_index_plan *plan;
    int error = plan_value(&storage->array, indices, count, value, &plan, message);

    if (error == VARVE_OK) {
        error = varve_index_plan_run(plan, &storage->array,
                                     value->source != NULL ? &value->source->array : NULL, message);
        varve_index_plan_free(plan);
    }
    return error;
}

static int set_elsewhere(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                         const struct value *value, struct varve_message *message)
{
    struct varve_storage *host, *source = NULL;
    int error = host_of(storage, &host, message);

    if (error != VARVE_OK) {
        return error;
    }
    if (value->source != NULL) {
        error = host_of(value->source, &source, message);
    }
    if (error == VARVE_OK) {
        error = set_here(host, indices, count, &(struct value){.source = source, .number = value->number},
                         message);
    }
    if (error == VARVE_OK) {
        error = varve_storage_copy(storage, host, message);
    }
    varve_storage_release(source, NULL);
    varve_storage_release(host, NULL);
    return error;
}

static int set(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
               const struct value *value, struct varve_message *message)
{
    const struct varve_storage *source = value->source;
    int error = object_check_writable(storage, message);

    if (error != VARVE_OK) {
        return error;
    }
    if (!storage->memory->is_addressable || (source != NULL && !source->memory->is_addressable)) {
        return set_elsewhere(storage, indices, count, value, message);
    }
    object_touch(storage);
    if (source != NULL) {
        object_touch(source);
    }
    error = set_here(storage, indices, count, value, message);
    if (error == VARVE_OK && source != NULL) {
        emit_copy(storage, source->memory, &source->array, source->id);
    }
    return error;
}

int varve_storage_index_set(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                            const struct varve_storage *value, struct varve_message *message)
{
    return set(storage, indices, count, &(struct value){.source = value}, message);
}

int varve_storage_index_fill(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                             struct varve_scalar value, struct varve_message *message)
{
    return set(storage, indices, count, &(struct value){.number = value}, message);
}
