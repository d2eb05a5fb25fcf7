/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUDA recorder (cuda/) and its tests */
/*
 * Which functions of CUDA the recorder puts itself in front of: one row each, from which the exported
 * symbols, the answers to dlsym and cuGetProcAddress and the declarations are made. Types are own
 * declarations, so that it builds where there is no toolkit; test_cuda_hooks.c compares names, versions and
 * prototypes with <cuda.h> and <cuda_runtime_api.h> where there are any.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_HOOKS_H
#define VARVE_TRACE_RECORDER_CUDA_HOOKS_H

#include "trace/recorder/cuda/array.h"

#include <stddef.h>
#include <stdint.h>

/* ---- types: those of the driver, as far as they are looked into ---- */

typedef uint64_t cuda_address;
typedef uint64_t cuda_memory; /* a handle of physical memory */
typedef int cuda_ordinal;     /* a device */
typedef void *cuda_context;
typedef void *cuda_stream;
typedef void *cuda_event;
typedef void *cuda_pool;
typedef void *cuda_array;
typedef void *cuda_mipmaps;
typedef int cuda_handle_type;
typedef int cuda_pool_attribute;
typedef int cuda_address_status;

struct cuda_location {
    int type, id;
};

#define CUDA_LOCATION_DEVICE 1
#define CUDA_ALLOCATION_MANAGED 2

/* Of physical memory. */
struct cuda_properties {
    int type, handle_types;
    struct cuda_location location;
    void *windows_only;
    unsigned char flags[8];
};

/* Of a pool: the front part. */
struct cuda_pool_properties {
    int type, handle_types;
    struct cuda_location location;
};

struct cuda_access {
    struct cuda_location location;
    int flags;
};

struct cuda_ipc_memory {
    char bytes[64];
};

#define CUDA_POOL_THRESHOLD 4 /* the attribute: bytes that a pool may keep */
#define CUDA_STREAM_LEGACY 1
#define CUDA_STREAM_PER_THREAD 2
#define CUDA_CAPTURE_RELAXED 2
#define CUDA_CAPTURE_ACTIVE 1

#define CUDA_RESULT_NOT_INITIALIZED 3
#define CUDA_RESULT_DEINITIALIZED 4
#define CUDA_RESULT_NOT_SUPPORTED 801

/* ---- the driver's functions ---- */

enum cuda_hook_flag {
    CUDA_HOOK_PER_THREAD = 1, /* the variant whose default stream is the thread's own */
    CUDA_HOOK_REPLACE = 2,    /* of no interest unless cudaMalloc is served from elsewhere */
};

/* What cuGetProcAddress is asked for with the flag CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM. */
#define CUDA_ADDRESS_PER_THREAD 2U

/* Prototypes of functions that a driver for a newer CUDA gives out may have changed. */
#define CUDA_HOOK_VERSION_KNOWN 13000

/* X(exported, symbol, version, flags, parameters): `symbol`, asked for at `version` or later (up to the row
 * with the next higher one), is this function, which the library exports as `exported`. */
/* clang-format off */
#define CUDA_HOOK_LIST(X)                                                                                        \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (cuda_address *addr_out, size_t bytes))                                \
    X(cuMemFree_v2, cuMemFree, 3020, 0, (cuda_address addr))                                                     \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                                              \
      (cuda_address *addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element))                \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (cuda_address *addr_out, size_t bytes, unsigned flags))     \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, CUDA_HOOK_REPLACE,                                    \
      (cuda_address *base_out, size_t *bytes_out, cuda_address addr))                                            \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, 0, (void **memory_out, size_t bytes))                             \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, 0, (void **memory_out, size_t bytes, unsigned flags))                \
    X(cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *memory))                                                     \
    X(cuMemHostRegister_v2, cuMemHostRegister, 6050, 0, (void *memory, size_t bytes, unsigned flags))            \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *memory))                                         \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (cuda_address *addr_out, size_t bytes, cuda_stream stream))    \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, CUDA_HOOK_PER_THREAD,                                        \
      (cuda_address *addr_out, size_t bytes, cuda_stream stream))                                                \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0,                                                \
      (cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream))                                \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, CUDA_HOOK_PER_THREAD,                        \
      (cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream))                                \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (cuda_address addr, cuda_stream stream))                         \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, CUDA_HOOK_PER_THREAD, (cuda_address addr, cuda_stream stream)) \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (cuda_array *array_out, const struct cuda_array_2d *wanted))     \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (cuda_array *array_out, const struct cuda_array_3d *wanted)) \
    X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (cuda_array array))                                               \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                                   \
      (cuda_mipmaps *array_out, const struct cuda_array_3d *wanted, unsigned levels))                            \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (cuda_mipmaps array))                           \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020, 0,                                                        \
      (cuda_address *addr_out, size_t bytes, size_t alignment, cuda_address hint, unsigned long long flags))     \
    X(cuMemAddressFree, cuMemAddressFree, 10020, 0, (cuda_address addr, size_t bytes))                           \
    X(cuMemCreate, cuMemCreate, 10020, 0,                                                                        \
      (cuda_memory *handle_out, size_t bytes, const struct cuda_properties *wanted, unsigned long long flags))   \
    X(cuMemRelease, cuMemRelease, 10020, 0, (cuda_memory handle))                                                \
    X(cuMemMap, cuMemMap, 10020, 0,                                                                              \
      (cuda_address addr, size_t bytes, size_t offset, cuda_memory handle, unsigned long long flags))            \
    X(cuMemUnmap, cuMemUnmap, 10020, 0, (cuda_address addr, size_t bytes))                                       \
    X(cuMemSetAccess, cuMemSetAccess, 10020, 0,                                                                  \
      (cuda_address addr, size_t bytes, const struct cuda_access *access, size_t count))                         \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0, (cuda_memory *handle_out, void *addr)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,                                  \
      (cuda_memory *handle_out, void *shared, cuda_handle_type type))                                            \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0, (cuda_pool *pool_out, const struct cuda_pool_properties *wanted))\
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (cuda_pool pool))                                            \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (cuda_pool pool, size_t bytes_to_keep))                        \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0, (cuda_pool pool, cuda_pool_attribute attribute, void *value))\
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0,                                                       \
      (cuda_address *addr_out, struct cuda_ipc_memory handle, unsigned flags))                                   \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0, (cuda_address addr))                                    \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, CUDA_HOOK_REPLACE,                                             \
      (struct cuda_ipc_memory *handle_out, cuda_address addr))                                                   \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0, (cuda_ordinal device))                      \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0, (cuda_ordinal device))                  \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (cuda_context context))                                            \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void))                                                       \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, (cuda_context context))                                   \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (cuda_stream stream))                                   \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, CUDA_HOOK_PER_THREAD, (cuda_stream stream))           \
    X(cuEventSynchronize, cuEventSynchronize, 2000, 0, (cuda_event event))                                       \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0,                                                              \
      (const char *symbol, void **function_out, int version, uint64_t flags))                                    \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                                           \
      (const char *symbol, void **function_out, int version, uint64_t flags, cuda_address_status *status_out))
/* clang-format on */

enum cuda_hook {
#define CUDA_HOOK_ENUM(exported, symbol, version, flags, parameters) CUDA_HOOK_##exported,
    CUDA_HOOK_LIST(CUDA_HOOK_ENUM)
#undef CUDA_HOOK_ENUM
        CUDA_HOOK_COUNT
};

#define CUDA_HOOK_TYPE(exported, symbol, version, flags, parameters) \
    typedef int cuda_type_##exported parameters;
CUDA_HOOK_LIST(CUDA_HOOK_TYPE)
#undef CUDA_HOOK_TYPE

/* Our function as dlsym and cuGetProcAddress hand it out, and as programs find it that link the driver. */
#define CUDA_HOOK_DECLARE(exported, symbol, version, flags, parameters) \
    cuda_type_##exported cuda_resolved_##exported;                      \
    cuda_type_##exported cuda_exported_##exported;
CUDA_HOOK_LIST(CUDA_HOOK_DECLARE)
#undef CUDA_HOOK_DECLARE

/* ---- the functions of the runtime library: only noted as what the program called ---- */

typedef void *cuda_runtime_array;
typedef void *cuda_runtime_mipmaps;
typedef const void *cuda_format;
typedef void cuda_pitched;

struct cuda_extent {
    size_t width, height, depth;
};

#define CUDA_RUNTIME_RESULT_NO_DRIVER 35 /* cudaErrorInsufficientDriver */

/* X(name, CAUSE, parameters, arguments) */
/* clang-format off */
#define CUDA_RUNTIME_LIST(X)                                                                                     \
    X(cudaMalloc, CUDA_MALLOC, (void **out, size_t bytes), (out, bytes))                                         \
    X(cudaMallocManaged, CUDA_MALLOC_MANAGED, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))   \
    X(cudaMallocPitch, CUDA_MALLOC_PITCH, (void **out, size_t *pitch_out, size_t width, size_t height),          \
      (out, pitch_out, width, height))                                                                           \
    X(cudaMalloc3D, CUDA_MALLOC_3D, (cuda_pitched *out, struct cuda_extent extent), (out, extent))               \
    X(cudaMallocArray, CUDA_MALLOC_ARRAY,                                                                        \
      (cuda_runtime_array *out, cuda_format format, size_t width, size_t height, unsigned flags),                \
      (out, format, width, height, flags))                                                                       \
    X(cudaMalloc3DArray, CUDA_MALLOC_3D_ARRAY,                                                                   \
      (cuda_runtime_array *out, cuda_format format, struct cuda_extent extent, unsigned flags), (out, format, extent, flags))\
    X(cudaMallocMipmappedArray, CUDA_MALLOC_MIPMAPPED_ARRAY,                                                     \
      (cuda_runtime_mipmaps *out, cuda_format format, struct cuda_extent extent, unsigned levels, unsigned flags),\
      (out, format, extent, levels, flags))                                                                      \
    X(cudaMallocHost, CUDA_MALLOC_HOST, (void **out, size_t bytes), (out, bytes))                                \
    X(cudaHostAlloc, CUDA_HOST_ALLOC, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))           \
    X(cudaHostRegister, CUDA_HOST_REGISTER, (void *memory, size_t bytes, unsigned flags),                        \
      (memory, bytes, flags))                                                                                    \
    X(cudaHostUnregister, CUDA_HOST_UNREGISTER, (void *memory), (memory))                                        \
    X(cudaMallocAsync, CUDA_MALLOC_ASYNC, (void **out, size_t bytes, cuda_stream stream), (out, bytes, stream))  \
    X(cudaMallocAsync_ptsz, CUDA_MALLOC_ASYNC, (void **out, size_t bytes, cuda_stream stream), (out, bytes, stream))\
    X(cudaMallocFromPoolAsync, CUDA_MALLOC_FROM_POOL_ASYNC,                                                      \
      (void **out, size_t bytes, cuda_pool pool, cuda_stream stream), (out, bytes, pool, stream))                \
    X(cudaMallocFromPoolAsync_ptsz, CUDA_MALLOC_FROM_POOL_ASYNC,                                                 \
      (void **out, size_t bytes, cuda_pool pool, cuda_stream stream), (out, bytes, pool, stream))                \
    X(cudaFree, CUDA_FREE, (void *memory), (memory))                                                             \
    X(cudaFreeArray, CUDA_FREE_ARRAY, (cuda_runtime_array array), (array))                                       \
    X(cudaFreeMipmappedArray, CUDA_FREE_MIPMAPPED_ARRAY, (cuda_runtime_mipmaps array), (array))                  \
    X(cudaFreeHost, CUDA_FREE_HOST, (void *memory), (memory))                                                    \
    X(cudaFreeAsync, CUDA_FREE_ASYNC, (void *memory, cuda_stream stream), (memory, stream))                      \
    X(cudaFreeAsync_ptsz, CUDA_FREE_ASYNC, (void *memory, cuda_stream stream), (memory, stream))                 \
    X(cudaDeviceReset, CUDA_DEVICE_RESET, (void), ())                                                            \
    X(cudaDeviceSynchronize, CUDA_DEVICE_SYNCHRONIZE, (void), ())                                                \
    X(cudaStreamSynchronize, CUDA_STREAM_SYNCHRONIZE, (cuda_stream stream), (stream))                            \
    X(cudaStreamSynchronize_ptsz, CUDA_STREAM_SYNCHRONIZE, (cuda_stream stream), (stream))                       \
    X(cudaEventSynchronize, CUDA_EVENT_SYNCHRONIZE, (cuda_event event), (event))
/* clang-format on */

#define CUDA_RUNTIME_TYPE(name, CAUSE, parameters, arguments) typedef int cuda_type_##name parameters;
CUDA_RUNTIME_LIST(CUDA_RUNTIME_TYPE)
#undef CUDA_RUNTIME_TYPE

#endif
