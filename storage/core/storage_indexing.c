/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index plans on storages, in host memory and on a device that has kernels. On other devices what is indexed is copied
 * to host memory, as a whole, and back.
 */
#include "storage/core/storage_object.h"
#include "storage/cuda/gpu_index.h"

#include <inttypes.h>
#include <stdlib.h>

static int view_by_plan(struct varve_storage *storage, const struct varve_index_plan *plan,
                        struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_array view;
    int error = varve_index_plan_view(plan, &storage->array, &view, message);
    return error == VARVE_OK ? varve_storage_view(storage, &view.geometry, storage_out, message) : error;
}

/* ---- plans in a memory ---- */

struct varve_storage_plan {
    const struct varve_index_plan *plan;
    struct varve_memory *memory;
    struct gpu *gpu;          /* NULL: the processor runs it */
    struct memory_piece kept; /* what the plan keeps of indices, on the device */
    uint64_t positions;       /* of struct gpu_kept */
};

/* One run on a device. */
struct device_run {
    struct index_runner runner; /* the first member */
    struct varve_storage_plan *plan;
    uint64_t stream;
    struct memory_piece aside;
};

static struct device_run *run_of(const struct index_runner *runner)
{
    return (struct device_run *)(uintptr_t)runner;
}

/* A run sets one array aside at most. */
static int device_allocate(const struct index_runner *runner, uint64_t bytes, void **data_out,
                           struct varve_message *message)
{
    struct device_run *run = run_of(runner);
    int error = memory_allocate(run->plan->memory, bytes > 0 ? bytes : 1, 0, run->stream, &run->aside, message);
    *data_out = error == VARVE_OK ? run->aside.data : NULL;
    return error;
}

static void device_release(const struct index_runner *runner, void *data)
{
    (void)data;
    memory_free(run_of(runner)->plan->memory, &run_of(runner)->aside);
}

static int storage_indexing_device_copy(const struct index_runner *runner, const struct varve_array *target,
                                        const struct varve_array *source, struct varve_message *message)
{
    const struct device_run *run = run_of(runner);
    return copy_elements(run->plan->memory, target, run->plan->memory, source, (struct copy_order){run->stream, true},
                         message);
}

static int storage_indexing_device_fill(const struct index_runner *runner, const struct varve_array *target,
                                        struct varve_scalar value, struct varve_message *message)
{
    const struct device_run *run = run_of(runner);
    return fill_elements(run->plan->memory, target, value, (struct copy_order){run->stream, true}, message);
}

static int device_move(const struct index_runner *runner, const struct index_plan *plan,
                       const struct varve_array *packed, void *indexed_data, int64_t indexed_offset,
                       struct varve_message *message)
{
    const struct device_run *run = run_of(runner);
    const struct gpu_kept kept = {(uint64_t)(uintptr_t)run->plan->kept.data, run->plan->positions};
    return gpu_index_run(run->plan->gpu, plan, &kept, packed, indexed_data, indexed_offset, run->stream, message);
}

static int kept_send(struct varve_storage_plan *plan, struct varve_message *message)
{
    uint64_t bytes = gpu_index_bytes(plan->plan);
    void *host = malloc(bytes + 1);
    if (host == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRIu64 " bytes of indices", bytes);
    }
    int error = gpu_index_write(plan->plan, host, &plan->positions, message);
    VARVE_THEN(error, memory_allocate(plan->memory, bytes, 0, 0, &plan->kept, message));
    if (error == VARVE_OK && bytes > 0) {
        error = transfer_bytes(plan->memory, (uint64_t)(uintptr_t)plan->kept.data, host, bytes, false, 0, message);
        if (error != VARVE_OK) {
            memory_free(plan->memory, &plan->kept);
        }
    }
    free(host);
    return error;
}

static bool has_indices(const struct varve_index_plan *plan)
{
    return plan->kind == VARVE_PLAN_GATHER || plan->kind == VARVE_PLAN_SCATTER;
}

int varve_storage_plan_open(struct varve_memory *memory, const struct varve_index_plan *plan,
                            struct varve_storage_plan **plan_out, struct varve_message *message)
{
    struct varve_storage_plan *opened = calloc(1, sizeof(*opened));
    if (opened == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a plan");
        return VARVE_ERROR_NO_MEMORY;
    }
    opened->plan = plan;
    opened->memory = memory;
    int error = VARVE_OK;
    if (!memory->is_addressable) {
        opened->gpu = memory_gpu(memory);
        error = opened->gpu == NULL ? varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                                        "nothing runs plans in the memory of device '%s' here",
                                                        memory->device->ops->name)
                : has_indices(plan) ? kept_send(opened, message)
                                    : VARVE_OK;
    }
    if (error != VARVE_OK) {
        free(opened);
        return error;
    }
    *plan_out = opened;
    return VARVE_OK;
}

void varve_storage_plan_close(struct varve_storage_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    if (plan->gpu != NULL && has_indices(plan->plan)) {
        memory_free(plan->memory, &plan->kept);
    }
    free(plan);
}

static int run_by_device(struct varve_storage_plan *plan, const struct varve_array *target,
                         const struct varve_array *source, uint64_t stream, struct varve_message *message)
{
    struct device_run run = {
        .runner = {.allocate = device_allocate,
                   .release = device_release,
                   .copy = storage_indexing_device_copy,
                   .fill = storage_indexing_device_fill,
                   .move = device_move},
        .plan = plan,
        .stream = stream,
    };
    int error = VARVE_OK;
    if (stream != 0 && plan->kept.data != NULL) { /* it goes back behind this run */
        error = varve_alloc_record_stream(plan->memory->alloc, varve_allocation_addr(plan->kept.allocation), stream,
                                          message);
    }
    return error == VARVE_OK ? index_plan_run(&run.runner, plan->plan, target, source, message) : error;
}

int varve_storage_plan_run(struct varve_storage_plan *plan, struct varve_storage *target,
                           const struct varve_storage *source, uint64_t stream, struct varve_message *message)
{
    VARVE_TRY(object_check_writable(target, message));
    if (!memory_is_beside(target->memory, plan->memory) ||
        (source != NULL && !memory_is_beside(source->memory, plan->memory))) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the plan was opened for another memory");
    }
    object_touch(target);
    if (source != NULL) {
        object_touch(source);
    }
    int error = plan->gpu != NULL
                    ? run_by_device(plan, &target->array, source != NULL ? &source->array : NULL, stream, message)
                    : varve_index_plan_run(plan->plan, &target->array, source != NULL ? &source->array : NULL, message);
    if (error == VARVE_OK && source != NULL) {
        emit_copy(target, source->memory, &source->array, source->id);
    }
    return error;
}

/* Once, to its end. */
static int run_once(const struct varve_index_plan *plan, struct varve_storage *target,
                    const struct varve_storage *source, struct varve_message *message)
{
    struct varve_storage_plan *opened;
    VARVE_TRY(varve_storage_plan_open(target->memory, plan, &opened, message));
    int error = varve_storage_plan_run(opened, target, source, 0, message);
    if (error == VARVE_OK && opened->gpu != NULL) {
        error = memory_wait(target->memory, 0, message);
    }
    varve_storage_plan_close(opened);
    return error;
}

/* ---- by way of host memory ---- */

/* In host memory, a contiguous copy if need be. */
static int storage_indexing_host_of(const struct varve_storage *storage, struct varve_storage **host_out,
                                    struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = varve_memory_host()};
    return varve_storage_clone(storage, &options, host_out, message);
}

static int gather_elsewhere(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                            struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_storage *host;
    VARVE_TRY(storage_indexing_host_of(storage, &host, message));
    struct varve_storage *picked;
    int error = varve_storage_index(host, indices, count, &picked, message);
    if (error == VARVE_OK) {
        error = varve_storage_to(picked, storage->memory, storage->array.dtype, storage_out, message);
        varve_storage_release(picked, NULL);
    }
    varve_storage_release(host, NULL);
    return error;
}

/* ---- storage[indices] ---- */

static bool has_plans(struct varve_memory *memory)
{
    return memory->is_addressable || memory_gpu(memory) != NULL;
}

static int gather_here(struct varve_storage *storage, const struct varve_index_plan *plan,
                       struct varve_storage **storage_out, struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = storage->memory};
    struct varve_storage *result;
    VARVE_TRY(
        varve_storage_empty(&options, storage->array.dtype, plan->result.ndim, plan->result.shape, &result, message));
    int error = run_once(plan, result, storage, message);
    if (error != VARVE_OK) {
        varve_storage_release(result, NULL);
        return error;
    }
    *storage_out = result;
    return VARVE_OK;
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
    } else if (has_plans(storage->memory)) {
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
                      const struct value *value, struct varve_index_plan **plan_out, struct varve_message *message)
{
    return value->source != NULL
               ? varve_index_plan_set(target, indices, count, &value->source->array, plan_out, message)
               : varve_index_plan_fill(target, indices, count, value->number, plan_out, message);
}

static int set_by_plan(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                       const struct value *value, struct varve_message *message)
{
    struct varve_index_plan *plan;
    int error = plan_value(&storage->array, indices, count, value, &plan, message);
    if (error == VARVE_OK) {
        error = run_once(plan, storage, value->source, message);
        varve_index_plan_free(plan);
    }
    return error;
}

/* The value comes to where it is put. */
static int set_here(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                    const struct value *value, struct varve_message *message)
{
    const struct varve_storage *source = value->source;
    struct value moved = *value;
    if (source == NULL || memory_is_beside(source->memory, storage->memory)) {
        return set_by_plan(storage, indices, count, value, message);
    }
    struct varve_storage *brought;
    int error =
        varve_storage_clone(source, &(struct varve_storage_options){.memory = storage->memory}, &brought, message);
    if (error == VARVE_OK) {
        moved.source = brought;
        error = set_by_plan(storage, indices, count, &moved, message);
        varve_storage_release(brought, NULL);
    }
    return error;
}

static int set_elsewhere(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                         const struct value *value, struct varve_message *message)
{
    struct varve_storage *host;
    int error = storage_indexing_host_of(storage, &host, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_storage *source = NULL;
    if (value->source != NULL) {
        error = storage_indexing_host_of(value->source, &source, message);
    }
    if (error == VARVE_OK) {
        error = set_by_plan(host, indices, count, &(struct value){.source = source, .number = value->number}, message);
    }
    VARVE_THEN(error, varve_storage_copy(storage, host, message));
    varve_storage_release(source, NULL);
    varve_storage_release(host, NULL);
    return error;
}

static int storage_indexing_set(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                                const struct value *value, struct varve_message *message)
{
    const struct varve_storage *source = value->source;
    VARVE_TRY(object_check_writable(storage, message));
    object_touch(storage);
    if (source != NULL) {
        object_touch(source);
    }
    return has_plans(storage->memory) ? set_here(storage, indices, count, value, message)
                                      : set_elsewhere(storage, indices, count, value, message);
}

int varve_storage_index_set(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                            const struct varve_storage *value, struct varve_message *message)
{
    return storage_indexing_set(storage, indices, count, &(struct value){.source = value}, message);
}

int varve_storage_index_fill(struct varve_storage *storage, const struct varve_index *indices, unsigned count,
                             struct varve_scalar value, struct varve_message *message)
{
    return storage_indexing_set(storage, indices, count, &(struct value){.number = value}, message);
}
