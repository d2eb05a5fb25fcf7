/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of other libraries as storages. What a tensor says is looked at before anything is done with it: sizes and
 * strides from elsewhere may be anything. A storage of a tensor is one around foreign memory whose release is the
 * tensor's deleter.
 */
#include "storage/core/dlpack_types.h"

#include <inttypes.h>
#include <string.h>

/* Elements that sizes and strides may span: below it no product or sum of theirs overflows. */
#define SPAN_LIMIT (INT64_C(1) << 58)

/* ---- where the elements are ---- */

/* Strides that the tensor says, each with its axis within the limit. */
static int take_strides(const struct varve_dlpack_tensor *tensor, struct varve_geometry *geometry,
                        struct varve_message *message)
{
    for (unsigned i = 0; i < geometry->ndim; i++) {
        int64_t span;
        if (__builtin_mul_overflow(tensor->strides[i], geometry->shape[i], &span) || span >= SPAN_LIMIT ||
            span <= -SPAN_LIMIT) {
            if (geometry->shape[i] == 1) {
                continue; /* nobody follows it; some libraries leave anything there */
            }
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "axis %u has size %" PRId64 " and stride %" PRId64
                                     "; its elements are too far apart",
                                     i, geometry->shape[i], tensor->strides[i]);
        }
        geometry->strides[i] = tensor->strides[i];
    }
    return VARVE_OK;
}

static int read_geometry(const struct varve_dlpack_tensor *tensor, struct varve_geometry *geometry,
                         struct varve_message *message)
{
    if (tensor->ndim < 0 || tensor->ndim > VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "%" PRId32 " dimensions; 0 to %d are possible",
                                 tensor->ndim, VARVE_DIMS_MAX);
    }
    if (tensor->ndim > 0 && tensor->shape == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "a tensor without a shape");
    }
    int64_t none = 0;
    int error =
        varve_geometry_contiguous((unsigned)tensor->ndim, tensor->ndim > 0 ? tensor->shape : &none, geometry, message);
    if (error != VARVE_OK || tensor->strides == NULL || varve_geometry_count(geometry) == 0) {
        return error;
    }
    return take_strides(tensor, geometry, message);
}

/* The foreign memory: from the first byte that the elements reach. */
static int read_foreign(const struct varve_dlpack_tensor *tensor, enum varve_dtype dtype,
                        struct varve_geometry *geometry, struct varve_foreign *foreign, struct varve_message *message)
{
    size_t element = varve_dtype_bytes(dtype);
    uint64_t addr = (uint64_t)(uintptr_t)tensor->data;
    int64_t first, end;
    varve_geometry_range(geometry, &first, &end);
    if (first <= -SPAN_LIMIT || end >= SPAN_LIMIT) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the tensor's elements are up to 2^58 elements apart");
    }
    if (first == end) {
        foreign->data = NULL;
        foreign->bytes = 0;
        return VARVE_OK;
    }
    if (tensor->data == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "a tensor of elements at address 0");
    }
    foreign->bytes = (uint64_t)(end - first) * element;
    uint64_t first_byte;
    if (__builtin_add_overflow(addr, tensor->byte_offset, &addr) ||
        __builtin_sub_overflow(addr, (uint64_t)-first * element, &first_byte) ||
        first_byte + foreign->bytes < first_byte) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the tensor's elements lie beyond all memory");
    }
    foreign->data = (void *)(uintptr_t)first_byte;
    geometry->offset = -first;
    return VARVE_OK;
}

/* The memory that a tensor's device stands for. */
static int find_memory(struct varve_dlpack_device device, struct varve_memory *memory, struct varve_memory **memory_out,
                       struct varve_message *message)
{
    struct varve_dlpack_device own = {0, 0};
    if (device.type == VARVE_DLPACK_CPU || device.type == VARVE_DLPACK_CUDA_HOST ||
        device.type == VARVE_DLPACK_CUDA_MANAGED) {
        *memory_out = varve_memory_host();
        return VARVE_OK;
    }
    if (device.type != VARVE_DLPACK_CUDA) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "a tensor on DLPack's device (%" PRId32 ", %" PRId32
                                 "), of which there is no memory here",
                                 device.type, device.id);
    }
    int error = VARVE_OK;
    if (memory != NULL) {
        error = dlpack_device(memory, &own, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    if (own.type != device.type || own.id != device.id) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "a tensor on DLPack's device (2, %" PRId32 "); its storage wants the memory of an "
                                 "allocator on CUDA device %" PRId32 ", and was given %s",
                                 device.id, device.id, memory == NULL ? "none" : "that of another device");
    }
    *memory_out = memory;
    return VARVE_OK;
}

/* ---- storages ---- */

/* `foreign` has the release. */
static int wrap(const struct varve_dlpack_tensor *tensor, struct varve_memory *memory, struct varve_foreign *foreign,
                const char *name, struct varve_storage **storage_out, struct varve_message *message)
{
    enum varve_dtype dtype = VARVE_DTYPE_LIMIT;
    VARVE_TRY(find_memory(tensor->device, memory, &foreign->memory, message));
    VARVE_TRY(dlpack_dtype_find(tensor->dtype, &dtype, message));
    struct varve_geometry geometry;
    VARVE_TRY(read_geometry(tensor, &geometry, message));
    int error = read_foreign(tensor, dtype, &geometry, foreign, message);
    return error == VARVE_OK ? varve_storage_wrap(foreign, dtype, &geometry, name, storage_out, message) : error;
}

static void versioned_release(void *context, void *data)
{
    struct varve_dlpack_versioned *tensor = context;
    (void)data;
    if (tensor->deleter != NULL) {
        tensor->deleter(tensor);
    }
}

static void managed_release(void *context, void *data)
{
    struct varve_dlpack_managed *tensor = context;
    (void)data;
    if (tensor->deleter != NULL) {
        tensor->deleter(tensor);
    }
}

int varve_storage_from_dlpack(struct varve_dlpack_versioned *tensor, struct varve_memory *memory, const char *name,
                              struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_foreign foreign = {.release = versioned_release, .context = tensor};
    int error;
    if (tensor->version.major != VARVE_DLPACK_MAJOR) { /* what follows the deleter is not known then */
        error = varve_message_set(message, VARVE_ERROR_VERSION,
                                  "a tensor of DLPack %" PRIu32 ".%" PRIu32 "; only versions %d.x are known",
                                  tensor->version.major, tensor->version.minor, VARVE_DLPACK_MAJOR);
    } else {
        foreign.is_read_only = (tensor->flags & VARVE_DLPACK_READ_ONLY) != 0;
        error = wrap(&tensor->tensor, memory, &foreign, name, storage_out, message);
    }
    if (error != VARVE_OK) {
        versioned_release(tensor, NULL);
    }
    return error;
}

int varve_storage_from_dlpack_unversioned(struct varve_dlpack_managed *tensor, struct varve_memory *memory,
                                          const char *name, struct varve_storage **storage_out,
                                          struct varve_message *message)
{
    struct varve_foreign foreign = {.release = managed_release, .context = tensor};
    int error = wrap(&tensor->tensor, memory, &foreign, name, storage_out, message);
    if (error != VARVE_OK) {
        managed_release(tensor, NULL);
    }
    return error;
}
