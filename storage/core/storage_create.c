/* SPDX-License-Identifier: Apache-2.0 */
/* How storages come to be: with memory of their own, or around somebody else's. */
#include "storage/core/storage_object.h"

#include <inttypes.h>
#include <string.h>

static const struct varve_storage_options defaults;

static int refuse_object(struct varve_message *message)
{
    varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a storage's own object");
    return VARVE_ERROR_NO_MEMORY;
}

static int storage_create_check_options(const struct varve_storage_options *options, enum varve_dtype dtype,
                                        struct varve_message *message)
{
    if (varve_dtype_bytes(dtype) == 0) {
        varve_message_set(message, VARVE_ERROR_INVALID, "%d is no type of elements", (int)dtype);
        return VARVE_ERROR_INVALID;
    }
    if ((options->alignment & (options->alignment - 1)) != 0 || options->alignment > UINT64_C(1) << 40) {
        varve_message_set(message, VARVE_ERROR_INVALID,
                          "an alignment of %" PRIu64 " bytes; powers of two up to 2^40 are possible",
                          options->alignment);
        return VARVE_ERROR_INVALID;
    }
    return VARVE_OK;
}

int varve_storage_empty(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                        const int64_t *shape, struct varve_storage **storage_out, struct varve_message *message)
{
    options = options != NULL ? options : &defaults;
    VARVE_TRY(storage_create_check_options(options, dtype, message));
    struct varve_storage *storage = object_new();
    if (storage == NULL) {
        return refuse_object(message);
    }
    int error = varve_geometry_contiguous(ndim, shape, &storage->array.geometry, message);
    if (error == VARVE_OK) {
        storage->bytes = (uint64_t)varve_geometry_count(&storage->array.geometry) * varve_dtype_bytes(dtype);
        storage->memory = options->memory != NULL ? options->memory : varve_memory_host();
        error = memory_allocate(storage->memory, storage->bytes, options->alignment, options->stream, &storage->piece,
                                message);
    }
    if (error != VARVE_OK) {
        object_discard(storage);
        return error;
    }
    storage->array.data = storage->piece.data;
    storage->array.dtype = dtype;
    object_name(storage, options->name);
    object_publish(storage);
    emit_storage(VARVE_KIND_STORAGE_CREATE, storage, 0);
    *storage_out = storage;
    return object_created(VARVE_OK, storage_out, __builtin_return_address(0));
}

int varve_storage_full(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                       const int64_t *shape, struct varve_scalar value, struct varve_storage **storage_out,
                       struct varve_message *message)
{
    struct varve_storage *storage;
    VARVE_TRY(varve_storage_empty(options, dtype, ndim, shape, &storage, message));
    /* What had the block before may still be in use by what its stream has, so the elements come behind that. */
    int error = fill_elements(storage->memory, &storage->array, value,
                              (struct copy_order){storage->piece.stream, false}, message);
    if (error != VARVE_OK) {
        varve_storage_release(storage, NULL);
        return error;
    }
    *storage_out = storage;
    return object_created(VARVE_OK, storage_out, __builtin_return_address(0));
}

int varve_storage_zeros(const struct varve_storage_options *options, enum varve_dtype dtype, unsigned ndim,
                        const int64_t *shape, struct varve_storage **storage_out, struct varve_message *message)
{
    int error = varve_storage_full(options, dtype, ndim, shape, (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER},
                                   storage_out, message);
    return object_created(error, storage_out, __builtin_return_address(0));
}

int varve_storage_wrap(const struct varve_foreign *foreign, enum varve_dtype dtype,
                       const struct varve_geometry *geometry, const char *name, struct varve_storage **storage_out,
                       struct varve_message *message)
{
    VARVE_TRY(storage_create_check_options(&defaults, dtype, message));
    VARVE_TRY(varve_geometry_check(geometry, foreign->bytes / varve_dtype_bytes(dtype), message));
    struct varve_storage *storage = object_new();
    if (storage == NULL) {
        return refuse_object(message);
    }
    storage->is_foreign = true;
    storage->is_read_only = foreign->is_read_only;
    storage->memory = foreign->memory != NULL ? foreign->memory : varve_memory_host();
    storage->array = (struct varve_array){foreign->data, *geometry, dtype};
    storage->bytes = foreign->bytes;
    storage->release = foreign->release;
    storage->context = foreign->context;
    memory_hold(storage->memory);
    object_name(storage, name);
    object_publish(storage);
    emit_storage(VARVE_KIND_STORAGE_CREATE, storage, 0);
    *storage_out = storage;
    return object_created(VARVE_OK, storage_out, __builtin_return_address(0));
}

int varve_storage_from_array(const struct varve_storage_options *options, const struct varve_array *source,
                             struct varve_storage **storage_out, struct varve_message *message)
{
    struct varve_storage *storage;
    VARVE_TRY(
        varve_storage_empty(options, source->dtype, source->geometry.ndim, source->geometry.shape, &storage, message));
    int error = copy_elements(storage->memory, &storage->array, varve_memory_host(), source,
                              (struct copy_order){storage->piece.stream, false}, message);
    if (error != VARVE_OK) {
        varve_storage_release(storage, NULL);
        return error;
    }
    emit_copy(storage, varve_memory_host(), source, 0);
    *storage_out = storage;
    return object_created(VARVE_OK, storage_out, __builtin_return_address(0));
}

/* ---- another size ---- */

/* Elements of a smaller shape are the first ones of this geometry, where they lie. */
static bool is_in_front(const struct varve_geometry *geometry)
{
    return varve_geometry_count(geometry) == 0 || (geometry->offset == 0 && varve_geometry_is_contiguous(geometry));
}

static int check_resize(const struct varve_storage *storage, uint64_t bytes, struct varve_message *message)
{
    if (storage->base != NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "a view has the size of its base's elements");
    }
    if (__atomic_load_n(&storage->views, __ATOMIC_ACQUIRE) != 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "views of the storage are alive");
    }
    if (storage->is_foreign && bytes > storage->bytes) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "foreign memory of %" PRIu64 " bytes has no room for %" PRIu64, storage->bytes, bytes);
    }
    if (storage->is_foreign && !is_in_front(&storage->array.geometry)) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "the elements do not lie one behind the other from the first byte of the "
                                 "foreign memory, in which they have to stay");
    }
    return VARVE_OK;
}

/* The elements, as many as fit, one behind the other, in a larger piece. */
static int exchange(struct varve_storage *storage, uint64_t bytes, struct varve_message *message)
{
    int64_t kept = varve_geometry_count(&storage->array.geometry);
    struct varve_array source = storage->array, target = {.dtype = source.dtype};
    struct memory_piece piece;
    uint64_t stream = storage->piece.stream;
    VARVE_TRY(memory_allocate(storage->memory, bytes, storage->piece.alignment, stream, &piece, message));
    target.data = piece.data;
    varve_geometry_contiguous(source.geometry.ndim, source.geometry.shape, &target.geometry, NULL);
    int error = kept > 0 ? copy_elements(storage->memory, &target, storage->memory, &source,
                                         (struct copy_order){stream, false}, message)
                         : VARVE_OK;
    if (error != VARVE_OK) {
        memory_free(storage->memory, &piece);
        return error;
    }
    memory_free(storage->memory, &storage->piece);
    storage->piece = piece;
    storage->array.data = piece.data;
    storage->bytes = bytes;
    return VARVE_OK;
}

int varve_storage_resize(struct varve_storage *storage, unsigned ndim, const int64_t *shape,
                         struct varve_message *message)
{
    struct varve_geometry geometry;
    VARVE_TRY(varve_geometry_contiguous(ndim, shape, &geometry, message));
    uint64_t bytes = (uint64_t)varve_geometry_count(&geometry) * varve_dtype_bytes(storage->array.dtype);
    int error = check_resize(storage, bytes, message);
    if (error == VARVE_OK && bytes > storage->bytes) {
        error = exchange(storage, bytes, message);
    }
    if (error == VARVE_OK) {
        storage->array.geometry = geometry;
    }
    return error;
}
