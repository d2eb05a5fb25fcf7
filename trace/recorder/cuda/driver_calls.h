/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both recorders know of the driver's functions: what kind of record each one makes, and how its arguments
 * are read. One row a function. The CUDA recorder fills the argument structs itself, CUPTI hands them over;
 * test_cupti_headers.c compares them with CUPTI's headers where there are any.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_DRIVER_CALLS_H
#define VARVE_TRACE_RECORDER_CUDA_DRIVER_CALLS_H

#include "base/cuda_types.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cuda_role {
    CUDA_ROLE_ALLOC,   /* one record when it has returned; its address is an out-parameter */
    CUDA_ROLE_AFTER,   /* one record when it has returned */
    CUDA_ROLE_FREE,    /* a record before: what it frees may have another owner when it returns */
    CUDA_ROLE_RESET,   /* a context's end */
    CUDA_ROLE_RELEASE, /* of a primary context: its end, if it was the last */
    CUDA_ROLE_INFO,    /* the state of the device; CUPTI's alone */
};

/* X(name, number, ROLE, KIND, CAUSE, MEMORY, is_own, reader). `number`: CUPTI_DRIVER_TRACE_CBID_name; `is_own`: stream
 * 0 is the thread's own. Some older versions are CUPTI's alone. Not those whose addresses have 32 bits: no GPU of
 * today serves them. */
/* clang-format off */
#define CUDA_DRIVER_CALL_LIST(X)                                                                                 \
    X(cuCtxDestroy, 11, RESET, DEV_RESET, CU_CTX_DESTROY, UNKNOWN, 0, context)                                   \
    X(cuCtxSynchronize, 17, AFTER, DEV_SYNC, CU_CTX_SYNCHRONIZE, UNKNOWN, 0, nothing)                            \
    X(cuMemFreeHost, 38, FREE, DEV_FREE, CU_MEM_FREE_HOST, PINNED, 0, free)                                      \
    X(cuMemHostAlloc, 39, ALLOC, DEV_ALLOC, CU_MEM_HOST_ALLOC, PINNED, 0, alloc)                                 \
    X(cuArrayDestroy, 89, FREE, DEV_FREE, CU_ARRAY_DESTROY, ARRAY, 0, free)                                      \
    X(cuEventSynchronize, 121, AFTER, DEV_SYNC, CU_EVENT_SYNCHRONIZE, UNKNOWN, 0, event)                         \
    X(cuStreamSynchronize, 126, AFTER, DEV_SYNC, CU_STREAM_SYNCHRONIZE, UNKNOWN, 0, stream)                      \
    X(cuMemGetInfo_v2, 242, INFO, DEV_MEMORY, CU_MEM_GET_INFO, UNKNOWN, 0, info)                                 \
    X(cuMemAlloc_v2, 243, ALLOC, DEV_ALLOC, CU_MEM_ALLOC, DEVICE, 0, alloc)                                      \
    X(cuMemAllocPitch_v2, 244, ALLOC, DEV_ALLOC, CU_MEM_ALLOC_PITCH, DEVICE, 0, pitch)                           \
    X(cuMemFree_v2, 245, FREE, DEV_FREE, CU_MEM_FREE, DEVICE, 0, free)                                           \
    X(cuMemHostAlloc_v2, 271, ALLOC, DEV_ALLOC, CU_MEM_HOST_ALLOC, PINNED, 0, alloc)                             \
    X(cuArrayCreate_v2, 272, ALLOC, DEV_ALLOC, CU_ARRAY_CREATE, ARRAY, 0, array)                                 \
    X(cuArray3DCreate_v2, 274, ALLOC, DEV_ALLOC, CU_ARRAY_3D_CREATE, ARRAY, 0, array_3d)                         \
    X(cuMemAllocHost_v2, 294, ALLOC, DEV_ALLOC, CU_MEM_ALLOC_HOST, PINNED, 0, alloc)                             \
    X(cuMemHostRegister, 301, ALLOC, DEV_ALLOC, CU_MEM_HOST_REGISTER, PINNED, 0, range)                          \
    X(cuMemHostUnregister, 302, FREE, DEV_FREE, CU_MEM_HOST_UNREGISTER, PINNED, 0, free)                         \
    X(cuCtxDestroy_v2, 322, RESET, DEV_RESET, CU_CTX_DESTROY, UNKNOWN, 0, context)                               \
    X(cuIpcOpenMemHandle, 329, ALLOC, DEV_ALLOC, CU_IPC_OPEN_MEM_HANDLE, DEVICE, 0, ipc_open)                    \
    X(cuIpcCloseMemHandle, 330, FREE, DEV_FREE, CU_IPC_CLOSE_MEM_HANDLE, DEVICE, 0, free)                        \
    X(cuMipmappedArrayCreate, 347, ALLOC, DEV_ALLOC, CU_MIPMAPPED_ARRAY_CREATE, ARRAY, 0, mipmapped)             \
    X(cuMipmappedArrayDestroy, 349, FREE, DEV_FREE, CU_MIPMAPPED_ARRAY_DESTROY, ARRAY, 0, free)                  \
    X(cuMemAllocManaged, 371, ALLOC, DEV_ALLOC, CU_MEM_ALLOC_MANAGED, MANAGED, 0, alloc)                         \
    X(cuMemHostRegister_v2, 379, ALLOC, DEV_ALLOC, CU_MEM_HOST_REGISTER, PINNED, 0, range)                       \
    X(cuDevicePrimaryCtxRelease, 387, RELEASE, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RELEASE, UNKNOWN, 0, device)     \
    X(cuDevicePrimaryCtxReset, 389, RESET, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RESET, UNKNOWN, 0, device)           \
    X(cuStreamSynchronize_ptsz, 440, AFTER, DEV_SYNC, CU_STREAM_SYNCHRONIZE, UNKNOWN, 1, stream)                 \
    X(cuDevicePrimaryCtxRelease_v2, 544, RELEASE, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RELEASE, UNKNOWN, 0, device)  \
    X(cuDevicePrimaryCtxReset_v2, 545, RESET, DEV_RESET, CU_DEVICE_PRIMARY_CTX_RESET, UNKNOWN, 0, device)        \
    X(cuMemAddressReserve, 547, AFTER, VMM_RESERVE, CU_MEM_ADDRESS_RESERVE, DEVICE, 0, alloc)                    \
    X(cuMemAddressFree, 548, FREE, VMM_ADDRESS_FREE, CU_MEM_ADDRESS_FREE, DEVICE, 0, range)                      \
    X(cuMemCreate, 549, ALLOC, VMM_CREATE, CU_MEM_CREATE, DEVICE, 0, create)                                     \
    X(cuMemRelease, 550, FREE, VMM_RELEASE, CU_MEM_RELEASE, DEVICE, 0, release)                                  \
    X(cuMemMap, 551, AFTER, VMM_MAP, CU_MEM_MAP, DEVICE, 0, map)                                                 \
    X(cuMemUnmap, 552, FREE, VMM_UNMAP, CU_MEM_UNMAP, DEVICE, 0, range)                                          \
    X(cuMemSetAccess, 553, AFTER, VMM_SET_ACCESS, CU_MEM_SET_ACCESS, DEVICE, 0, access)                          \
    X(cuMemImportFromShareableHandle, 555, AFTER, VMM_CREATE, CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE, DEVICE, 0, out) \
    X(cuMemRetainAllocationHandle, 565, AFTER, VMM_CREATE, CU_MEM_RETAIN_ALLOCATION_HANDLE, DEVICE, 0, out)      \
    X(cuIpcOpenMemHandle_v2, 567, ALLOC, DEV_ALLOC, CU_IPC_OPEN_MEM_HANDLE, DEVICE, 0, ipc_open)                 \
    X(cuMemAllocAsync, 598, ALLOC, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_ASYNC, DEVICE, 0, alloc_async)                  \
    X(cuMemAllocAsync_ptsz, 599, ALLOC, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_ASYNC, DEVICE, 1, alloc_async)             \
    X(cuMemFreeAsync, 600, FREE, DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, DEVICE, 0, free_async)                       \
    X(cuMemFreeAsync_ptsz, 601, FREE, DEV_FREE_ASYNC, CU_MEM_FREE_ASYNC, DEVICE, 1, free_async)                  \
    X(cuMemPoolTrimTo, 602, AFTER, DEV_POOL, CU_MEM_POOL_TRIM_TO, DEVICE, 0, pool_trim)                          \
    X(cuMemPoolSetAttribute, 603, AFTER, DEV_POOL, CU_MEM_POOL_SET_ATTRIBUTE, DEVICE, 0, pool_set)               \
    X(cuMemPoolCreate, 607, AFTER, DEV_POOL, CU_MEM_POOL_CREATE, DEVICE, 0, pool_create)                         \
    X(cuMemPoolDestroy, 608, AFTER, DEV_POOL, CU_MEM_POOL_DESTROY, DEVICE, 0, pool)                              \
    X(cuMemAllocFromPoolAsync, 611, ALLOC, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_FROM_POOL_ASYNC, DEVICE, 0, alloc_pool) \
    X(cuMemAllocFromPoolAsync_ptsz, 612, ALLOC, DEV_ALLOC_ASYNC, CU_MEM_ALLOC_FROM_POOL_ASYNC, DEVICE, 1, alloc_pool) \
    X(cuCtxSynchronize_v2, 800, AFTER, DEV_SYNC, CU_CTX_SYNCHRONIZE, UNKNOWN, 0, context)
/* clang-format on */

enum cuda_driver_call {
#define CUDA_DRIVER_CALL_ENUM(name, ...) CUDA_CALL_##name,
    CUDA_DRIVER_CALL_LIST(CUDA_DRIVER_CALL_ENUM)
#undef CUDA_DRIVER_CALL_ENUM
        CUDA_CALL_COUNT
};

/* What a call's arguments say. 0: nothing. */
struct cuda_parameters {
    uint64_t addr, bytes, arg;
    uint64_t stream; /* handle */
    uint64_t pool;   /* handle */
    void *context;
    int device;
    bool has_device; /* else it is that of the context */
    enum varve_memory_kind memory;
};

/* How a function of the driver is recorded. */
struct cuda_rule {
    uint8_t role; /* enum cuda_role */
    uint8_t kind, cause, memory;
    bool is_own; /* stream 0 is the thread's own */
    /* `arguments`: the struct of the function below. `has_out`: the call has succeeded, what it gives out may be
     * read. False: nothing worth a record. */
    bool (*read)(const void *arguments, bool has_out, struct cuda_parameters *out);
};

/// The rule of a function. Valid for good. Threads: any.
const struct cuda_rule *cuda_rule_of(enum cuda_driver_call call);

/// Two handles stand for default streams: 2 for the thread's own, and for that of all threads 1, which is 0 too.
static inline uint64_t cuda_stream_handle(uint64_t stream, bool is_own)
{
    if (stream == 0 && is_own) {
        return CUDA_STREAM_PER_THREAD;
    }
    return stream == CUDA_STREAM_LEGACY ? 0 : stream;
}

/* arguments, laid out as CUPTI hands them over; functions may have more of them behind these */

/* Of physical memory and of a pool: the front part. */
struct cuda_placement {
    int type, handle_types;
    struct cuda_location location;
};

/* Allocations and others that give out an address or a handle first: cuMemAlloc_v2, Managed, AllocHost,
 * HostAlloc, cuMemAddressReserve, and the beginning of the asynchronous ones. */
struct cuda_arguments_alloc {
    void *out;
    size_t bytes;
};

struct cuda_arguments_alloc_async {
    void *out;
    size_t bytes;
    uint64_t stream;
};

struct cuda_arguments_alloc_pool {
    void *out;
    size_t bytes;
    uint64_t pool, stream;
};

struct cuda_arguments_alloc_pitch {
    void *out;
    size_t *pitch_out;
    size_t width_bytes, height;
    uint32_t element_bytes;
};

/* cuMemFree_v2, FreeHost, HostUnregister, ArrayDestroy, MipmappedArrayDestroy, IpcClose, cuMemRelease: the
 * handle. */
struct cuda_arguments_free {
    uint64_t addr;
};

struct cuda_arguments_free_async {
    uint64_t addr, stream;
};

/* cuMemHostRegister, cuMemUnmap, cuMemAddressFree. */
struct cuda_arguments_range {
    uint64_t addr;
    size_t bytes;
};

struct cuda_array_2d {
    size_t width, height;
    unsigned format, channels;
};

struct cuda_array_3d {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

/* What is wanted is a struct cuda_array_2d or cuda_array_3d. */
struct cuda_arguments_array {
    void *out;
    const void *array;
    uint32_t levels; /* only of mipmapped ones */
};

struct cuda_arguments_create {
    void *out;
    size_t bytes;
    const void *properties; /* begin with struct cuda_placement */
    unsigned long long flags;
};

struct cuda_arguments_map {
    uint64_t addr;
    size_t bytes, offset;
    uint64_t handle;
    unsigned long long flags;
};

struct cuda_arguments_access {
    uint64_t addr;
    size_t bytes;
    const void *access;
    size_t count;
};

/* cuMemRetainAllocationHandle, cuMemImportFromShareableHandle, cuIpcOpenMemHandle: what they give out. */
struct cuda_arguments_out {
    void *out;
};

struct cuda_arguments_pool_create {
    void *out;
    const void *properties; /* begin with struct cuda_placement */
};

struct cuda_arguments_pool_trim {
    uint64_t pool;
    size_t bytes_to_keep;
};

struct cuda_arguments_pool_set {
    uint64_t pool;
    uint32_t attribute;
    const void *value; /* of 64 bits */
};

struct cuda_arguments_device {
    int32_t device;
};

struct cuda_arguments_context {
    void *context;
};

/* cuStreamSynchronize and cuEventSynchronize. */
struct cuda_arguments_sync {
    uint64_t handle;
};

struct cuda_arguments_info {
    size_t *free_out, *total_out;
};

#endif
