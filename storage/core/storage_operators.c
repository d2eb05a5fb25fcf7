/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on storages: by the processor where it can address the operands, by kernels where their device has some,
 * and else by the processor on copies in host memory.
 */
#include "storage/core/storage_object.h"

#include "storage/cuda/gpu_operators.h"

#define OPERANDS (OPERANDS_MAX + 1)

/* The storages of an operation: `out`, then its inputs. */
struct call {
    const struct varve_storage *storages[OPERANDS];
    struct operation operation;
    uint64_t stream;
};

static const char *device_name(const struct varve_memory *memory)
{
    return memory->device != NULL ? memory->device->ops->name : "host";
}

static int check_memory(const struct call *call, struct varve_message *message)
{
    const struct varve_memory *memory = call->storages[0]->memory;
    for (unsigned i = 1; i <= call->operation.count; i++) {
        const struct varve_memory *other = call->storages[i]->memory;
        if (!memory_is_beside(memory, other)) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "%s: operands lie on different devices: '%s' %d and '%s' %d",
                                     varve_operator_name(call->operation.code), device_name(memory),
                                     memory->device != NULL ? memory->device->index : 0, device_name(other),
                                     other->device != NULL ? other->device->index : 0);
        }
    }
    return VARVE_OK;
}

/* ---- by way of host memory ---- */

struct host_copies {
    struct memory_piece pieces[OPERANDS];
    unsigned count;
};

/* `array` becomes a contiguous one in host memory, of the same shape and type. */
static int host_copy_open(struct host_copies *copies, struct varve_array *array, struct varve_message *message)
{
    int error =
        memory_array(varve_memory_host(), array, array->dtype, 0, array, &copies->pieces[copies->count], message);
    copies->count += error == VARVE_OK;
    return error;
}

static int host_copies_run(const struct call *call, struct host_copies *copies, struct varve_message *message)
{
    const struct copy_order order = {call->stream, false};
    struct varve_memory *host = varve_memory_host(), *memory = call->storages[0]->memory;
    struct operation operation = call->operation;
    int error = host_copy_open(copies, &operation.out, message);
    for (unsigned i = 0; i < operation.count && error == VARVE_OK; i++) {
        struct varve_array *input = &operation.inputs[i];
        error = host_copy_open(copies, input, message);
        VARVE_THEN(error, copy_elements(host, input, memory, &call->operation.inputs[i], order, message));
    }
    VARVE_THEN(error, operation_run(&operation, message));
    return error == VARVE_OK ? copy_elements(memory, &call->operation.out, host, &operation.out, order, message)
                             : error;
}

static int run_by_host(const struct call *call, struct varve_message *message)
{
    struct host_copies copies = {.count = 0};
    int error = host_copies_run(call, &copies, message);
    for (unsigned i = 0; i < copies.count; i++) {
        memory_free(varve_memory_host(), &copies.pieces[i]);
    }
    return error;
}

/* ---- where it runs ---- */

static int run_on_device(const struct call *call, struct varve_message *message)
{
    struct varve_memory *memory = call->storages[0]->memory;
    int error = operation_check(&call->operation, message);
    if (error != VARVE_OK || varve_geometry_count(&call->operation.out.geometry) == 0) {
        return error;
    }
    struct gpu *gpu = memory_gpu(memory);
    return gpu != NULL && gpu_operation_fits(&call->operation)
               ? gpu_operation(gpu, memory->alloc, &call->operation, call->stream, message)
               : run_by_host(call, message);
}

static int storage_operators_run(struct call *call, struct varve_message *message)
{
    int error = object_check_writable(call->storages[0], message);
    call->operation.out = call->storages[0]->array;
    for (unsigned i = 0; i < OPERANDS_MAX && call->storages[i + 1] != NULL; i++) {
        call->operation.inputs[i] = call->storages[i + 1]->array;
        call->operation.count = i + 1;
    }
    VARVE_THEN(error, check_memory(call, message));
    if (error != VARVE_OK) {
        return error;
    }
    for (unsigned i = 0; i <= call->operation.count; i++) {
        object_touch(call->storages[i]);
    }
    return call->storages[0]->memory->is_addressable ? operation_run(&call->operation, message)
                                                     : run_on_device(call, message);
}

/* ---- the functions of the list ---- */

#define CALL_BINARY .storages = {out, a, b}
#define CALL_UNARY .storages = {out, a}
#define CALL_REDUCTION .storages = {out, a}, .operation.axis = axis
#define CALL_SEQUENCE .storages = {out}, .operation.start = start, .operation.step = step
#define CALL_RANDOM \
    .storages = {out}, .operation.seed = seed, .operation.sequence = sequence, .operation.a = a, .operation.b = b

#define FUNCTION(NAME, name, KIND)                                                                                   \
    int varve_storage_op_##name(struct varve_storage *out, VARVE_STORAGE_OPERATOR_ARGUMENTS_##KIND, uint64_t stream, \
                                struct varve_message *message)                                                       \
    {                                                                                                                \
        struct call call = {CALL_##KIND, .operation.code = VARVE_OPERATOR_##NAME, .stream = stream};                 \
                                                                                                                     \
        return storage_operators_run(&call, message);                                                                \
    }

#define FUNCTION_BINARY(NAME, name) FUNCTION(NAME, name, BINARY)
#define FUNCTION_UNARY(NAME, name) FUNCTION(NAME, name, UNARY)
#define FUNCTION_REDUCTION(NAME, name) FUNCTION(NAME, name, REDUCTION)
#define FUNCTION_SEQUENCE(NAME, name) FUNCTION(NAME, name, SEQUENCE)
#define FUNCTION_RANDOM(NAME, name) FUNCTION(NAME, name, RANDOM)
#define FUNCTION_SETTER(NAME, name)                                                                                  \
    int varve_storage_op_##name(struct varve_storage *out, VARVE_STORAGE_OPERATOR_ARGUMENTS_SETTER, uint64_t stream, \
                                struct varve_message *message)                                                       \
    {                                                                                                                \
        return varve_storage_##name##_on(out, value, stream, message);                                               \
    }
#define FUNCTION_OF_LIST(code, NAME, name, KIND) FUNCTION_##KIND(NAME, name)
VARVE_OPERATOR_LIST(FUNCTION_OF_LIST)
