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
#include "alloc/device/cuda/cuda.h"
#include "alloc/device/cuda/event.h"
#include "alloc/device/cuda/pool.h"
#include "alloc/device/cuda/share.h"
#include "alloc/device/cuda/vmm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_GRAIN ((uint64_t)2 << 20) /* how the driver obtains memory, also without virtual memory */

static bool is_gone(const struct cuda_device *cuda)
{
    return __atomic_load_n(&cuda->gone, __ATOMIC_ACQUIRE) != CUDA_RESULT_SUCCESS;
}

/* ---- calls ---- */

int cuda_failed(struct cuda_device *cuda, cuda_result result, const char *format, ...)
{
    char call[200], what[200];
    va_list arguments;

    if (result == CUDA_RESULT_SUCCESS) {
        return VARVE_OK;
    }
    va_start(arguments, format);
    vsnprintf(call, sizeof(call), format, arguments);
    va_end(arguments);
    cuda_driver_describe(cuda->driver, result, what, sizeof(what));
    varve_message_set(&cuda->resources.reason, VARVE_ERROR_IO, "%s: %s", call, what);
    if (result == CUDA_RESULT_DEINITIALIZED || result == CUDA_RESULT_CONTEXT_IS_DESTROYED) {
        __atomic_store_n(&cuda->gone, result, __ATOMIC_RELEASE);
    }
    return cuda_driver_error(result);
}

void cuda_unlock(struct cuda_device *cuda)
{
    pthread_mutex_unlock(&cuda->mutex);
}

void cuda_lock(struct cuda_device *cuda)
{
    pthread_mutex_lock(&cuda->mutex);
}

int cuda_enter(struct cuda_device *cuda, struct cuda_scope *scope)
{
    const struct cuda_driver *driver = cuda->driver;
    cuda_context current = NULL;
    cuda_result result;
    int error;

    *scope = (struct cuda_scope){.mode = CUDA_CAPTURE_MODE_RELAXED};
    if (cuda_is_inherited(cuda) || is_gone(cuda)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    result = driver->context_current(&current);
    if (result == CUDA_RESULT_SUCCESS && current != cuda->context) {
        result = driver->context_push(cuda->context);
        scope->has_pushed = result == CUDA_RESULT_SUCCESS;
    }
    if (result == CUDA_RESULT_SUCCESS) {
        result = driver->capture_mode_exchange(&scope->mode);
        if (result != CUDA_RESULT_SUCCESS && scope->has_pushed) {
            driver->context_pop(&current);
        }
    }
    cuda_lock(cuda);
    if (result == CUDA_RESULT_SUCCESS) {
        return VARVE_OK;
    }
    error = cuda_failed(cuda, result, "the context of CUDA device %d", cuda->ordinal);
    cuda_unlock(cuda);
    return error;
}

int cuda_leave(struct cuda_device *cuda, const struct cuda_scope *scope, int result)
{
    enum cuda_capture_mode mode = scope->mode;
    cuda_context popped;

    cuda_unlock(cuda);
    cuda->driver->capture_mode_exchange(&mode);
    if (scope->has_pushed) {
        cuda->driver->context_pop(&popped);
    }
    return result;
}

int cuda_enter_freed(const struct cuda_device *cuda, int error)
{
    return is_gone(cuda) && !cuda_is_inherited(cuda) ? VARVE_OK : error;
}

int cuda_leave_freed(struct cuda_device *cuda, const struct cuda_scope *scope, int result)
{
    return cuda_leave(cuda, scope, result < 0 && is_gone(cuda) ? VARVE_OK : result);
}

/* ---- segments ---- */

static int cuda_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream,
                              uint64_t *addr_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *range = NULL;
    struct cuda_scope scope;
    cuda_address addr = 0;
    cuda_result result;
    int error = cuda_enter(cuda, &scope);

    (void)stream;
    if (error != VARVE_OK) {
        return error;
    }
    error = resources_room(&cuda->resources, bytes);
    if (error == VARVE_OK) {
        range = resources_range_new(&cuda->resources, DEVICE_RANGE_SEGMENT, bytes);
        error = range ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    }
    if (error != VARVE_OK) {
        return cuda_leave(cuda, &scope, error);
    }
    cuda->resources.used += resources_footprint(&cuda->resources, bytes);
    cuda_unlock(cuda);
    result = cuda->driver->memory_alloc(&addr, bytes);
    cuda_lock(cuda);
    cuda->resources.used -= resources_footprint(&cuda->resources, bytes);
    error = cuda_failed(cuda, result, "cuMemAlloc of %llu bytes", (unsigned long long)bytes);
    if (error != VARVE_OK) {
        free(range);
        return cuda_leave(cuda, &scope, error);
    }
    error = resources_range_enter(&cuda->resources, range, addr);
    if (error != VARVE_OK) {
        cuda->driver->memory_free(addr);
        return cuda_leave(cuda, &scope, error);
    }
    *addr_out = addr;
    return cuda_leave(cuda, &scope, VARVE_OK);
}

/* The driver waits for the GPU here. The range leaves the table before its addresses can come again, and its
 * bytes leave them after the memory is back. */
static int segment_release(struct cuda_device *cuda, struct device_range *range)
{
    cuda_result result;

    device_ranges_remove(&cuda->resources.space, range);
    cuda_unlock(cuda);
    result = cuda->driver->memory_free(range->addr);
    cuda_lock(cuda);
    if (result != CUDA_RESULT_SUCCESS) {
        device_ranges_insert(&cuda->resources.space, range);
        return cuda_failed(cuda, result, "cuMemFree of %llu bytes at %#llx", (unsigned long long)range->bytes,
                           (unsigned long long)range->addr);
    }
    cuda->resources.used -= resources_footprint(&cuda->resources, range->bytes);
    cuda_export_withdraw(cuda, range->addr);
    free(range);
    return VARVE_OK;
}

static int cuda_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_range *range;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    error = resources_range_to_free(&cuda->resources, DEVICE_RANGE_SEGMENT, addr, bytes, &range);
    if (error == VARVE_OK) {
        error = segment_release(cuda, range);
    }
    return cuda_leave_freed(cuda, &scope, error);
}

/* Others use the device too, so what it has free may be less than what the limit leaves. */
static int cuda_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    struct cuda_device *cuda = cuda_of(device);
    size_t free_bytes = 0, total = 0;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    error = cuda_failed(cuda, cuda->driver->memory_info(&free_bytes, &total), "cuMemGetInfo");
    if (error == VARVE_OK) {
        uint64_t left = cuda->resources.capacity - cuda->resources.used;

        *free_out = cuda->has_limit && left < free_bytes ? left : free_bytes;
        *total_out = cuda->has_limit && cuda->resources.capacity < total ? cuda->resources.capacity : total;
    }
    return cuda_leave(cuda, &scope, error);
}

/* ---- opening and closing ---- */

int cuda_peer_ordinal(struct cuda_device *cuda, int peer, cuda_ordinal *ordinal_out)
{
    int count = 0, number = peer - cuda->device.index + cuda->ordinal;

    if (peer < 0 || peer > DEVICE_INDEX_MAX) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_INVALID, "%d is no device's index", peer);
    }
    if (cuda->driver->device_count(&count) != CUDA_RESULT_SUCCESS || number < 0 || number >= count ||
        cuda->driver->device_get(ordinal_out, number) != CUDA_RESULT_SUCCESS) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_NOT_FOUND,
                             "there is no device %d: it would be CUDA device %d of %d", peer, number, count);
    }
    return VARVE_OK;
}

/* Segments, what is out of the pool, and imports; a failure leaves the rest to the end of the context. */
static void space_close(struct cuda_device *cuda)
{
    const struct device_range *range = device_ranges_at_or_after(&cuda->resources.space, 0);

    for (; range; range = device_ranges_at_or_after(&cuda->resources.space, range->addr + 1)) {
        if (range->kind == DEVICE_RANGE_SEGMENT || range->kind == DEVICE_RANGE_POOLED) {
            cuda->driver->memory_free(range->addr);
        }
        for (uint64_t i = 0; range->kind == DEVICE_RANGE_IMPORT && i < range->value; i++) {
            cuda->driver->ipc_close(range->addr);
        }
    }
    cuda_pool_close(cuda);
}

static void cuda_close(struct varve_device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda_ordinal peer;
    struct cuda_scope scope;

    if (cuda_is_inherited(cuda)) {
        return; /* a thread may have been changing the table when the parent forked */
    }
    if (cuda_enter(cuda, &scope) == VARVE_OK) {
        cuda_vmm_close(cuda);
        space_close(cuda);
        for (uint32_t i = 0; i < cuda->event_capacity; i++) {
            if (cuda->events[i]) {
                cuda->driver->event_destroy(cuda->events[i]);
            }
        }
        for (int i = 0; i <= DEVICE_INDEX_MAX; i++) {
            if (cuda->has_peer[i] && cuda_peer_ordinal(cuda, i, &peer) == VARVE_OK) {
                cuda->driver->primary_release(peer);
            }
        }
        cuda_leave(cuda, &scope, VARVE_OK);
    }
    if (cuda->gone != CUDA_RESULT_DEINITIALIZED) {
        cuda->driver->primary_release(cuda->ordinal);
    }
    resources_close(&cuda->resources);
    free(cuda->events);
    free(cuda->exports);
    pthread_mutex_destroy(&cuda->mutex);
    free(cuda);
}

static void get_reason(const struct varve_device *device, struct varve_message *message_out)
{
    struct cuda_device *cuda = cuda_of(device);

    message_out->text[0] = '\0';
    if (!cuda_is_inherited(cuda)) {
        cuda_lock(cuda);
        *message_out = cuda->resources.reason;
        cuda_unlock(cuda);
    }
}

static const struct varve_device_ops cuda_ops = {
    .name = "cuda",
    .segment_alloc = cuda_segment_alloc,
    .segment_free = cuda_segment_free,
    .vmm_granularity = CUDA_GRAIN,
    .vmm_reserve = cuda_vmm_reserve,
    .vmm_create = cuda_vmm_create,
    .vmm_map = cuda_vmm_map,
    .vmm_set_access = cuda_vmm_set_access,
    .vmm_unmap = cuda_vmm_unmap,
    .vmm_release = cuda_vmm_release,
    .vmm_address_free = cuda_vmm_address_free,
    .stream_synchronize = cuda_stream_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_synchronize = cuda_event_synchronize,
    .alloc_async = cuda_alloc_async,
    .free_async = cuda_free_async,
    .stream_wait_event = cuda_stream_wait_event,
    .join_stream = cuda_join_stream,
    .pool_trim = cuda_pool_trim,
    .memory_info = cuda_memory_info,
    .peer_enable = cuda_peer_enable,
    .ipc_export = cuda_ipc_export,
    .ipc_open = cuda_ipc_open,
    .ipc_close = cuda_ipc_close,
    .reason = get_reason,
    .close = cuda_close,
};

/* Without virtual memory in pieces that expandable segments can use, the device has none. */
static void look_for_parts(struct cuda_device *cuda)
{
    uint64_t granularity = cuda_vmm_granularity(cuda);

    if (granularity == 0 || CUDA_GRAIN % granularity != 0) {
        cuda->ops.vmm_reserve = NULL;
    }
    if (!cuda_has_pools(cuda)) {
        cuda->ops.alloc_async = NULL;
    }
}

/* The device of that number, its context, and what the GPU can do. Errors are described in `message`. */
static int device_find(struct cuda_device *cuda, const struct varve_cuda_options *options,
                       struct varve_message *message)
{
    const struct cuda_driver *driver = cuda->driver;
    cuda_result result;
    int count = 0, shares = 0;

    result = driver->device_count(&count);
    if (result == CUDA_RESULT_SUCCESS && count == 0) {
        result = CUDA_RESULT_NO_DEVICE;
    }
    if (result == CUDA_RESULT_SUCCESS && (options->ordinal < 0 || options->ordinal >= count)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "cuda: there is no CUDA device %d; this process sees %d, from 0 on",
                                 options->ordinal, count);
    }
    if (result == CUDA_RESULT_SUCCESS) {
        result = driver->device_get(&cuda->ordinal, options->ordinal);
    }
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
    int error;

    if (!cuda || cuda_forks_watch() != VARVE_OK) {
        free(cuda);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "cuda: no memory for a device");
    }
    cuda->driver = driver;
    cuda->ops = cuda_ops;
    cuda->device = (struct varve_device){&cuda->ops, options->index};
    cuda->forks = cuda_forks();
    cuda->has_limit = options->limit_bytes != 0;
    error = device_find(cuda, options, message);
    if (error != VARVE_OK) {
        free(cuda);
        return error;
    }
    resources_init(&cuda->resources, cuda->has_limit ? options->limit_bytes : UINT64_MAX / 2, CUDA_GRAIN, 0,
                   CUDA_GRAIN);
    pthread_mutex_init(&cuda->mutex, NULL);
    *device_out = &cuda->device;
    return VARVE_OK;
}

int varve_cuda_open(const struct varve_cuda_options *options, struct varve_device **device_out,
                    struct varve_message *message)
{
    const struct cuda_driver *driver;
    int error;

    if (options->index < 0 || options->index > DEVICE_INDEX_MAX || options->ordinal < 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "cuda: index %d or CUDA device %d is no number of a device; indices go "
                                 "from 0 to %d",
                                 options->index, options->ordinal, DEVICE_INDEX_MAX);
    }
    error = cuda_driver_load(&driver, message);
    return error != VARVE_OK ? error : cuda_device_open(driver, options, device_out, message);
}

void varve_cuda_identify(int ordinal, unsigned char uuid_out[16], char *name_out, size_t name_bytes)
{
    const struct cuda_driver *driver;
    cuda_ordinal device = 0;

    memset(uuid_out, 0, 16);
    name_out[0] = '\0';
    if (cuda_driver_load(&driver, NULL) == VARVE_OK &&
        driver->device_get(&device, ordinal) == CUDA_RESULT_SUCCESS) {
        cuda_driver_identify(device, uuid_out, name_out, name_bytes);
    }
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
    int error;

    if (cuda_is_inherited(cuda)) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    cuda_lock(cuda);
    error = resources_check(&cuda->resources, message);
    for (uint32_t i = 0; error == VARVE_OK && i < cuda->resources.events.count; i++) {
        if (cuda->resources.events.slots[i].is_live && (i >= cuda->event_capacity || !cuda->events[i])) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "the event of slot %u is none", i);
        }
    }
    cuda_unlock(cuda);
    return error;
}
