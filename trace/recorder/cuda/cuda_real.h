/* SPDX-License-Identifier: Apache-2.0 */
/* The functions behind ours, and what we ask the driver ourselves. */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_REAL_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_REAL_H

#include "trace/recorder/cuda/cuda_hooks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cuda_function)(void);

/* By enum cuda_hook, what a program that links the driver would have got without us; NULL: not asked yet. */
extern cuda_function cuda_exported[CUDA_HOOK_COUNT] __attribute__((visibility("hidden")));

/// The driver's own function, as a look-up gave it that we answered with ours. Never NULL then.
cuda_function cuda_real_resolved(enum cuda_hook hook);
/// Remember it. `function` lies in the driver.
void cuda_real_store(enum cuda_hook hook, cuda_function function);
/// What a program that links the driver would have got without us; NULL: there is no driver.
cuda_function cuda_real_exported(enum cuda_hook hook);
/// A function of the runtime library: of version `soname`, or if that is NULL of the one that the code at
/// `caller` uses. NULL: there is none.
cuda_function cuda_real_runtime(const char *name, const char *soname, const void *caller);

/// Is this the code of a driver library (libcuda.so.1, under whatever path)?
bool cuda_is_driver_code(const void *address);
/// Does the runtime library (any version of it) own the code?
bool cuda_is_runtime_code(const void *address);

/* X(field, symbol, symbol of older drivers, parameters): what we ask the driver ourselves; NULL if it has no
 * such function. */
/* clang-format off */
#define CUDA_QUERY_LIST(X)                                                                                       \
    X(context_current, cuCtxGetCurrent, cuCtxGetCurrent, (void **context_out))                                   \
    X(context_device, cuCtxGetDevice, cuCtxGetDevice, (int *device_out))                                         \
    X(primary_state, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,                                     \
      (int device, unsigned *flags_out, int *is_active_out))                                                     \
    X(device_uuid, cuDeviceGetUuid_v2, cuDeviceGetUuid, (unsigned char *uuid_out, int device))                   \
    X(device_total, cuDeviceTotalMem_v2, cuDeviceTotalMem_v2, (size_t *bytes_out, int device))                   \
    X(device_name, cuDeviceGetName, cuDeviceGetName, (char *name_out, int bytes, int device))                    \
    X(memory_info, cuMemGetInfo_v2, cuMemGetInfo_v2, (size_t *free_out, size_t *total_out))                      \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode))           \
    X(stream_captures, cuStreamIsCapturing, cuStreamIsCapturing, (void *stream, int *status_out))                \
    X(stream_captures_own, cuStreamIsCapturing_ptsz, cuStreamIsCapturing_ptsz, (void *stream, int *status_out))  \
    X(stream_device, cuStreamGetDevice, cuStreamGetDevice, (void *stream, int *device_out))                      \
    X(handle_properties, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle,         \
      (struct cuda_properties *properties_out, uint64_t handle))                                                 \
    X(pool_default, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (void **pool_out, int device))         \
    X(pool_current, cuDeviceGetMemPool, cuDeviceGetMemPool, (void **pool_out, int device))
/* clang-format on */

struct cuda_queries {
#define CUDA_QUERY_FIELD(field, symbol, older, parameters) int(*field) parameters;
    CUDA_QUERY_LIST(CUDA_QUERY_FIELD)
#undef CUDA_QUERY_FIELD
};

/// What can be asked; NULL as long as no function of the driver was found.
const struct cuda_queries *cuda_queries(void);

#endif
