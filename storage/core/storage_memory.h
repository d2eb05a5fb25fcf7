/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes for storages: of the C library, or blocks of an allocator. */
#ifndef VARVE_STORAGE_CORE_STORAGE_MEMORY_H
#define VARVE_STORAGE_CORE_STORAGE_MEMORY_H

#include "storage/cuda/gpu_work.h"
#include "storage/storage.h"

struct staging;

#define MEMORY_STREAMS_MAX 16U

struct varve_memory {
    struct varve_alloc *alloc;   /* NULL: the C library */
    struct varve_device *device; /* NULL there */
    uint64_t alignment;          /* of what is not asked to be aligned otherwise */
    bool is_addressable;
    uint64_t users;                       /* pieces that are in use. Atomic */
    struct gpu *gpu;                      /* NULL until somebody asks for it. Atomic */
    bool has_no_gpu;                      /* and never will have: it was asked for. Atomic */
    struct staging *staging;              /* likewise */
    uint64_t streams[MEMORY_STREAMS_MAX]; /* of the device. 0 until somebody asks for them. Atomic */
};

/* Of element [0, 0, …], whether there is one or not. */
static inline uint64_t array_addr(const struct varve_array *array)
{
    return (uint64_t)(uintptr_t)array->data + (uint64_t)array->geometry.offset * varve_dtype_bytes(array->dtype);
}

/* Of all its elements. */
static inline uint64_t array_bytes(const struct varve_array *array)
{
    return (uint64_t)varve_geometry_count(&array->geometry) * varve_dtype_bytes(array->dtype);
}

/* Is one and the same place to compute in: the processor's, or one device? */
static inline bool memory_is_beside(const struct varve_memory *memory, const struct varve_memory *other)
{
    return memory->is_addressable ? other->is_addressable : memory->device == other->device;
}

/* A piece of memory that somebody owns. */
struct memory_piece {
    void *data;                         /* aligned as was asked for; NULL: 0 bytes */
    struct varve_allocation allocation; /* of an allocator */
    uint64_t alignment, stream;         /* as they were asked for: another piece in its place gets the same */
};

/// Until a device's stream has done what it has. Errors: the device's.
int memory_wait(struct varve_memory *memory, uint64_t stream, struct varve_message *message);
/// What launches kernels on the memory's device, opened at the first question; as long as the memory. NULL: the device
/// runs no programs, the build has none, or there was no memory for it. Threads: any.
struct gpu *memory_gpu(struct varve_memory *memory);
/// One of the streams that the memory has for work of its own, opened at the first question; as long as the memory, so
/// that blocks that the allocator keeps for a stream are used again. `number`: below MEMORY_STREAMS_MAX. Threads: any.
/// Errors: the device's.
int memory_side_stream(struct varve_memory *memory, unsigned number, uint64_t *stream_out,
                       struct varve_message *message);
/// `alignment`: a power of two; 0: the memory's usual. 0 bytes need none. Errors: VARVE_ERROR_NO_MEMORY,
/// the allocator's.
int memory_allocate(struct varve_memory *memory, uint64_t bytes, uint64_t alignment, uint64_t stream,
                    struct memory_piece *piece_out, struct varve_message *message);
/// A contiguous array of the shape of `like` and another type, its elements undefined, in such a piece. Errors: as
/// memory_allocate.
int memory_array(struct varve_memory *memory, const struct varve_array *like, enum varve_dtype dtype, uint64_t stream,
                 struct varve_array *array_out, struct memory_piece *piece_out, struct varve_message *message);
void memory_free(struct varve_memory *memory, const struct memory_piece *piece);
/// The memory is in use, without a piece of it: by foreign memory of its kind.
void memory_hold(struct varve_memory *memory);
void memory_drop(struct varve_memory *memory);

#endif
