/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of CUDA the recorder puts itself in front of: one row each, from which the exported
 * symbols, the answers to dlsym and cuGetProcAddress and the declarations are made. Types are own
 * declarations, so that it builds where there is no toolkit; test_cuda_hooks.c compares names, versions and
 * prototypes with <cuda.h> and <cuda_runtime_api.h> where there are any.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_HOOKS_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_HOOKS_H

#include "trace/recorder/cuda/driver_calls.h"

#include <stddef.h>
#include <stdint.h>

/* types: those of the driver, as far as they are looked into */

typedef void *cuda_array;
typedef void *cuda_mipmaps;
typedef int cuda_handle_type;

#define CUDA_CAPTURE_RELAXED 2
#define CUDA_CAPTURE_ACTIVE 1

#define CUDA_RESULT_NOT_INITIALIZED 3
#define CUDA_RESULT_DEINITIALIZED 4
#define CUDA_RESULT_NOT_SUPPORTED 801

/* the driver's functions */

enum cuda_hook_flag {
    CUDA_HOOK_PER_THREAD = 1, /* the variant whose default stream is the thread's own */
    CUDA_HOOK_REPLACE = 2,    /* of no interest unless cudaMalloc is served from elsewhere */
};

/* What cuGetProcAddress is asked for with the flag CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM. */
#define CUDA_ADDRESS_PER_THREAD 2U

/* Prototypes of functions that a driver for a newer CUDA gives out may have changed. */
#define CUDA_HOOK_VERSION_KNOWN 13000

/* X(exported, symbol, version, flags, parameters, arguments, layout, described): `symbol`, asked for at `version`
 * or later (up to the row with the next higher one), is this function, which the library exports as `exported`.
 * A struct cuda_arguments_`layout` of the values `described` is what driver_calls.c reads. */
/* clang-format off */
#define CUDA_RECORDED_LIST(X)                                                                                    \
    X(cuMemAlloc_v2, cuMemAlloc, 3020, 0, (cuda_address *addr_out, size_t bytes),                                \
      (addr_out, bytes), alloc, (addr_out, bytes))                                                               \
    X(cuMemFree_v2, cuMemFree, 3020, 0, (cuda_address addr), (addr), free, (addr))                               \
    X(cuMemAllocPitch_v2, cuMemAllocPitch, 3020, 0,                                                              \
      (cuda_address *addr_out, size_t *pitch_out, size_t width, size_t height, unsigned element),                \
      (addr_out, pitch_out, width, height, element), alloc_pitch, (addr_out, pitch_out, width, height, element)) \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000, 0, (cuda_address *addr_out, size_t bytes, unsigned flags),     \
      (addr_out, bytes, flags), alloc, (addr_out, bytes))                                                        \
    X(cuMemAllocHost_v2, cuMemAllocHost, 3020, 0, (void **memory_out, size_t bytes),                             \
      (memory_out, bytes), alloc, (memory_out, bytes))                                                           \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020, 0, (void **memory_out, size_t bytes, unsigned flags),                \
      (memory_out, bytes, flags), alloc, (memory_out, bytes))                                                    \
    X(cuMemFreeHost, cuMemFreeHost, 2000, 0, (void *memory), (memory), free, ((uintptr_t)memory))                \
    X(cuMemHostRegister_v2, cuMemHostRegister, 6050, 0, (void *memory, size_t bytes, unsigned flags),            \
      (memory, bytes, flags), range, ((uintptr_t)memory, bytes))                                                 \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000, 0, (void *memory), (memory), free, ((uintptr_t)memory))    \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020, 0, (cuda_address *addr_out, size_t bytes, cuda_stream stream),    \
      (addr_out, bytes, stream), alloc_async, (addr_out, bytes, (uintptr_t)stream))                              \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync, 11020, CUDA_HOOK_PER_THREAD,                                        \
      (cuda_address *addr_out, size_t bytes, cuda_stream stream),                                                \
      (addr_out, bytes, stream), alloc_async, (addr_out, bytes, (uintptr_t)stream))                              \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020, 0,                                                \
      (cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream),                                \
      (addr_out, bytes, pool, stream), alloc_pool, (addr_out, bytes, (uintptr_t)pool, (uintptr_t)stream))        \
    X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 11020, CUDA_HOOK_PER_THREAD,                        \
      (cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream),                                \
      (addr_out, bytes, pool, stream), alloc_pool, (addr_out, bytes, (uintptr_t)pool, (uintptr_t)stream))        \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020, 0, (cuda_address addr, cuda_stream stream),                         \
      (addr, stream), free_async, (addr, (uintptr_t)stream))                                                     \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync, 11020, CUDA_HOOK_PER_THREAD, (cuda_address addr, cuda_stream stream), \
      (addr, stream), free_async, (addr, (uintptr_t)stream))                                                     \
    X(cuArrayCreate_v2, cuArrayCreate, 3020, 0, (cuda_array *array_out, const struct cuda_array_2d *wanted),     \
      (array_out, wanted), array, (array_out, wanted, 1))                                                        \
    X(cuArray3DCreate_v2, cuArray3DCreate, 3020, 0, (cuda_array *array_out, const struct cuda_array_3d *wanted), \
      (array_out, wanted), array, (array_out, wanted, 1))                                                        \
    X(cuArrayDestroy, cuArrayDestroy, 2000, 0, (cuda_array array), (array), free, ((uintptr_t)array))            \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate, 5000, 0,                                                   \
      (cuda_mipmaps *array_out, const struct cuda_array_3d *wanted, unsigned levels),                            \
      (array_out, wanted, levels), array, (array_out, wanted, levels))                                           \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, 0, (cuda_mipmaps array),                           \
      (array), free, ((uintptr_t)array))                                                                         \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020, 0,                                                        \
      (cuda_address *addr_out, size_t bytes, size_t alignment, cuda_address hint, unsigned long long flags),     \
      (addr_out, bytes, alignment, hint, flags), alloc, (addr_out, bytes))                                       \
    X(cuMemAddressFree, cuMemAddressFree, 10020, 0, (cuda_address addr, size_t bytes),                           \
      (addr, bytes), range, (addr, bytes))                                                                       \
    X(cuMemCreate, cuMemCreate, 10020, 0,                                                                        \
      (cuda_memory *handle_out, size_t bytes, const struct cuda_memory_kind *wanted, unsigned long long flags),   \
      (handle_out, bytes, wanted, flags), create, (handle_out, bytes, wanted, flags))                            \
    X(cuMemRelease, cuMemRelease, 10020, 0, (cuda_memory handle), (handle), free, (handle))                      \
    X(cuMemMap, cuMemMap, 10020, 0,                                                                              \
      (cuda_address addr, size_t bytes, size_t offset, cuda_memory handle, unsigned long long flags),            \
      (addr, bytes, offset, handle, flags), map, (addr, bytes, offset, handle, flags))                           \
    X(cuMemUnmap, cuMemUnmap, 10020, 0, (cuda_address addr, size_t bytes), (addr, bytes), range, (addr, bytes))  \
    X(cuMemSetAccess, cuMemSetAccess, 10020, 0,                                                                  \
      (cuda_address addr, size_t bytes, const struct cuda_access *access, size_t count),                         \
      (addr, bytes, access, count), access, (addr, bytes, access, count))                                        \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, 0, (cuda_memory *handle_out, void *addr), \
      (handle_out, addr), out, (handle_out))                                                                     \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, 0,                                  \
      (cuda_memory *handle_out, void *shared, cuda_handle_type type),                                            \
      (handle_out, shared, type), out, (handle_out))                                                             \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020, 0,                                                                \
      (cuda_pool *pool_out, const struct cuda_pool_kind *wanted),                                          \
      (pool_out, wanted), pool_create, (pool_out, wanted))                                                       \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020, 0, (cuda_pool pool), (pool), free, ((uintptr_t)pool))           \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, 0, (cuda_pool pool, size_t bytes_to_keep),                        \
      (pool, bytes_to_keep), pool_trim, ((uintptr_t)pool, bytes_to_keep))                                        \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, 0,                                                    \
      (cuda_pool pool, enum cuda_pool_attribute attribute, void *value),                                              \
      (pool, attribute, value), pool_set, ((uintptr_t)pool, (unsigned)attribute, value))                         \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, 0,                                                       \
      (cuda_address *addr_out, struct cuda_ipc_memory handle, unsigned flags),                                   \
      (addr_out, handle, flags), out, (addr_out))                                                                \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, 0, (cuda_address addr), (addr), free, (addr))              \
    X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, 11000, 0, (cuda_ordinal device),                      \
      (device), device, (device))                                                                                \
    X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, 11000, 0, (cuda_ordinal device),                  \
      (device), device, (device))                                                                                \
    X(cuCtxDestroy_v2, cuCtxDestroy, 4000, 0, (cuda_context context), (context), context, (context))             \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000, 0, (void), (), context, (NULL))                                  \
    X(cuCtxSynchronize_v2, cuCtxSynchronize, 13000, 0, (cuda_context context), (context), context, (context))    \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000, 0, (cuda_stream stream),                                   \
      (stream), sync, ((uintptr_t)stream))                                                                       \
    X(cuStreamSynchronize_ptsz, cuStreamSynchronize, 7000, CUDA_HOOK_PER_THREAD, (cuda_stream stream),           \
      (stream), sync, ((uintptr_t)stream))                                                                       \
    X(cuEventSynchronize, cuEventSynchronize, 2000, 0, (cuda_event event), (event), sync, ((uintptr_t)event))

/* The same without the last two columns: what is answered, not recorded. */
#define CUDA_ANSWERED_LIST(X)                                                                                    \
    X(cuMemGetAddressRange_v2, cuMemGetAddressRange, 3020, CUDA_HOOK_REPLACE,                                    \
      (cuda_address *base_out, size_t *bytes_out, cuda_address addr), (base_out, bytes_out, addr))               \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, CUDA_HOOK_REPLACE,                                             \
      (struct cuda_ipc_memory *handle_out, cuda_address addr), (handle_out, addr))                               \
    X(cuGetProcAddress, cuGetProcAddress, 11030, 0,                                                              \
      (const char *symbol, void **function_out, int version, uint64_t flags),                                    \
      (symbol, function_out, version, flags))                                                                    \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, 0,                                                           \
      (const char *symbol, void **function_out, int version, uint64_t flags, enum cuda_address_status *status_out),   \
      (symbol, function_out, version, flags, status_out))
/* clang-format on */

#define CUDA_HOOK_LIST(X) CUDA_RECORDED_LIST(X) CUDA_ANSWERED_LIST(X)

enum cuda_hook {
#define CUDA_HOOK_ENUM(exported, symbol, version, flags, parameters, ...) CUDA_HOOK_##exported,
    CUDA_HOOK_LIST(CUDA_HOOK_ENUM)
#undef CUDA_HOOK_ENUM
        CUDA_HOOK_COUNT
};

#define CUDA_HOOK_TYPE(exported, symbol, version, flags, parameters, ...) typedef int cuda_type_##exported parameters;
CUDA_HOOK_LIST(CUDA_HOOK_TYPE)
#undef CUDA_HOOK_TYPE

/* Our function as dlsym and cuGetProcAddress hand it out, and as programs find it that link the driver. */
#define CUDA_HOOK_DECLARE(exported, symbol, version, flags, parameters, ...) \
    cuda_type_##exported cuda_resolved_##exported;                           \
    cuda_type_##exported cuda_exported_##exported;
CUDA_HOOK_LIST(CUDA_HOOK_DECLARE)
#undef CUDA_HOOK_DECLARE

/* the functions of the runtime library: only noted as what the program called */

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
    X(cudaMalloc, CUDA_MALLOC, (void **out, size_t bytes), (out, bytes))                                               \
    X(cudaMallocManaged, CUDA_MALLOC_MANAGED, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))         \
    X(cudaMallocPitch, CUDA_MALLOC_PITCH, (void **out, size_t *pitch_out, size_t width, size_t height),                \
      (out, pitch_out, width, height))                                                                                 \
    X(cudaMalloc3D, CUDA_MALLOC_3D, (cuda_pitched *out, struct cuda_extent extent), (out, extent))                     \
    X(cudaMallocArray, CUDA_MALLOC_ARRAY,                                                                              \
      (cuda_runtime_array *out, cuda_format format, size_t width, size_t height, unsigned flags),                      \
      (out, format, width, height, flags))                                                                             \
    X(cudaMalloc3DArray, CUDA_MALLOC_3D_ARRAY,                                                                         \
      (cuda_runtime_array *out, cuda_format format, struct cuda_extent extent, unsigned flags),                        \
      (out, format, extent, flags))                                                                                    \
    X(cudaMallocMipmappedArray, CUDA_MALLOC_MIPMAPPED_ARRAY,                                                           \
      (cuda_runtime_mipmaps *out, cuda_format format, struct cuda_extent extent, unsigned levels, unsigned flags),     \
      (out, format, extent, levels, flags))                                                                            \
    X(cudaMallocHost, CUDA_MALLOC_HOST, (void **out, size_t bytes), (out, bytes))                                      \
    X(cudaHostAlloc, CUDA_HOST_ALLOC, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))                 \
    X(cudaHostRegister, CUDA_HOST_REGISTER, (void *memory, size_t bytes, unsigned flags),                              \
      (memory, bytes, flags))                                                                                          \
    X(cudaHostUnregister, CUDA_HOST_UNREGISTER, (void *memory), (memory))                                              \
    X(cudaMallocAsync, CUDA_MALLOC_ASYNC, (void **out, size_t bytes, cuda_stream stream), (out, bytes, stream))        \
    X(cudaMallocAsync_ptsz, CUDA_MALLOC_ASYNC, (void **out, size_t bytes, cuda_stream stream), (out, bytes, stream))   \
    X(cudaMallocFromPoolAsync, CUDA_MALLOC_FROM_POOL_ASYNC,                                                            \
      (void **out, size_t bytes, cuda_pool pool, cuda_stream stream), (out, bytes, pool, stream))                      \
    X(cudaMallocFromPoolAsync_ptsz, CUDA_MALLOC_FROM_POOL_ASYNC,                                                       \
      (void **out, size_t bytes, cuda_pool pool, cuda_stream stream), (out, bytes, pool, stream))                      \
    X(cudaFree, CUDA_FREE, (void *memory), (memory))                                                                   \
    X(cudaFreeArray, CUDA_FREE_ARRAY, (cuda_runtime_array array), (array))                                             \
    X(cudaFreeMipmappedArray, CUDA_FREE_MIPMAPPED_ARRAY, (cuda_runtime_mipmaps array), (array))                        \
    X(cudaFreeHost, CUDA_FREE_HOST, (void *memory), (memory))                                                          \
    X(cudaFreeAsync, CUDA_FREE_ASYNC, (void *memory, cuda_stream stream), (memory, stream))                            \
    X(cudaFreeAsync_ptsz, CUDA_FREE_ASYNC, (void *memory, cuda_stream stream), (memory, stream))                       \
    X(cudaDeviceReset, CUDA_DEVICE_RESET, (void), ())                                                                  \
    X(cudaDeviceSynchronize, CUDA_DEVICE_SYNCHRONIZE, (void), ())                                                      \
    X(cudaStreamSynchronize, CUDA_STREAM_SYNCHRONIZE, (cuda_stream stream), (stream))                                  \
    X(cudaStreamSynchronize_ptsz, CUDA_STREAM_SYNCHRONIZE, (cuda_stream stream), (stream))                             \
    X(cudaEventSynchronize, CUDA_EVENT_SYNCHRONIZE, (cuda_event event), (event))
/* clang-format on */

#define CUDA_RUNTIME_TYPE(name, CAUSE, parameters, arguments) typedef int cuda_type_##name parameters;
CUDA_RUNTIME_LIST(CUDA_RUNTIME_TYPE)
#undef CUDA_RUNTIME_TYPE

#endif
