/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/core/storage_object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HOST_ALIGNMENT 64U
#define BLOCK_ALIGNMENT 512U /* of every block of an allocator */

static struct varve_memory host = {.alignment = HOST_ALIGNMENT, .is_addressable = true};

struct varve_memory *varve_memory_host(void)
{
    return &host;
}

int varve_memory_open(struct varve_alloc *alloc, struct varve_memory **memory_out, struct varve_message *message)
{
    struct varve_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to describe a memory");
    }
    memory->alloc = alloc;
    memory->device = varve_alloc_get_device(alloc);
    memory->is_addressable = strcmp(memory->device->ops->name, "host") == 0;
    memory->alignment = memory->is_addressable ? HOST_ALIGNMENT : BLOCK_ALIGNMENT;
    *memory_out = memory;
    return VARVE_OK;
}

int varve_memory_close(struct varve_memory *memory, struct varve_message *message)
{
    uint64_t users = __atomic_load_n(&memory->users, __ATOMIC_ACQUIRE);
    if (users != 0) {
        return varve_message_set(message, VARVE_ERROR_BUSY, "%" PRIu64 " storages still have memory of it", users);
    }
    gpu_close(memory->gpu);
    staging_close(memory->staging);
    for (unsigned i = 0; i < MEMORY_STREAMS_MAX; i++) {
        if (memory->streams[i] != 0) {
            memory->device->ops->stream_destroy(memory->device, memory->streams[i]);
        }
    }
    free(memory);
    return VARVE_OK;
}

bool varve_memory_is_addressable(const struct varve_memory *memory)
{
    return memory->is_addressable;
}

struct varve_alloc *varve_memory_alloc(const struct varve_memory *memory)
{
    return memory->alloc;
}

struct gpu *memory_gpu(struct varve_memory *memory)
{
    struct gpu *gpu = __atomic_load_n(&memory->gpu, __ATOMIC_ACQUIRE);
    if (gpu != NULL || memory->device == NULL || __atomic_load_n(&memory->has_no_gpu, __ATOMIC_RELAXED)) {
        return gpu;
    }
    struct gpu *opened;
    int error = gpu_open(memory->device, &opened, NULL);
    if (error != VARVE_OK) {
        __atomic_store_n(&memory->has_no_gpu, error == VARVE_ERROR_UNSUPPORTED, __ATOMIC_RELAXED);
        return NULL;
    }
    if (!__atomic_compare_exchange_n(&memory->gpu, &gpu, opened, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        gpu_close(opened); /* another thread came first */
        return gpu;
    }
    return opened;
}

int memory_side_stream(struct varve_memory *memory, unsigned number, uint64_t *stream_out,
                       struct varve_message *message)
{
    struct varve_device *device = memory->device;
    uint64_t *slot = &memory->streams[number];
    uint64_t stream = __atomic_load_n(slot, __ATOMIC_ACQUIRE), made = 0;
    int error = stream != 0 ? VARVE_OK : device->ops->stream_create(device, &made);
    if (error != VARVE_OK) {
        return gpu_device_error(device, error, "a stream for copies", message);
    }
    if (stream == 0) {
        if (__atomic_compare_exchange_n(slot, &stream, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            stream = made;
        } else {
            device->ops->stream_destroy(device, made); /* another thread came first */
        }
    }
    *stream_out = stream;
    return VARVE_OK;
}

int memory_wait(struct varve_memory *memory, uint64_t stream, struct varve_message *message)
{
    int error = memory->device->ops->stream_synchronize(memory->device, stream);
    return error == VARVE_OK ? VARVE_OK : gpu_device_error(memory->device, error, "waiting for a stream", message);
}

static int allocate_plain(uint64_t bytes, uint64_t alignment, struct memory_piece *piece, struct varve_message *message)
{
    if (posix_memalign(&piece->data, alignment, bytes) != 0) {
        piece->data = NULL;
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "the C library has no %" PRIu64 " bytes", bytes);
    }
    return VARVE_OK;
}

static int allocate_block(struct varve_memory *memory, uint64_t bytes, uint64_t alignment, uint64_t stream,
                          struct memory_piece *piece, struct varve_message *message)
{
    uint64_t more = alignment > BLOCK_ALIGNMENT ? alignment - BLOCK_ALIGNMENT : 0;
    int error = varve_alloc_allocate(memory->alloc, bytes + more, stream, &piece->allocation, message);
    uint64_t addr = varve_allocation_addr(piece->allocation);
    piece->data = (void *)(uintptr_t)(more > 0 ? (addr + alignment - 1) & ~(alignment - 1) : addr);
    return error;
}

void memory_hold(struct varve_memory *memory)
{
    __atomic_add_fetch(&memory->users, 1, __ATOMIC_RELAXED);
}

void memory_drop(struct varve_memory *memory)
{
    __atomic_sub_fetch(&memory->users, 1, __ATOMIC_RELEASE);
}

int memory_allocate(struct varve_memory *memory, uint64_t bytes, uint64_t alignment, uint64_t stream,
                    struct memory_piece *piece_out, struct varve_message *message)
{
    struct memory_piece piece = {.alignment = alignment, .stream = stream};
    alignment = alignment != 0 ? alignment : memory->alignment;
    int error = VARVE_OK;
    if (bytes > 0) {
        error = memory->alloc == NULL
                    ? allocate_plain(bytes, alignment < sizeof(void *) ? sizeof(void *) : alignment, &piece, message)
                    : allocate_block(memory, bytes, alignment, stream, &piece, message);
    }
    if (error == VARVE_OK) {
        memory_hold(memory);
        *piece_out = piece;
    }
    return error;
}

int memory_array(struct varve_memory *memory, const struct varve_array *like, enum varve_dtype dtype, uint64_t stream,
                 struct varve_array *array_out, struct memory_piece *piece_out, struct varve_message *message)
{
    struct varve_array array = {.dtype = dtype};
    int error = varve_geometry_contiguous(like->geometry.ndim, like->geometry.shape, &array.geometry, message);
    VARVE_THEN(error, memory_allocate(memory, array_bytes(&array), 0, stream, piece_out, message));
    if (error == VARVE_OK) {
        array.data = piece_out->data;
        *array_out = array;
    }
    return error;
}

void memory_free(struct varve_memory *memory, const struct memory_piece *piece)
{
    if (memory->alloc == NULL) {
        free(piece->data);
    } else {
        /* An error is the device's, and the block's next user is told. */
        varve_alloc_free(memory->alloc, piece->allocation, NULL);
    }
    memory_drop(memory);
}
