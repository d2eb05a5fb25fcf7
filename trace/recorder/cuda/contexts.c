/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of contexts, with which all ends that they had allocated, and calls that wait for the device.
 */
#include "trace/recorder/cuda/contexts.h"
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/entry.h"
#include "trace/recorder/cuda/real.h"
#include "trace/recorder/cuda/replace.h"
#include "trace/recorder/cuda/resources.h"
#include "trace/recorder/stacks/native/stack.h"
#include "trace/record.h"

#include <stddef.h>

/* ---- ends ---- */

static void begin_reset(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_cause cause,
                        int device)
{
    cuda_begin(scope, entry, VARVE_KIND_DEV_RESET, cause, VARVE_MEMORY_UNKNOWN);
    scope->call.device = (unsigned)device;
    scope->has_device = true;
    scope->has_context = true; /* 0: all that the device has */
}

/* Without its duration: the call was seen from outside only. */
void cuda_reset_emit(int device)
{
    const struct callsite_start *start = cuda_thread.start;
    const struct cuda_entry entry = {.start = *start};
    struct cuda_scope scope;

    begin_reset(&scope, &entry, VARVE_CAUSE_CUDA_DEVICE_RESET, device);
    cuda_returned(&scope, 0);
    scope.call.took_ns = 0;
    if (scope.is_recorded) {
        cuda_device_gone((unsigned)device);
        cuda_replace_forget(device);
    }
    cuda_end(&scope);
}

static int primary_reset(const struct cuda_entry *entry, int device)
{
    struct cuda_scope scope;

    cuda_thread.reset_device = 0;
    begin_reset(&scope, entry, VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RESET, device);
    if (cuda_returned(&scope, CUDA_REAL(entry, cuDevicePrimaryCtxReset_v2)(device)) == 0 &&
        scope.is_recorded) {
        cuda_device_gone((unsigned)device);
        cuda_replace_forget(device);
    }
    return cuda_end(&scope);
}

/* The last one to let go ends the context. What others do meanwhile can't be distinguished; it needs two
 * threads that end the same device. */
static bool is_active(int device)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    unsigned flags;
    int active = 1;

    return driver == NULL || driver->primary_state == NULL ||
           driver->primary_state(device, &flags, &active) != 0 || active != 0;
}

static int primary_release(const struct cuda_entry *entry, int device)
{
    struct cuda_scope scope;

    begin_reset(&scope, entry, VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RELEASE, device);
    if (cuda_returned(&scope, CUDA_REAL(entry, cuDevicePrimaryCtxRelease_v2)(device)) == 0 &&
        scope.is_recorded) {
        scope.is_recorded = !is_active(device);
        if (scope.is_recorded) {
            cuda_device_gone((unsigned)device);
            cuda_replace_forget(device);
        }
    }
    return cuda_end(&scope);
}

static int destroy(const struct cuda_entry *entry, void *context)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_RESET, VARVE_CAUSE_CU_CTX_DESTROY, VARVE_MEMORY_UNKNOWN);
    cuda_resolve_context(&scope, context);
    if (scope.is_recorded) {
        cuda_context_gone(context);
    }
    cuda_returned(&scope, CUDA_REAL(entry, cuCtxDestroy_v2)(context));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuDevicePrimaryCtxReset_v2, (int device), (device), primary_reset(entry, device));
CUDA_ENTRIES(cuDevicePrimaryCtxRelease_v2, (int device), (device), primary_release(entry, device));
CUDA_ENTRIES(cuCtxDestroy_v2, (void *context), (context), destroy(entry, context));

/* ---- waiting ---- */

static int synchronize(const struct cuda_entry *entry)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_CTX_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(entry, cuCtxSynchronize)());
    return cuda_end(&scope);
}

static int synchronize_context(const struct cuda_entry *entry, void *context)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_CTX_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(entry, cuCtxSynchronize_v2)(context));
    return cuda_end(&scope);
}

static int synchronize_stream(const struct cuda_entry *entry, void *stream, bool is_own)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_STREAM_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(entry, cuStreamSynchronize)(stream));
    cuda_resolve_stream(&scope, stream, is_own);
    return cuda_end(&scope);
}

static int synchronize_event(const struct cuda_entry *entry, void *event)
{
    struct cuda_scope scope;

    cuda_begin(&scope, entry, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_EVENT_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    scope.call.addr = (uintptr_t)event;
    cuda_returned(&scope, CUDA_REAL(entry, cuEventSynchronize)(event));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuCtxSynchronize, (void), (), synchronize(entry));
CUDA_ENTRIES(cuCtxSynchronize_v2, (void *context), (context), synchronize_context(entry, context));
CUDA_ENTRIES(cuStreamSynchronize, (void *stream), (stream), synchronize_stream(entry, stream, false));
CUDA_ENTRIES(cuStreamSynchronize_ptsz, (void *stream), (stream), synchronize_stream(entry, stream, true));
CUDA_ENTRIES(cuEventSynchronize, (void *event), (event), synchronize_event(entry, event));
