/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of contexts, with which all ends that they had allocated, and calls that wait for the device.
 */
#include "trace/recorder/cuda/cuda.h"

/* ---- ends ---- */

static void begin_reset(struct cuda_scope *scope, const struct cuda_road *road, enum varve_cause cause,
                        int device)
{
    cuda_begin(scope, road, VARVE_KIND_DEV_RESET, cause, VARVE_MEMORY_UNKNOWN);
    scope->call.device = (unsigned)device;
    scope->has_device = true;
    scope->has_context = true; /* 0: all that the device has */
}

/* Without its duration: the call was seen from outside only. */
void cuda_reset_tell(int device)
{
    const struct callsite_start *start = cuda_thread.start;
    const struct cuda_road road = {.start = *start};
    struct cuda_scope scope;

    begin_reset(&scope, &road, VARVE_CAUSE_CUDA_DEVICE_RESET, device);
    cuda_returned(&scope, 0);
    scope.call.took_ns = 0;
    if (scope.is_told) {
        cuda_device_gone((unsigned)device);
        cuda_replace_forget(device);
    }
    cuda_end(&scope);
}

static int primary_reset(const struct cuda_road *road, int device)
{
    struct cuda_scope scope;

    cuda_thread.reset_device = 0;
    begin_reset(&scope, road, VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RESET, device);
    if (cuda_returned(&scope, CUDA_REAL(road, cuDevicePrimaryCtxReset_v2)(device)) == 0 && scope.is_told) {
        cuda_device_gone((unsigned)device);
        cuda_replace_forget(device);
    }
    return cuda_end(&scope);
}

/* The last one to let go ends the context. What others do meanwhile cannot be told apart; it needs two
 * threads that end the same device. */
static bool is_active(int device)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    unsigned flags;
    int active = 1;

    return driver == NULL || driver->primary_state == NULL ||
           driver->primary_state(device, &flags, &active) != 0 || active != 0;
}

static int primary_release(const struct cuda_road *road, int device)
{
    struct cuda_scope scope;

    begin_reset(&scope, road, VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RELEASE, device);
    if (cuda_returned(&scope, CUDA_REAL(road, cuDevicePrimaryCtxRelease_v2)(device)) == 0 && scope.is_told) {
        scope.is_told = !is_active(device);
        if (scope.is_told) {
            cuda_device_gone((unsigned)device);
            cuda_replace_forget(device);
        }
    }
    return cuda_end(&scope);
}

static int destroy(const struct cuda_road *road, void *context)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_RESET, VARVE_CAUSE_CU_CTX_DESTROY, VARVE_MEMORY_UNKNOWN);
    cuda_place_context(&scope, context);
    if (scope.is_told) {
        cuda_context_gone(context);
    }
    cuda_returned(&scope, CUDA_REAL(road, cuCtxDestroy_v2)(context));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuDevicePrimaryCtxReset_v2, (int device), (device), primary_reset(road, device));
CUDA_ENTRIES(cuDevicePrimaryCtxRelease_v2, (int device), (device), primary_release(road, device));
CUDA_ENTRIES(cuCtxDestroy_v2, (void *context), (context), destroy(road, context));

/* ---- waiting ---- */

static int synchronize(const struct cuda_road *road)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_CTX_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(road, cuCtxSynchronize)());
    return cuda_end(&scope);
}

static int synchronize_context(const struct cuda_road *road, void *context)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_CTX_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(road, cuCtxSynchronize_v2)(context));
    return cuda_end(&scope);
}

static int synchronize_stream(const struct cuda_road *road, void *stream, bool is_own)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_STREAM_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    cuda_returned(&scope, CUDA_REAL(road, cuStreamSynchronize)(stream));
    cuda_place_stream(&scope, stream, is_own);
    return cuda_end(&scope);
}

static int synchronize_event(const struct cuda_road *road, void *event)
{
    struct cuda_scope scope;

    cuda_begin(&scope, road, VARVE_KIND_DEV_SYNC, VARVE_CAUSE_CU_EVENT_SYNCHRONIZE, VARVE_MEMORY_UNKNOWN);
    scope.call.addr = (uintptr_t)event;
    cuda_returned(&scope, CUDA_REAL(road, cuEventSynchronize)(event));
    return cuda_end(&scope);
}

CUDA_ENTRIES(cuCtxSynchronize, (void), (), synchronize(road));
CUDA_ENTRIES(cuCtxSynchronize_v2, (void *context), (context), synchronize_context(road, context));
CUDA_ENTRIES(cuStreamSynchronize, (void *stream), (stream), synchronize_stream(road, stream, false));
CUDA_ENTRIES(cuStreamSynchronize_ptsz, (void *stream), (stream), synchronize_stream(road, stream, true));
CUDA_ENTRIES(cuEventSynchronize, (void *event), (event), synchronize_event(road, event));
