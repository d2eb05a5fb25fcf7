/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cuda device knows of the CUDA driver: own declarations of the types, constants and functions that
 * it uses, so that it builds where there is no toolkit, and the table of functions that is filled when a
 * device is opened. Nothing links against the driver. Names are ours, values and layouts the driver's;
 * test_device_cuda_driver.c compares all of them with <cuda.h> where there is one.
 *
 * Each function is asked for at the version whose prototype stands here (CUDA_DRIVER_LIST): the driver may
 * have newer ones of the same name that take other arguments.
 */
#ifndef VARVE_ALLOC_DEVICE_CUDA_DRIVER_H
#define VARVE_ALLOC_DEVICE_CUDA_DRIVER_H

#include "base/cuda_types.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define CUDA_VERSION_OLDEST 11000 /* what the driver is for: 1000 * major + 10 * minor */

/* types */

typedef uint32_t cuda_result; /* 0: success; else of CUDA_RESULT_LIST, or another one */
typedef struct cuda_module_opaque *cuda_module;
typedef struct cuda_function_opaque *cuda_function;

/* X(NAME, number, error): the driver's CUDA_ERROR_NAME, and the enum varve_error that stands for it. What is
 * not here is VARVE_ERROR_IO: the device, or a program's work on it, has failed. */
/* clang-format off */
#define CUDA_RESULT_LIST(X)                          \
    X(INVALID_VALUE, 1, INVALID)                     \
    X(OUT_OF_MEMORY, 2, NO_MEMORY)                   \
    X(NOT_INITIALIZED, 3, UNSUPPORTED) /* in a fork child of a process that used CUDA */ \
    X(DEINITIALIZED, 4, UNSUPPORTED) /* while the process ends */ \
    X(STUB_LIBRARY, 34, UNSUPPORTED)                 \
    X(DEVICE_UNAVAILABLE, 46, BUSY)                  \
    X(NO_DEVICE, 100, UNSUPPORTED)                   \
    X(INVALID_DEVICE, 101, NOT_FOUND)                \
    X(DEVICE_NOT_LICENSED, 102, PERMISSION)          \
    X(INVALID_CONTEXT, 201, UNSUPPORTED)             \
    X(ALREADY_MAPPED, 208, BUSY)                     \
    X(NO_BINARY_FOR_GPU, 209, UNSUPPORTED)           \
    X(PEER_ACCESS_UNSUPPORTED, 217, UNSUPPORTED)     \
    X(UNSUPPORTED_PTX_VERSION, 222, UNSUPPORTED)     \
    X(INVALID_HANDLE, 400, INVALID)                  \
    X(NOT_FOUND, 500, UNSUPPORTED) /* a function */  \
    X(NOT_READY, 600, BUSY)                          \
    X(PEER_ACCESS_ALREADY_ENABLED, 704, BUSY)        \
    X(CONTEXT_IS_DESTROYED, 709, UNSUPPORTED) /* the device was reset */ \
    X(TOO_MANY_PEERS, 711, FULL)                     \
    X(NOT_PERMITTED, 800, PERMISSION)                \
    X(NOT_SUPPORTED, 801, UNSUPPORTED)               \
    X(SYSTEM_NOT_READY, 802, UNSUPPORTED)            \
    X(SYSTEM_DRIVER_MISMATCH, 803, UNSUPPORTED)      \
    X(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804, UNSUPPORTED) \
    X(STREAM_CAPTURE_UNSUPPORTED, 900, BUSY)         \
    X(STREAM_CAPTURE_INVALIDATED, 901, BUSY)         \
    X(STREAM_CAPTURE_IMPLICIT, 906, BUSY)            \
    X(CAPTURED_EVENT, 907, BUSY)
/* clang-format on */

enum cuda_result_number {
    CUDA_RESULT_SUCCESS = 0,
#define CUDA_RESULT_ENUM(NAME, number, error) CUDA_RESULT_##NAME = (number),
    CUDA_RESULT_LIST(CUDA_RESULT_ENUM)
#undef CUDA_RESULT_ENUM
};

enum cuda_attribute {
    CUDA_ATTRIBUTE_HAS_VMM = 102,
    CUDA_ATTRIBUTE_SHARES_BY_FD = 103,
    CUDA_ATTRIBUTE_HAS_POOLS = 115,
};

/* Of an address; both are int. */
enum cuda_pointer_attribute {
    CUDA_POINTER_MEMORY_TYPE = 2, /* CUDA_MEMORY_… */
    CUDA_POINTER_ORDINAL = 9,
};

enum cuda_capture_mode {
    CUDA_CAPTURE_MODE_GLOBAL = 0,
    CUDA_CAPTURE_MODE_RELAXED = 2,
};

enum cuda_capture_status {
    CUDA_CAPTURE_STATUS_NONE = 0,
};

enum cuda_granularity {
    CUDA_GRANULARITY_MINIMUM = 0,
};

enum cuda_constant {
    CUDA_ALLOCATION_PINNED = 1,
    CUDA_HANDLE_TYPE_NONE = 0,
    CUDA_HANDLE_TYPE_FD = 1,
    CUDA_ACCESS_READ_WRITE = 3,
    CUDA_EVENT_NO_TIMING = 2,
    CUDA_STREAM_NON_BLOCKING = 1, /* the default stream does not wait for it, nor it for that */
    CUDA_IPC_LAZY_PEER_ACCESS = 1,
    CUDA_MEMORY_DEVICE = 2,
    CUDA_MEMORY_UNIFIED = 4,  /* an address of any memory: the driver knows which */
    CUDA_HOST_PORTABLE = 1,   /* host memory that is pinned for every context */
    CUDA_ADDRESS_DEFAULT = 0, /* of cuGetProcAddress */
};

/* Of cuMemcpy2D. Where an end is CUDA_MEMORY_UNIFIED, its address is in `…_device`. */
struct cuda_copy_2d {
    size_t source_x, source_y;
    unsigned source_type; /* CUDA_MEMORY_… */
    const void *source_host;
    cuda_address source_device;
    void *source_array;
    size_t source_pitch;
    size_t target_x, target_y;
    unsigned target_type;
    void *target_host;
    cuda_address target_device;
    void *target_array;
    size_t target_pitch;
    size_t row_bytes, rows;
};

/* functions */

/* Of cuGetProcAddress, and of the one of CUDA 12 and later. */
#define CUDA_ADDRESS_GET (const char *symbol, void **function_out, int version, uint64_t flags)
#define CUDA_ADDRESS_GET_V2 \
    (const char *symbol, void **function_out, int version, uint64_t flags, enum cuda_address_status *status_out)

typedef cuda_result(*cuda_address_get) CUDA_ADDRESS_GET;
typedef cuda_result(*cuda_address_get_v2) CUDA_ADDRESS_GET_V2;

/* X(field, symbol, exported, version, parameters): `symbol` at `version` is what cuGetProcAddress is asked
 * for, `exported` is the same function's name in the library. */
/* clang-format off */
#define CUDA_DRIVER_LIST(X)                                                                                  \
    X(init, cuInit, cuInit, 2000, (unsigned flags))                                                          \
    X(driver_version, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version_out))                      \
    X(error_name, cuGetErrorName, cuGetErrorName, 6000, (cuda_result result, const char **name_out))         \
    X(error_text, cuGetErrorString, cuGetErrorString, 6000, (cuda_result result, const char **text_out))     \
    X(device_count, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count_out))                              \
    X(device_get, cuDeviceGet, cuDeviceGet, 2000, (cuda_ordinal *device_out, int ordinal))                   \
    X(device_attribute, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,                                    \
      (int *value_out, enum cuda_attribute attribute, cuda_ordinal device))                                  \
    X(device_can_access, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000,                                 \
      (int *can_out, cuda_ordinal device, cuda_ordinal peer))                                                \
    X(primary_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,                              \
      (cuda_context *context_out, cuda_ordinal device))                                                      \
    X(primary_release, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000,                       \
      (cuda_ordinal device))                                                                                 \
    X(context_current, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (cuda_context *context_out))                  \
    X(context_push, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (cuda_context context))                     \
    X(context_pop, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (cuda_context *context_out))                   \
    X(context_enable_peer, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000,                               \
      (cuda_context peer, unsigned flags))                                                                   \
    X(capture_mode_exchange, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010,    \
      (enum cuda_capture_mode *mode))                                                                        \
    X(memory_alloc, cuMemAlloc, cuMemAlloc_v2, 3020, (cuda_address *addr_out, size_t bytes))                 \
    X(memory_free, cuMemFree, cuMemFree_v2, 3020, (cuda_address addr))                                       \
    X(memory_info, cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free_out, size_t *total_out))               \
    X(memory_range, cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020,                                     \
      (cuda_address *base_out, size_t *bytes_out, cuda_address addr))                                        \
    X(vmm_granularity, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,                  \
      (size_t *bytes_out, const struct cuda_memory_kind *kind, enum cuda_granularity which))                 \
    X(vmm_reserve, cuMemAddressReserve, cuMemAddressReserve, 10020,                                          \
      (cuda_address *addr_out, size_t bytes, size_t alignment, cuda_address hint, unsigned long long flags)) \
    X(vmm_address_free, cuMemAddressFree, cuMemAddressFree, 10020, (cuda_address addr, size_t bytes))        \
    X(vmm_create, cuMemCreate, cuMemCreate, 10020,                                                           \
      (cuda_memory *memory_out, size_t bytes, const struct cuda_memory_kind *kind, unsigned long long flags)) \
    X(vmm_release, cuMemRelease, cuMemRelease, 10020, (cuda_memory memory))                                  \
    X(vmm_map, cuMemMap, cuMemMap, 10020,                                                                    \
      (cuda_address addr, size_t bytes, size_t offset, cuda_memory memory, unsigned long long flags))        \
    X(vmm_unmap, cuMemUnmap, cuMemUnmap, 10020, (cuda_address addr, size_t bytes))                           \
    X(vmm_export, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,                         \
      (void *shareable_out, cuda_memory memory, unsigned type, unsigned long long flags))                    \
    X(vmm_import, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,                     \
      (cuda_memory *memory_out, void *shareable, unsigned type))                                             \
    X(context_synchronize, cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                 \
    X(vmm_set_access, cuMemSetAccess, cuMemSetAccess, 10020,                                                 \
      (cuda_address addr, size_t bytes, const struct cuda_access *access, size_t count))                     \
    X(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, 2000, (cuda_stream stream))              \
    X(stream_is_capturing, cuStreamIsCapturing, cuStreamIsCapturing, 10000,                                  \
      (cuda_stream stream, enum cuda_capture_status *status_out))                                            \
    X(stream_wait_event, cuStreamWaitEvent, cuStreamWaitEvent, 3020,                                         \
      (cuda_stream stream, cuda_event event, unsigned flags))                                                \
    X(event_create, cuEventCreate, cuEventCreate, 2000, (cuda_event *event_out, unsigned flags))             \
    X(event_destroy, cuEventDestroy, cuEventDestroy_v2, 4000, (cuda_event event))                            \
    X(event_record, cuEventRecord, cuEventRecord, 2000, (cuda_event event, cuda_stream stream))              \
    X(event_query, cuEventQuery, cuEventQuery, 2000, (cuda_event event))                                     \
    X(event_synchronize, cuEventSynchronize, cuEventSynchronize, 2000, (cuda_event event))                   \
    X(ipc_export, cuIpcGetMemHandle, cuIpcGetMemHandle, 4010,                                                \
      (struct cuda_ipc_memory *handle_out, cuda_address addr))                                               \
    X(ipc_open, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000,                                            \
      (cuda_address *addr_out, struct cuda_ipc_memory handle, unsigned flags))                               \
    X(ipc_close, cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (cuda_address addr))

/* Those for stream-ordered memory alone: a driver may be too old for them, then they are NULL. */
#define CUDA_DRIVER_POOL_LIST(X)                                                                             \
    X(pool_create, cuMemPoolCreate, cuMemPoolCreate, 11020,                                                  \
      (cuda_pool *pool_out, const struct cuda_pool_kind *kind))                                              \
    X(pool_destroy, cuMemPoolDestroy, cuMemPoolDestroy, 11020, (cuda_pool pool))                             \
    X(pool_set, cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020,                                         \
      (cuda_pool pool, enum cuda_pool_attribute attribute, void *value))                                     \
    X(pool_set_access, cuMemPoolSetAccess, cuMemPoolSetAccess, 11020,                                        \
      (cuda_pool pool, const struct cuda_access *access, size_t count))                                      \
    X(pool_trim, cuMemPoolTrimTo, cuMemPoolTrimTo, 11020, (cuda_pool pool, size_t keep_bytes))               \
    X(pool_alloc, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                                   \
      (cuda_address *addr_out, size_t bytes, cuda_pool pool, cuda_stream stream))                            \
    X(pool_free, cuMemFreeAsync, cuMemFreeAsync, 11020, (cuda_address addr, cuda_stream stream))

/* Those for streams of the caller's own, copies, fills and host memory; the first two for pools as well. Every driver
 * has them; without one of them they are all left alone. */
#define CUDA_DRIVER_TRANSFER_LIST(X)                                                                         \
    X(stream_create, cuStreamCreate, cuStreamCreate, 2000, (cuda_stream *stream_out, unsigned flags))        \
    X(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, 4000, (cuda_stream stream))                       \
    X(pointer_attribute, cuPointerGetAttribute, cuPointerGetAttribute, 4000,                                 \
      (void *value_out, enum cuda_pointer_attribute attribute, cuda_address addr))                           \
    X(copy, cuMemcpyAsync, cuMemcpyAsync, 4000,                                                              \
      (cuda_address target, cuda_address source, size_t bytes, cuda_stream stream))                          \
    X(copy_2d, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020,                                                    \
      (const struct cuda_copy_2d *copy, cuda_stream stream))                                                 \
    X(fill_8, cuMemsetD8Async, cuMemsetD8Async, 3020,                                                        \
      (cuda_address addr, unsigned char value, size_t count, cuda_stream stream))                            \
    X(fill_16, cuMemsetD16Async, cuMemsetD16Async, 3020,                                                     \
      (cuda_address addr, unsigned short value, size_t count, cuda_stream stream))                           \
    X(fill_32, cuMemsetD32Async, cuMemsetD32Async, 3020,                                                     \
      (cuda_address addr, unsigned value, size_t count, cuda_stream stream))                                 \
    X(fill_2d_32, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020,                                              \
      (cuda_address addr, size_t pitch, unsigned value, size_t row_count, size_t rows, cuda_stream stream))  \
    X(host_alloc, cuMemHostAlloc, cuMemHostAlloc, 2020, (void **memory_out, size_t bytes, unsigned flags))   \
    X(host_free, cuMemFreeHost, cuMemFreeHost, 2000, (void *memory))

/* Those for programs; every driver has them. */
#define CUDA_DRIVER_PROGRAM_LIST(X)                                                                          \
    X(module_load, cuModuleLoadData, cuModuleLoadData, 2000, (cuda_module *module_out, const void *image))   \
    X(module_unload, cuModuleUnload, cuModuleUnload, 2000, (cuda_module module))                             \
    X(module_function, cuModuleGetFunction, cuModuleGetFunction, 2000,                                       \
      (cuda_function *function_out, cuda_module module, const char *name))                                   \
    X(launch, cuLaunchKernel, cuLaunchKernel, 4000,                                                          \
      (cuda_function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,  \
       unsigned threads_y, unsigned threads_z, unsigned shared_bytes, cuda_stream stream, void **arguments,  \
       void **packed_arguments))
/* clang-format on */

struct cuda_driver {
#define CUDA_DRIVER_FIELD(field, symbol, exported, version, parameters) cuda_result(*field) parameters;
    CUDA_DRIVER_LIST(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_POOL_LIST(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_TRANSFER_LIST(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_PROGRAM_LIST(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
};

/// The driver of this machine, loaded and initialized by the first call in a process and never unloaded.
/// Threads: any. Errors, the same ones for every later call: VARVE_ERROR_UNSUPPORTED (no driver, no device,
/// too old, a fork child of the process that loaded it), PERMISSION.
int cuda_driver_load(const struct cuda_driver **driver_out, struct varve_message *message);
/// UUID and name of a device; zeros and "" where the driver, which must be loaded, does not say.
void cuda_driver_identify(cuda_ordinal device, unsigned char uuid_out[16], char *name_out, size_t name_bytes);
/// The enum varve_error for a result; 0 for success.
int cuda_driver_error(cuda_result result);
/// "CUDA_ERROR_NAME (its text)", or the number, in `text`.
void cuda_driver_describe(const struct cuda_driver *driver, cuda_result result, char *text, size_t size);

#endif
