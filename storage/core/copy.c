/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between storages. What the processor can address is copied by varve_array_copy. To, from and within a device's own memory
 * its copies do what needs no look at elements; everything else goes through host memory: the bytes that the elements span come
 * over, are worked on, and go back.
 */
#include "storage/core/copy.h"
#include "storage/core/emit.h"
#include "storage/core/object.h"

#include <stdlib.h>

/* ---- the device's own copies ---- */

static int device_error(const struct varve_device *device, int error, struct varve_message *message)
{
    return memory_device_error(device, error, "the device failed to copy", message);
}

static int device_wait(struct varve_device *device, uint64_t stream, struct varve_message *message)
{
    int error = device->ops->stream_synchronize(device, stream);

    return error == VARVE_OK ? VARVE_OK : device_error(device, error, message);
}

/* The device that copies between the two memories, and how; NULL: none can. */
static struct varve_device *copier_of(const struct varve_memory *target, const struct varve_memory *source,
                                      enum varve_copy_direction *direction_out)
{
    struct varve_device *device = target->is_addressable ? source->device : target->device;

    if (device->ops->copy == NULL) {
        return NULL;
    }
    if (target->is_addressable) {
        *direction_out = VARVE_COPY_DEVICE_TO_HOST;
    } else if (source->is_addressable) {
        *direction_out = VARVE_COPY_HOST_TO_DEVICE;
    } else if (source->device == target->device) {
        *direction_out = VARVE_COPY_WITHIN;
    } else if (source->device->ops == target->device->ops) {
        *direction_out = VARVE_COPY_PEER_TO_DEVICE;
    } else {
        return NULL;
    }
    return device;
}

static uint64_t bytes_of(const struct varve_array *array)
{
    return (uint64_t)varve_geometry_count(&array->geometry) * varve_dtype_bytes(array->dtype);
}

static bool is_plain_copy(const struct varve_array *target, const struct varve_array *source)
{
    return target->dtype == source->dtype && varve_geometry_is_contiguous(&target->geometry) &&
           varve_geometry_is_contiguous(&source->geometry) &&
           varve_geometry_has_shape(&source->geometry, target->geometry.ndim, target->geometry.shape);
}

static int copy_plainly(struct varve_device *device, enum varve_copy_direction direction,
                        const struct varve_array *target, const struct varve_array *source,
                        struct copy_order order, struct varve_message *message)
{
    uint64_t to = array_addr(target), from = array_addr(source);
    int error = to == from && direction == VARVE_COPY_WITHIN
                    ? VARVE_OK
                    : device->ops->copy(device, to, from, bytes_of(target), direction, order.stream);

    if (error != VARVE_OK) {
        return device_error(device, error, message);
    }
    return order.is_asynchronous ? VARVE_OK : device_wait(device, order.stream, message);
}

/* ---- by way of host memory ---- */

/* The bytes that an array's elements span, in host memory. */
struct staged {
    struct varve_array array; /* the same elements there */
    uint64_t device_addr, bytes;
    void *host;
};

static int stage_open(const struct varve_array *array, struct staged *staged, struct varve_message *message)
{
    size_t element = varve_dtype_bytes(array->dtype);
    int64_t first, end;

    varve_geometry_range(&array->geometry, &first, &end);
    staged->bytes = (uint64_t)(end - first) * element;
    staged->device_addr = (uint64_t)(uintptr_t)array->data + (uint64_t)first * element;
    staged->host = calloc(1, staged->bytes > 0 ? staged->bytes : 1);
    staged->array = *array;
    staged->array.data = staged->host;
    staged->array.geometry.offset -= first;
    return staged->host != NULL
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to copy through");
}

static int stage_move(const struct staged *staged, struct varve_memory *memory, bool is_fetch,
                      uint64_t stream, struct varve_message *message)
{
    struct varve_device *device = memory->device;
    uint64_t host = (uint64_t)(uintptr_t)staged->host;
    int error;

    if (device->ops->copy == NULL) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "device '%s' can't copy",
                                 device->ops->name);
    }
    error = device->ops->copy(device, is_fetch ? host : staged->device_addr,
                              is_fetch ? staged->device_addr : host, staged->bytes,
                              is_fetch ? VARVE_COPY_DEVICE_TO_HOST : VARVE_COPY_HOST_TO_DEVICE, stream);
    return error != VARVE_OK ? device_error(device, error, message) : device_wait(device, stream, message);
}

/* From host memory into a device's: what lies between the target's elements comes back as it was. */
static int copy_into_device(struct varve_memory *memory, const struct varve_array *target,
                            const struct varve_array *source, uint64_t stream, struct varve_message *message)
{
    struct staged staged;
    int error = stage_open(target, &staged, message);

    if (error == VARVE_OK && !varve_geometry_is_contiguous(&target->geometry)) {
        error = stage_move(&staged, memory, true, stream, message);
    }
    if (error == VARVE_OK) {
        error = varve_array_copy(&staged.array, source, message);
    }
    if (error == VARVE_OK) {
        error = stage_move(&staged, memory, false, stream, message);
    }
    free(staged.host);
    return error;
}

static int copy_by_host(struct varve_memory *target_memory, const struct varve_array *target,
                        struct varve_memory *source_memory, const struct varve_array *source, uint64_t stream,
                        struct varve_message *message)
{
    struct staged staged = {.array = *source};
    int error = VARVE_OK;

    if (!source_memory->is_addressable) {
        error = stage_open(source, &staged, message);
        if (error == VARVE_OK) {
            error = stage_move(&staged, source_memory, true, stream, message);
        }
    }
    if (error == VARVE_OK) {
        error = target_memory->is_addressable
                    ? varve_array_copy(target, &staged.array, message)
                    : copy_into_device(target_memory, target, &staged.array, stream, message);
    }
    free(staged.host);
    return error;
}

int copy_elements(struct varve_memory *target_memory, const struct varve_array *target,
                  struct varve_memory *source_memory, const struct varve_array *source,
                  struct copy_order order, struct varve_message *message)
{
    enum varve_copy_direction direction;
    struct varve_device *device;

    if (target_memory->is_addressable && source_memory->is_addressable) {
        return varve_array_copy(target, source, message);
    }
    device = copier_of(target_memory, source_memory, &direction);
    if (device != NULL && is_plain_copy(target, source)) {
        return copy_plainly(device, direction, target, source, order, message);
    }
    return copy_by_host(target_memory, target, source_memory, source, order.stream, message);
}

/* ---- storages ---- */

static int storage_copy(struct varve_storage *target, const struct varve_storage *source,
                        struct copy_order order, struct varve_message *message)
{
    int error = object_check_writable(target, message);

    if (error == VARVE_OK) {
        error = copy_elements(target->memory, &target->array, source->memory, &source->array, order, message);
    }
    object_touch(target);
    object_touch(source);
    if (error == VARVE_OK) {
        emit_copy(target, source->memory, &source->array, source->id);
    }
    return error;
}

int varve_storage_copy(struct varve_storage *target, const struct varve_storage *source,
                       struct varve_message *message)
{
    return storage_copy(target, source, (struct copy_order){0, false}, message);
}

int varve_storage_copy_on(struct varve_storage *target, const struct varve_storage *source, uint64_t stream,
                          struct varve_message *message)
{
    return storage_copy(target, source, (struct copy_order){stream, true}, message);
}

static int device_fill(struct varve_storage *storage, const struct varve_array *one, struct copy_order order,
                       struct varve_message *message)
{
    struct varve_device *device = storage->memory->device;
    const struct varve_array *array = &storage->array;
    uint64_t pattern = 0;
    int error;

    if (device->ops->fill == NULL || !varve_geometry_is_contiguous(&array->geometry)) {
        return copy_elements(storage->memory, array, varve_memory_host(), one, order, message);
    }
    for (size_t i = varve_dtype_bytes(array->dtype); i-- > 0;) {
        pattern = pattern << 8 | ((const unsigned char *)one->data)[i];
    }
    error = device->ops->fill(device, array_addr(array), pattern, (unsigned)varve_dtype_bytes(array->dtype),
                              (uint64_t)varve_geometry_count(&array->geometry), order.stream);
    if (error != VARVE_OK) {
        return device_error(device, error, message);
    }
    return order.is_asynchronous ? VARVE_OK : device_wait(device, order.stream, message);
}

static int storage_fill(struct varve_storage *storage, struct varve_scalar value, struct copy_order order,
                        struct varve_message *message)
{
    uint64_t bits = 0;
    const struct varve_array one = {.data = &bits, .dtype = storage->array.dtype};
    int error = object_check_writable(storage, message);

    if (error != VARVE_OK) {
        return error;
    }
    object_touch(storage);
    if (storage->memory->is_addressable) {
        return varve_array_fill(&storage->array, value, message);
    }
    error = varve_array_fill(&one, value, message);
    return error != VARVE_OK ? error : device_fill(storage, &one, order, message);
}

int varve_storage_fill(struct varve_storage *storage, struct varve_scalar value,
                       struct varve_message *message)
{
    return storage_fill(storage, value, (struct copy_order){0, false}, message);
}

int varve_storage_fill_on(struct varve_storage *storage, struct varve_scalar value, uint64_t stream,
                          struct varve_message *message)
{
    return storage_fill(storage, value, (struct copy_order){stream, true}, message);
}

/* A contiguous storage of that type with the same elements. */
static int copy_as(const struct varve_storage *storage, const struct varve_storage_options *options,
                   enum varve_dtype dtype, struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_storage *copy;
    int error = varve_storage_empty(options, dtype, storage->array.geometry.ndim,
                                    storage->array.geometry.shape, &copy, message);

    if (error != VARVE_OK) {
        return error;
    }
    error = varve_storage_copy(copy, storage, message);
    if (error != VARVE_OK) {
        varve_storage_release(copy, NULL);
        return error;
    }
    __atomic_store_n(&copy->is_touched, false, __ATOMIC_RELAXED); /* nobody has looked at it yet */
    *storage_out = copy;
    return VARVE_OK;
}

int varve_storage_clone(const struct varve_storage *storage, const struct varve_storage_options *options,
                        struct varve_storage **storage_out, struct varve_message *message)
{
    const struct varve_storage_options same = {.memory = storage->memory, .name = storage->name};

    return object_created(
        copy_as(storage, options != NULL ? options : &same, storage->array.dtype, storage_out, message),
        storage_out, __builtin_return_address(0));
}

int varve_storage_to(struct varve_storage *storage, struct varve_memory *memory, enum varve_dtype dtype,
                     struct varve_storage **storage_out, struct varve_message *message)
{
    const struct varve_storage_options options = {.memory = memory, .name = storage->name};

    if (storage->memory == memory && storage->array.dtype == dtype) {
        *storage_out = varve_storage_retain(storage);
        return VARVE_OK;
    }
    return object_created(copy_as(storage, &options, dtype, storage_out, message), storage_out,
                          __builtin_return_address(0));
}
