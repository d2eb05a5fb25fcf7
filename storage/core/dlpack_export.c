/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages as DLPack's tensors. A tensor is exported with a view of the storage in its context: the view keeps the
 * memory, and its size, until the deleter releases it.
 */
#include "storage/core/storage_object.h"
#include "storage/core/dlpack_types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a consumer gets: one of the two managed tensors, and what it points to. */
struct exported {
    union {
        struct varve_dlpack_managed managed;
        struct varve_dlpack_versioned versioned;
    } head;                       /* first: the deleter is given its address */
    struct varve_storage *shared; /* the view, or the copy */
    int64_t shape[VARVE_DIMS_MAX];
    int64_t strides[VARVE_DIMS_MAX];
};

static void managed_delete(struct varve_dlpack_managed *self)
{
    varve_storage_release(self->context, NULL);
    free(self);
}

static void versioned_delete(struct varve_dlpack_versioned *self)
{
    varve_storage_release(self->context, NULL);
    free(self);
}

/* ---- streams ---- */

static int dlpack_export_device_error(const struct varve_device *device, int error, struct varve_message *message)
{
    return gpu_device_error(device, error, "the consumer's stream can't be made to wait", message);
}

/* Work given to `consumer` from now on comes after what `producer` has. */
static int dlpack_export_stream_wait(struct varve_device *device, uint64_t consumer, uint64_t producer)
{
    uint64_t event;
    VARVE_TRY(device->ops->event_create(device, &event));
    int error = device->ops->event_record(device, event, producer);
    VARVE_THEN(error, device->ops->stream_wait_event(device, consumer, event));
    device->ops->event_destroy(device, event); /* which a wait under way survives */
    return error;
}

/* The stream whose work the elements are the result of; the default one where there is no block. */
static uint64_t producer_stream(const struct varve_storage *storage, struct varve_alloc *alloc)
{
    struct varve_allocation_info info = {.stream = 0};
    varve_alloc_describe(alloc, varve_storage_allocation(storage), &info);
    return info.stream;
}

/* The consumer's stream as the device knows it. */
static int consumer_stream(int64_t stream, uint64_t *stream_out, struct varve_message *message)
{
    if (stream == VARVE_DLPACK_STREAM_NONE || stream == VARVE_DLPACK_STREAM_LEGACY) {
        *stream_out = 0;
    } else if (stream >= VARVE_DLPACK_STREAM_PER_THREAD) {
        *stream_out = (uint64_t)stream;
    } else {
        return varve_message_set(message, VARVE_ERROR_INVALID, "stream %" PRId64 " of a CUDA device", stream);
    }
    return VARVE_OK;
}

static int order_on_device(const struct varve_storage *storage, int64_t stream, struct varve_message *message)
{
    struct varve_alloc *alloc = varve_memory_alloc(varve_storage_memory(storage));
    struct varve_device *device = varve_alloc_get_device(alloc);
    struct varve_allocation allocation = varve_storage_allocation(storage);
    uint64_t producer = producer_stream(storage, alloc), consumer = 0;
    int error = consumer_stream(stream, &consumer, message);
    if (error != VARVE_OK || consumer == producer) {
        return error;
    }
    error = dlpack_export_stream_wait(device, consumer, producer);
    if (error != VARVE_OK) {
        return dlpack_export_device_error(device, error, message);
    }
    return allocation.block == NULL
               ? VARVE_OK
               : varve_alloc_record_stream(alloc, varve_allocation_addr(allocation), consumer, message);
}

/* Until the elements are what the calls so far have made of them. */
static int wait_for_elements(const struct varve_storage *storage, struct varve_message *message)
{
    struct varve_alloc *alloc = varve_memory_alloc(varve_storage_memory(storage));
    if (alloc == NULL) {
        return VARVE_OK;
    }
    struct varve_device *device = varve_alloc_get_device(alloc);
    int error = device->ops->stream_synchronize(device, producer_stream(storage, alloc));
    return error == VARVE_OK ? VARVE_OK : dlpack_export_device_error(device, error, message);
}

static int dlpack_export_order(const struct varve_storage *storage, int64_t stream, struct varve_message *message)
{
    if (stream == VARVE_DLPACK_STREAM_UNORDERED) {
        return VARVE_OK;
    }
    if (!varve_memory_is_addressable(varve_storage_memory(storage))) {
        return order_on_device(storage, stream, message);
    }
    return stream == VARVE_DLPACK_STREAM_NONE
               ? wait_for_elements(storage, message)
               : varve_message_set(message, VARVE_ERROR_INVALID,
                                   "stream %" PRId64 " for elements in host memory, which has none", stream);
}

/* ---- tensors ---- */

/* A storage for the tensor alone, with one reference: a view, or a copy. */
static int dlpack_export_share(struct varve_storage *storage, int64_t stream, bool copies,
                               struct varve_storage **shared_out, struct varve_message *message)
{
    int error;
    if (copies) {
        error = wait_for_elements(storage, message);
        return error == VARVE_OK ? varve_storage_clone(storage, NULL, shared_out, message) : error;
    }
    struct varve_array array;
    varve_storage_get_array(storage, &array);
    error = dlpack_export_order(storage, stream, message);
    return error == VARVE_OK ? varve_storage_view(storage, &array.geometry, shared_out, message) : error;
}

/* Everything but what the two kinds of tensors do not share. */
static int export(struct varve_storage *storage, int64_t stream, bool copies, struct exported **exported_out,
                  struct varve_dlpack_tensor *tensor_out, struct varve_message *message)
{
    struct varve_dlpack_device device;
    VARVE_TRY(dlpack_device(varve_storage_memory(storage), &device, message));
    struct exported *exported = calloc(1, sizeof(*exported));
    if (exported == NULL) {
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a tensor's description");
        return VARVE_ERROR_NO_MEMORY;
    }
    int error = dlpack_export_share(storage, stream, copies, &exported->shared, message);
    if (error != VARVE_OK) {
        free(exported);
        return error;
    }
    struct varve_array array;
    varve_storage_get_array(exported->shared, &array);
    memcpy(exported->shape, array.geometry.shape, array.geometry.ndim * sizeof(exported->shape[0]));
    memcpy(exported->strides, array.geometry.strides, array.geometry.ndim * sizeof(exported->strides[0]));
    *tensor_out = (struct varve_dlpack_tensor){
        .data = varve_storage_data(exported->shared),
        .device = device,
        .ndim = (int32_t)array.geometry.ndim,
        .dtype = dlpack_dtype(array.dtype),
        .shape = exported->shape,
        .strides = exported->strides,
    };
    *exported_out = exported;
    return VARVE_OK;
}

int varve_storage_to_dlpack(struct varve_storage *storage, int64_t stream, bool copies,
                            struct varve_dlpack_versioned **tensor_out, struct varve_message *message)
{
    struct varve_dlpack_tensor tensor;
    struct exported *exported;
    VARVE_TRY(export(storage, stream, copies, &exported, &tensor, message));
    exported->head.versioned = (struct varve_dlpack_versioned){
        .version = {VARVE_DLPACK_MAJOR, VARVE_DLPACK_MINOR},
        .context = exported->shared,
        .deleter = versioned_delete,
        .flags = (varve_storage_is_read_only(exported->shared) ? VARVE_DLPACK_READ_ONLY : 0) |
                 (copies ? VARVE_DLPACK_IS_COPIED : 0),
        .tensor = tensor,
    };
    *tensor_out = &exported->head.versioned;
    return VARVE_OK;
}

int varve_storage_to_dlpack_unversioned(struct varve_storage *storage, int64_t stream, bool copies,
                                        struct varve_dlpack_managed **tensor_out, struct varve_message *message)
{
    if (varve_storage_is_read_only(storage) && !copies) {
        return varve_message_set(message, VARVE_ERROR_PERMISSION,
                                 "the storage may only be read, and a tensor of before DLPack 1.0 can't say so");
    }
    struct varve_dlpack_tensor tensor;
    struct exported *exported;
    VARVE_TRY(export(storage, stream, copies, &exported, &tensor, message));
    exported->head.managed =
        (struct varve_dlpack_managed){.tensor = tensor, .context = exported->shared, .deleter = managed_delete};
    *tensor_out = &exported->head.managed;
    return VARVE_OK;
}

int varve_storage_dlpack_device(const struct varve_storage *storage, struct varve_dlpack_device *device_out,
                                struct varve_message *message)
{
    return dlpack_device(varve_storage_memory(storage), device_out, message);
}
