/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between storages. What the processor can address is copied by varve_array_copy. To, from and within a device's
 * own memory its copies do what needs no look at elements, and kernels what does. Without kernels the rest goes through
 * host memory: the bytes that the elements span come over, are worked on, and go back.
 */
#include "storage/core/storage_object.h"
#include "storage/cuda/gpu_copy.h"
#include "storage/tensors/element_loop.h"

#include <stdlib.h>
#include <string.h>

/* Elements, and the memory that they are in. */
struct array_in {
    struct varve_memory *memory;
    const struct varve_array *array;
};

/* ---- the device's own copies ---- */

static int storage_copy_device_error(const struct varve_device *device, int error, struct varve_message *message)
{
    return gpu_device_error(device, error, "the device failed to copy", message);
}

static int order_wait(struct varve_memory *memory, struct copy_order order, struct varve_message *message)
{
    return order.is_asynchronous ? VARVE_OK : memory_wait(memory, order.stream, message);
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
    } else if (strcmp(source->device->ops->name, target->device->ops->name) == 0) {
        *direction_out = VARVE_COPY_PEER_TO_DEVICE;
    } else {
        return NULL;
    }
    return device;
}

static bool is_plain_copy(const struct varve_array *target, const struct varve_array *source)
{
    return target->dtype == source->dtype && varve_geometry_is_contiguous(&target->geometry) &&
           varve_geometry_is_contiguous(&source->geometry);
}

/* No device copies onto a part of what it reads; onto all of it nothing has to move. */
static bool storage_copy_is_apart(const struct varve_array *target, const struct varve_array *source)
{
    return !elements_overlap(target, source) || elements_are_same(target, source);
}

static int copy_plainly(struct varve_device *device, enum varve_copy_direction direction, const struct array_in *target,
                        const struct array_in *source, struct copy_order order, struct varve_message *message)
{
    uint64_t to = array_addr(target->array), from = array_addr(source->array);
    uint64_t bytes = array_bytes(target->array);
    if (!order.is_asynchronous && direction == VARVE_COPY_HOST_TO_DEVICE) {
        return transfer_bytes(target->memory, to, (void *)(uintptr_t)from, bytes, false, order.stream, message);
    }
    if (!order.is_asynchronous && direction == VARVE_COPY_DEVICE_TO_HOST) {
        return transfer_bytes(source->memory, from, (void *)(uintptr_t)to, bytes, true, order.stream, message);
    }
    if (to == from && direction == VARVE_COPY_WITHIN) {
        return VARVE_OK;
    }
    int error = VARVE_OK;
    if (direction == VARVE_COPY_PEER_TO_DEVICE) {
        error = memory_wait(source->memory, 0, message); /* `stream` is the other device's */
    }
    if (error != VARVE_OK) {
        return error;
    }
    error = device->ops->copy(device, to, from, bytes, direction, order.stream);
    return error != VARVE_OK
               ? storage_copy_device_error(device, error, message)
               : order_wait(target->memory->is_addressable ? source->memory : target->memory, order, message);
}

/* ---- kernels ---- */

/* Elements of a block, expanded to the target's shape. */
static int copy_from_block(struct gpu *gpu, const struct varve_array *target, struct varve_array block, uint64_t stream,
                           struct varve_message *message)
{
    int error = varve_geometry_expand(&block.geometry, target->geometry.ndim, target->geometry.shape, message);
    return error == VARVE_OK ? gpu_copy(gpu, target, &block, stream, message) : error;
}

/* Both in one device's memory. What overlaps is set aside first. */
static int copy_within(struct gpu *gpu, const struct array_in *target, const struct array_in *source,
                       const struct varve_array *expanded, struct copy_order order, struct varve_message *message)
{
    const struct varve_array *to = target->array;
    if (!elements_overlap(to, expanded) ||
        (elements_are_same(to, expanded) && varve_dtype_bytes(to->dtype) == varve_dtype_bytes(expanded->dtype))) {
        return gpu_copy(gpu, to, expanded, order.stream, message);
    }
    struct memory_piece piece;
    struct varve_array block;
    VARVE_TRY(memory_array(target->memory, source->array, source->array->dtype, order.stream, &block, &piece, message));
    int error = gpu_copy(gpu, &block, source->array, order.stream, message);
    VARVE_THEN(error, copy_from_block(gpu, to, block, order.stream, message));
    memory_free(target->memory, &piece);
    return error;
}

/* Host elements as they are into a block of the device, which spreads and converts them. */
static int copy_to_device(struct gpu *gpu, const struct array_in *target, const struct array_in *source,
                          struct copy_order order, struct varve_message *message)
{
    struct varve_array packed = *source->array, block;
    struct memory_piece piece;
    int error =
        memory_array(target->memory, source->array, source->array->dtype, order.stream, &block, &piece, message);
    if (error != VARVE_OK) {
        return error;
    }
    void *memory = NULL;
    if (!varve_geometry_is_contiguous(&packed.geometry)) {
        error = elements_set_aside(source->array, packed.dtype, &packed, message);
        memory = error == VARVE_OK ? packed.data : NULL;
    }
    VARVE_THEN(error, transfer_bytes(target->memory, array_addr(&block), (void *)(uintptr_t)array_addr(&packed),
                                     array_bytes(&block), false, order.stream, message));
    VARVE_THEN(error, copy_from_block(gpu, target->array, block, order.stream, message));
    free(memory);
    memory_free(target->memory, &piece);
    return error;
}

/* The device packs and converts elements into a block, which is fetched. `expanded` has the target's shape. */
static int copy_from_device(struct gpu *gpu, const struct array_in *target, const struct array_in *source,
                            const struct varve_array *expanded, struct copy_order order, struct varve_message *message)
{
    const struct varve_array *to = target->array;
    struct varve_array block;
    struct memory_piece piece;
    VARVE_TRY(memory_array(source->memory, to, to->dtype, order.stream, &block, &piece, message));
    int error = gpu_copy(gpu, &block, expanded, order.stream, message);
    struct varve_array packed = *to;
    void *memory = NULL;
    if (error == VARVE_OK && !varve_geometry_is_contiguous(&to->geometry)) {
        packed = block;
        packed.data = memory = malloc(array_bytes(&block));
        error =
            memory != NULL ? VARVE_OK : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to copy through");
    }
    VARVE_THEN(error, transfer_bytes(source->memory, array_addr(&block), (void *)(uintptr_t)array_addr(&packed),
                                     array_bytes(&block), true, order.stream, message));
    memory_free(source->memory, &piece);
    if (error == VARVE_OK && memory != NULL) {
        elements_copy(to, &packed);
    }
    free(memory);
    return error;
}

/* VARVE_ERROR_UNSUPPORTED where no kernel can do it. */
static int copy_by_kernel(const struct array_in *target, const struct array_in *source,
                          const struct varve_array *expanded, struct copy_order order, struct varve_message *message)
{
    struct varve_memory *memory = target->memory->is_addressable ? source->memory : target->memory;
    struct gpu *gpu = memory_gpu(memory);
    if (gpu == NULL || (!source->memory->is_addressable && !memory_is_beside(source->memory, memory))) {
        return VARVE_ERROR_UNSUPPORTED;
    }
    if (target->memory->is_addressable) {
        return copy_from_device(gpu, target, source, expanded, order, message);
    }
    int error = source->memory->is_addressable ? copy_to_device(gpu, target, source, order, message)
                                               : copy_within(gpu, target, source, expanded, order, message);
    return error == VARVE_OK ? order_wait(memory, order, message) : error;
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
    return staged->host != NULL ? VARVE_OK
                                : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to copy through");
}

static int stage_move(const struct staged *staged, struct varve_memory *memory, bool is_fetch, uint64_t stream,
                      struct varve_message *message)
{
    return transfer_bytes(memory, staged->device_addr, staged->host, staged->bytes, is_fetch, stream, message);
}

/* From host memory into a device's: what lies between the target's elements comes back as it was. */
static int copy_into_device(const struct array_in *target, const struct varve_array *source, uint64_t stream,
                            struct varve_message *message)
{
    struct staged staged;
    int error = stage_open(target->array, &staged, message);
    if (error == VARVE_OK && !varve_geometry_is_contiguous(&target->array->geometry)) {
        error = stage_move(&staged, target->memory, true, stream, message);
    }
    VARVE_THEN(error, varve_array_copy(&staged.array, source, message));
    VARVE_THEN(error, stage_move(&staged, target->memory, false, stream, message));
    free(staged.host);
    return error;
}

/* Elements that are not in the processor's memory. The stream is the target's device's; of another device those come
 * that are there when both that stream and the other one's default stream are done. */
static int stage_source(const struct array_in *target, const struct array_in *source, uint64_t stream,
                        struct staged *staged, struct varve_message *message)
{
    bool is_other = !target->memory->is_addressable && !memory_is_beside(target->memory, source->memory);
    int error = stage_open(source->array, staged, message);
    if (error == VARVE_OK && is_other && stream != 0) {
        error = memory_wait(target->memory, stream, message);
    }
    return error == VARVE_OK ? stage_move(staged, source->memory, true, is_other ? 0 : stream, message) : error;
}

static int copy_by_host(const struct array_in *target, const struct array_in *source, uint64_t stream,
                        struct varve_message *message)
{
    struct staged staged = {.array = *source->array};
    int error = VARVE_OK;
    if (!source->memory->is_addressable) {
        error = stage_source(target, source, stream, &staged, message);
    }
    VARVE_THEN(error, target->memory->is_addressable ? varve_array_copy(target->array, &staged.array, message)
                                                     : copy_into_device(target, &staged.array, stream, message));
    free(staged.host);
    return error;
}

/* ---- whichever does ---- */

int copy_elements(struct varve_memory *target_memory, const struct varve_array *target,
                  struct varve_memory *source_memory, const struct varve_array *source, struct copy_order order,
                  struct varve_message *message)
{
    const struct array_in to = {target_memory, target}, from = {source_memory, source};
    if (target_memory->is_addressable && source_memory->is_addressable) {
        return varve_array_copy(target, source, message);
    }
    struct varve_array expanded;
    int error = elements_copy_check(target, source, &expanded, message);
    if (error != VARVE_OK || array_bytes(target) == 0) {
        return error;
    }
    enum varve_copy_direction direction;
    struct varve_device *device = copier_of(target_memory, source_memory, &direction);
    if (device != NULL && is_plain_copy(target, &expanded) &&
        (direction != VARVE_COPY_WITHIN || storage_copy_is_apart(target, &expanded))) {
        error = copy_plainly(device, direction, &to, &from, order, message);
        if (error == VARVE_OK || direction != VARVE_COPY_PEER_TO_DEVICE) {
            return error;
        } /* virtual memory of a peer wants access that nobody has asked for: it goes by the host */
    }
    error = copy_by_kernel(&to, &from, &expanded, order, message);
    return error == VARVE_ERROR_UNSUPPORTED ? copy_by_host(&to, &from, order.stream, message) : error;
}

/* ---- storages ---- */

static int storage_copy(struct varve_storage *target, const struct varve_storage *source, struct copy_order order,
                        struct varve_message *message)
{
    int error = object_check_writable(target, message);
    VARVE_THEN(error, copy_elements(target->memory, &target->array, source->memory, &source->array, order, message));
    object_touch(target);
    object_touch(source);
    if (error == VARVE_OK) {
        emit_copy(target, source->memory, &source->array, source->id);
    }
    return error;
}

int varve_storage_copy(struct varve_storage *target, const struct varve_storage *source, struct varve_message *message)
{
    return storage_copy(target, source, (struct copy_order){0, false}, message);
}

int varve_storage_copy_on(struct varve_storage *target, const struct varve_storage *source, uint64_t stream,
                          struct varve_message *message)
{
    return storage_copy(target, source, (struct copy_order){stream, true}, message);
}

/* `one` has the value as it lies in memory. */
static int storage_copy_device_fill(struct varve_memory *memory, const struct varve_array *array,
                                    const struct varve_array *one, struct copy_order order,
                                    struct varve_message *message)
{
    struct varve_device *device = memory->device;
    struct gpu *gpu = memory_gpu(memory);
    unsigned bytes = (unsigned)varve_dtype_bytes(array->dtype);
    bool is_contiguous = varve_geometry_is_contiguous(&array->geometry);
    bool is_aligned = array_addr(array) % bytes == 0; /* what is not, a device does not fill */
    uint64_t pattern = 0;
    for (size_t i = bytes; i-- > 0;) {
        pattern = pattern << 8 | ((const unsigned char *)one->data)[i];
    }
    int error = VARVE_ERROR_UNSUPPORTED;
    if (gpu != NULL && (!is_contiguous || pattern >> 32 != 0)) {
        error = gpu_fill(gpu, array, pattern, order.stream, message);
    } else if (device->ops->fill != NULL && is_contiguous && is_aligned) {
        error = device->ops->fill(device, array_addr(array), pattern, bytes,
                                  (uint64_t)varve_geometry_count(&array->geometry), order.stream);
        error = error != VARVE_OK ? storage_copy_device_error(device, error, message) : VARVE_OK;
    }
    if (error == VARVE_ERROR_UNSUPPORTED) {
        return copy_elements(memory, array, varve_memory_host(), one, order, message);
    }
    return error != VARVE_OK ? error : order_wait(memory, order, message);
}

int fill_elements(struct varve_memory *memory, const struct varve_array *array, struct varve_scalar value,
                  struct copy_order order, struct varve_message *message)
{
    uint64_t bits = 0;
    const struct varve_array one = {.data = &bits, .dtype = array->dtype};
    if (memory->is_addressable) {
        return varve_array_fill(array, value, message);
    }
    int error = elements_check_target(array, message);
    VARVE_THEN(error, varve_array_fill(&one, value, message));
    return error == VARVE_OK ? storage_copy_device_fill(memory, array, &one, order, message) : error;
}

static int storage_fill(struct varve_storage *storage, struct varve_scalar value, struct copy_order order,
                        struct varve_message *message)
{
    VARVE_TRY(object_check_writable(storage, message));
    object_touch(storage);
    return fill_elements(storage->memory, &storage->array, value, order, message);
}

int varve_storage_fill(struct varve_storage *storage, struct varve_scalar value, struct varve_message *message)
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
    int error = varve_storage_empty(options, dtype, storage->array.geometry.ndim, storage->array.geometry.shape, &copy,
                                    message);
    if (error != VARVE_OK) {
        return error;
    }
    if (copy->piece.stream != 0 && !copy->memory->is_addressable) {
        /* what had the block before may still be in use there */
        error = memory_wait(copy->memory, copy->piece.stream, message);
    }
    VARVE_THEN(error, varve_storage_copy(copy, storage, message));
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
        copy_as(storage, options != NULL ? options : &same, storage->array.dtype, storage_out, message), storage_out,
        __builtin_return_address(0));
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
