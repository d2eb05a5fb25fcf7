/* SPDX-License-Identifier: Apache-2.0 */
/* Device, context, pool and stream of a call, as the numbers that records hold. */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_RESOURCES_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_RESOURCES_H

#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_real.h"

#include <stdbool.h>
#include <stdint.h>

/// Ordinal of the current context's device; -1: there is none, or the driver may not be asked.
int cuda_device_current(void);

/// Before anything else of it. False: no memory.
bool cuda_resources_prepare(void);
/// A call has worked: from now on we may ask the driver too, until a fork.
void cuda_driver_works(void);
/// NULL: it may not be asked now.
const struct cuda_queries *cuda_driver_asked(void);

/// Fill in what a call did not say of itself.
void cuda_resolve(struct cuda_scope *scope);
/// The call is about a stream. `is_own`: handle 0 is the thread's own one.
void cuda_resolve_stream(struct cuda_scope *scope, void *stream, bool is_own);
/// Is the stream recording a graph?
bool cuda_is_captured(void *stream, bool is_own);
/// … about a pool. NULL: the current one of the call's device.
void cuda_resolve_pool(struct cuda_scope *scope, void *pool);
/// … about physical memory of this handle.
void cuda_resolve_handle(struct cuda_scope *scope, uint64_t handle);
/// … about a context. It gets a number if it has none.
void cuda_resolve_context(struct cuda_scope *scope, void *context);

/// A pool of this kind was made, or is no more.
void cuda_pool_made(void *pool, const struct cuda_scope *scope);
void cuda_pool_gone(void *pool);
/// A context is no more; all contexts of a device.
void cuda_context_gone(void *context);
void cuda_device_gone(unsigned device);

/// Emit what the driver says of the current device's memory: at most now and then, unless `is_urgent`.
void cuda_memory_emit(bool is_urgent);

#endif
