/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device: memory of an NVIDIA GPU by the CUDA driver. It shares the GPU's primary context with the
 * run-time API, so that PyTorch and others can use its memory, and leaves no trace in the threads that call:
 * their current context and their mode of stream capture are put back after every operation. During a
 * capture the operations are as harmless as PyTorch's own: the calling thread is in relaxed mode meanwhile,
 * in which allocating does not break a capture of its own or of others.
 *
 * At exit the driver shuts down before the last frees come, and a program may reset the device; from then on
 * everything that was here is gone, freeing it is no error, and nothing is called any more. A fork child has
 * nothing but a copy of the resource table: nothing is called there from the start.
 */
#include "alloc/device/cuda_device.h"
#include "alloc/device/device_operations.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_GRAIN ((uint64_t)2 << 20) /* how the driver obtains memory, also without virtual memory */

static bool cuda_device_is_gone(const struct cuda_device *cuda)
{
    return __atomic_load_n(&cuda->gone, __ATOMIC_ACQUIRE) != CUDA_RESULT_SUCCESS;
}

/* ---- calls ---- */

int cuda_failed(struct cuda_device *cuda, cuda_result result, const char *format, ...)
{
    if (result == CUDA_RESULT_SUCCESS) {
        return VARVE_OK;
    }
    va_list arguments;
    va_start(arguments, format);
    char call[200];
    vsnprintf(call, sizeof(call), format, arguments);
    va_end(arguments);
    char what[200];
    cuda_driver_describe(cuda->driver, result, what, sizeof(what));
    varve_message_set(&cuda->table.resources.reason, VARVE_ERROR_IO, "%s: %s", call, what);
    if (result == CUDA_RESULT_DEINITIALIZED || result == CUDA_RESULT_CONTEXT_IS_DESTROYED) {
        __atomic_store_n(&cuda->gone, result, __ATOMIC_RELEASE);
    }
    return cuda_driver_error(result);
}

void cuda_unlock(struct cuda_device *cuda)
{
    pthread_mutex_unlock(&cuda->table.mutex);
}

void cuda_lock(struct cuda_device *cuda)
{
    pthread_mutex_lock(&cuda->table.mutex);
}

/* The device's context becomes the thread's, and captures of the thread allow what follows. */
static int context_enter(struct cuda_device *cuda, struct device_call *call)
{
    const struct cuda_driver *driver = cuda->driver;
    cuda_context current = NULL;
    cuda_result result = driver->context_current(&current);
    if (result == CUDA_RESULT_SUCCESS && current != cuda->context) {
        result = driver->context_push(cuda->context);
        call->scope.has_pushed = result == CUDA_RESULT_SUCCESS;
    }
    enum cuda_capture_mode mode = CUDA_CAPTURE_MODE_RELAXED;
    if (result == CUDA_RESULT_SUCCESS) {
        result = driver->capture_mode_exchange(&mode);
        if (result != CUDA_RESULT_SUCCESS && call->scope.has_pushed) {
            driver->context_pop(&current);
        }
    }
    call->scope.mode = (int)mode;
    cuda_lock(cuda);
    int error = cuda_failed(cuda, result, "the context of CUDA device %d", cuda->ordinal);
    if (error != VARVE_OK) {
        cuda_unlock(cuda);
    }
    return error;
}

static bool cuda_device_is_inherited(const struct device_table *table)
{
    return cuda_is_inherited(cuda_of_table(table));
}

/* Errors: VARVE_ERROR_UNSUPPORTED (fork child; the driver has ended). */
static bool cuda_device_enter(struct device_table *table, struct device_call *call, int *result_out)
{
    struct cuda_device *cuda = cuda_of_table(table);
    *result_out = cuda_device_is_inherited(table) || cuda_device_is_gone(cuda) ? VARVE_ERROR_UNSUPPORTED
                                                                               : context_enter(cuda, call);
    if (*result_out == VARVE_OK) {
        return true;
    }
    if (call->gives_back && cuda_device_is_gone(cuda) && !cuda_device_is_inherited(table)) {
        *result_out = VARVE_OK;
    }
    return false;
}

static int cuda_device_leave(struct device_table *table, struct device_call *call, int result)
{
    struct cuda_device *cuda = cuda_of_table(table);
    enum cuda_capture_mode mode = (enum cuda_capture_mode)call->scope.mode;
    cuda_unlock(cuda);
    cuda->driver->capture_mode_exchange(&mode);
    cuda_context popped;
    if (call->scope.has_pushed) {
        cuda->driver->context_pop(&popped);
    }
    return call->gives_back && result < 0 && cuda_device_is_gone(cuda) ? VARVE_OK : result;
}

/* Others use the device too, so what it has free may be less than what the limit leaves. */
static int cuda_device_memory_info(struct device_table *table, struct device_call *call)
{
    struct cuda_device *cuda = cuda_of_table(table);
    uint64_t capacity = table->resources.capacity, left = capacity - table->resources.used;
    uint64_t *free_and_total = call->out;
    size_t free_bytes = 0, total = 0;
    int error = cuda_failed(cuda, cuda->driver->memory_info(&free_bytes, &total), "cuMemGetInfo");
    free_and_total[0] = cuda->has_limit && left < free_bytes ? left : free_bytes;
    free_and_total[1] = cuda->has_limit && capacity < total ? capacity : total;
    return error;
}

static int cuda_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    uint64_t free_and_total[2] = {0};
    int error = device_run(device, (struct device_call){.out = free_and_total}, cuda_device_memory_info);
    if (error == VARVE_OK) {
        *free_out = free_and_total[0];
        *total_out = free_and_total[1];
    }
    return error;
}

/* ---- opening and closing ---- */

int cuda_peer_ordinal(struct cuda_device *cuda, int peer, cuda_ordinal *ordinal_out)
{
    int number = peer - cuda->table.device.index + cuda->ordinal;
    int error = device_index_check(&cuda->table, peer);
    if (error != VARVE_OK) {
        return error;
    }
    int count = 0;
    if (cuda->driver->device_count(&count) != CUDA_RESULT_SUCCESS || number < 0 || number >= count ||
        cuda->driver->device_get(ordinal_out, number) != CUDA_RESULT_SUCCESS) {
        return DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_NOT_FOUND,
                             "there is no device %d: it would be CUDA device %d of %d", peer, number, count);
    }
    return VARVE_OK;
}

static void cuda_close(struct varve_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_call call = {.gives_back = true};
    if (cuda_is_inherited(cuda)) {
        return; /* a thread may have been changing the table when the parent forked */
    }
    cuda_ordinal peer;
    int result;
    if (cuda_device_enter(&cuda->table, &call, &result)) {
        cuda_programs_close(cuda);
        cuda_transfers_close(cuda);
        cuda_memory_close(cuda);
        for (size_t i = 0; i < cuda->event_capacity; i++) {
            if (cuda->events[i]) {
                cuda->driver->event_destroy(cuda->events[i]);
            }
        }
        for (int i = 0; i <= DEVICE_INDEX_MAX; i++) {
            if (cuda->has_peer[i] && cuda_peer_ordinal(cuda, i, &peer) == VARVE_OK) {
                cuda->driver->primary_release(peer);
            }
        }
        cuda_device_leave(&cuda->table, &call, VARVE_OK);
    }
    if (cuda->gone != CUDA_RESULT_DEINITIALIZED) {
        cuda->driver->primary_release(cuda->ordinal);
    }
    resources_close(&cuda->table.resources);
    free(cuda->events);
    free(cuda->exports);
    free(cuda->programs);
    pthread_mutex_destroy(&cuda->table.mutex);
    free(cuda);
}

static const struct varve_device_ops cuda_ops = {
    .name = "cuda",
    DEVICE_OPERATIONS,
    DEVICE_TRANSFERS,
    .vmm_granularity = CUDA_GRAIN,
    .alloc_async = device_alloc_async,
    .free_async = device_free_async,
    .stream_wait_event = device_stream_wait_event,
    .join_stream = cuda_join_stream,
    .pool_trim = cuda_pool_trim,
    .program_load = cuda_program_load,
    .program_unload = cuda_program_unload,
    .program_find = cuda_program_find,
    .launch = cuda_launch,
    .memory_info = cuda_memory_info,
    .peer_enable = cuda_peer_enable,
    .ipc_export = cuda_ipc_export,
    .ipc_open = cuda_ipc_open,
    .ipc_close = cuda_ipc_close,
    .vmm_export = cuda_vmm_export,
    .vmm_import = cuda_vmm_import,
    .synchronize = cuda_synchronize,
    .close = cuda_close,
};

static const struct device_hooks cuda_hooks = {
    .enter = cuda_device_enter,
    .leave = cuda_device_leave,
    .obtain = cuda_obtain,
    .is_inherited = cuda_device_is_inherited,
    .give_back = cuda_give_back,
    .memory_create = cuda_memory_create,
    .memory_release = cuda_memory_release,
    .map = cuda_map,
    .set_access = cuda_set_access,
    .unmap = cuda_unmap,
    .stream_wait = cuda_stream_wait,
    .event_make = cuda_event_make,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .stream_wait_event = cuda_stream_wait_event,
    .stream_make = cuda_stream_make,
    .stream_end = cuda_stream_end,
    .foreign_check = cuda_foreign_check,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
};

/* Without virtual memory in pieces that expandable segments can use, the device has none. */
static void look_for_parts(struct cuda_device *cuda)
{
    uint64_t granularity = cuda_vmm_granularity(cuda);
    if (granularity == 0 || CUDA_GRAIN % granularity != 0) {
        cuda->ops.vmm_reserve = NULL;
    }
    if (!cuda->shares || cuda->ops.vmm_reserve == NULL) {
        cuda->ops.vmm_export = NULL;
        cuda->ops.vmm_import = NULL;
        cuda->ops.synchronize = NULL;
    }
    if (!cuda_has_pools(cuda)) {
        cuda->ops.alloc_async = NULL;
    }
    if (!cuda_has_transfers(cuda->driver)) {
        cuda->ops.stream_create = NULL;
        cuda->ops.stream_destroy = NULL;
        cuda->ops.copy = NULL;
        cuda->ops.copy_2d = NULL;
        cuda->ops.fill = NULL;
        cuda->ops.host_alloc = NULL;
        cuda->ops.host_free = NULL;
    }
    if (!cuda_has_programs(cuda->driver)) {
        cuda->ops.program_load = NULL;
        cuda->ops.program_unload = NULL;
        cuda->ops.program_find = NULL;
        cuda->ops.launch = NULL;
    }
}

/* The device of that number, its context, and what the GPU can do. Errors are described in `message`. */
static int device_find(struct cuda_device *cuda, const struct varve_cuda_options *options,
                       struct varve_message *message)
{
    const struct cuda_driver *driver = cuda->driver;
    int count = 0;

    cuda_result result = driver->device_count(&count);
    if (result == CUDA_RESULT_SUCCESS && count == 0) {
        result = CUDA_RESULT_NO_DEVICE;
    }
    if (result == CUDA_RESULT_SUCCESS && (options->ordinal < 0 || options->ordinal >= count)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "cuda: there is no CUDA device %d; this process sees %d, from 0 on", options->ordinal,
                                 count);
    }
    VARVE_THEN(result, driver->device_get(&cuda->ordinal, options->ordinal));
    int shares = 0;
    if (result == CUDA_RESULT_SUCCESS && options->shares) {
        result = driver->device_attribute(&shares, CUDA_ATTRIBUTE_SHARES_BY_FD, cuda->ordinal);
        cuda->shares = shares != 0;
    }
    if (result == CUDA_RESULT_SUCCESS) {
        look_for_parts(cuda);
        result = driver->primary_retain(&cuda->context, cuda->ordinal);
    }
    if (result != CUDA_RESULT_SUCCESS) {
        char text[200];
        cuda_driver_describe(driver, result, text, sizeof(text));
        return varve_message_set(message, cuda_driver_error(result), "cuda: CUDA device %d can't be used: %s",
                                 options->ordinal, text);
    }
    return VARVE_OK;
}

int cuda_device_open(const struct cuda_driver *driver, const struct varve_cuda_options *options,
                     struct varve_device **device_out, struct varve_message *message)
{
    struct cuda_device *cuda = calloc(1, sizeof(*cuda));
    if (!cuda || fork_count_begin() != VARVE_OK) {
        free(cuda);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "cuda: no memory for a device");
    }
    cuda->driver = driver;
    cuda->ops = cuda_ops;
    cuda->table.device = (struct varve_device){&cuda->ops, options->index};
    cuda->table.hooks = &cuda_hooks;
    cuda->forks = fork_count();
    cuda->has_limit = options->limit_bytes != 0;
    int error = device_find(cuda, options, message);
    if (error != VARVE_OK) {
        free(cuda);
        return error;
    }
    resources_init(&cuda->table.resources, cuda->has_limit ? options->limit_bytes : UINT64_MAX / 2, CUDA_GRAIN, 0,
                   CUDA_GRAIN);
    pthread_mutex_init(&cuda->table.mutex, NULL);
    *device_out = &cuda->table.device;
    return VARVE_OK;
}

int varve_cuda_open(const struct varve_cuda_options *options, struct varve_device **device_out,
                    struct varve_message *message)
{
    if (options->index < 0 || options->index > DEVICE_INDEX_MAX || options->ordinal < 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "cuda: index %d or CUDA device %d is no number of a device; indices go "
                                 "from 0 to %d",
                                 options->index, options->ordinal, DEVICE_INDEX_MAX);
    }
    const struct cuda_driver *driver;
    int error = cuda_driver_load(&driver, message);
    return error != VARVE_OK ? error : cuda_device_open(driver, options, device_out, message);
}

void varve_cuda_identify(int ordinal, unsigned char uuid_out[16], char *name_out, size_t name_bytes)
{
    memset(uuid_out, 0, 16);
    name_out[0] = '\0';
    const struct cuda_driver *driver;
    cuda_ordinal device = 0;
    if (cuda_driver_load(&driver, NULL) == VARVE_OK && driver->device_get(&device, ordinal) == CUDA_RESULT_SUCCESS) {
        cuda_driver_identify(device, uuid_out, name_out, name_bytes);
    }
}

int varve_cuda_ordinal(const struct varve_device *device)
{
    return cuda_of(device)->ordinal;
}

bool varve_cuda_is_current(const struct varve_device *device)
{
    const struct cuda_device *cuda = cuda_of(device);
    cuda_context current = NULL;
    return cuda->driver->context_current(&current) == CUDA_RESULT_SUCCESS && current == cuda->context;
}

int varve_cuda_push(const struct varve_device *device)
{
    const struct cuda_device *cuda = cuda_of(device);
    return (int)cuda->driver->context_push(cuda->context);
}

void varve_cuda_pop(const struct varve_device *device)
{
    cuda_context popped;
    cuda_of(device)->driver->context_pop(&popped);
}

int varve_cuda_check(const struct varve_device *device, struct varve_message *message)
{
    struct cuda_device *cuda = cuda_of(device);
    if (cuda_is_inherited(cuda)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    cuda_lock(cuda);
    int error = resources_check(&cuda->table.resources, message);
    for (uint32_t i = 0; error == VARVE_OK && i < cuda->table.resources.events.count; i++) {
        if (cuda->table.resources.events.slots[i].is_live && (i >= cuda->event_capacity || !cuda->events[i])) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "the event of slot %u is none", i);
        }
    }
    cuda_unlock(cuda);
    return error;
}
