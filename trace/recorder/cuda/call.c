/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the driver from its beginning to its record. An allocation is emitted after it returned, a free
 * before it begins, since its address may be another thread's a moment later; how long a free took, and
 * whether it failed, is emitted when it has returned. A call inside another one is part of that, and not
 * recorded. Called by the entry points of each function.
 */
#include "trace/recorder/cuda/call.h"
#include "trace/recorder/cuda/hooks.h"
#include "trace/recorder/cuda/lookup.h"
#include "trace/recorder/cuda/record.h"
#include "trace/recorder/cuda/resources.h"
#include "trace/recorder/session.h"
#include "trace/recorder/stacks/callsite.h"
#include "trace/format/session.h"
#include "trace/trace.h"

#include <errno.h>
#include <stddef.h>

__thread struct cuda_thread cuda_thread;

uint32_t cuda_callsite(const struct cuda_entry *entry)
{
    if (recorder_session()->stacks == SESSION_STACKS_NONE) {
        return 0;
    }
    return callsite_capture(cuda_thread.start != NULL ? cuda_thread.start : &entry->start);
}

void cuda_begin(struct cuda_scope *scope, const struct cuda_entry *entry, enum varve_kind kind,
                enum varve_cause cause, enum varve_memory_kind memory)
{
    int saved_errno = errno;

    *scope = (struct cuda_scope){.is_recorded = false};
    if (cuda_is_wanted() && cuda_thread.depth == 0) {
        scope->is_recorded = true;
        scope->call.kind = kind;
        scope->call.cause = cuda_thread.cause != VARVE_CAUSE_NONE ? cuda_thread.cause : cause;
        scope->call.memory = memory;
        scope->call.callsite = cuda_callsite(entry);
        scope->began_ns = varve_clock_monotonic_ns();
    }
    cuda_thread.depth++;
    errno = saved_errno;
}

int cuda_returned(struct cuda_scope *scope, int result)
{
    scope->saved_errno = errno;
    scope->call.result = result;
    if (scope->is_recorded) {
        scope->call.took_ns = varve_clock_monotonic_ns() - scope->began_ns;
        if (result == 0) {
            cuda_driver_works();
        }
    }
    return result;
}

/* A driver that says that it is not there is asked nothing. */
static bool is_there(int result)
{
    return result != CUDA_RESULT_NOT_INITIALIZED && result != CUDA_RESULT_DEINITIALIZED;
}

static bool changes_memory(const struct cuda_call *call)
{
    bool is_device = call->memory == VARVE_MEMORY_DEVICE || call->memory == VARVE_MEMORY_ARRAY ||
                     call->memory == VARVE_MEMORY_MANAGED;

    switch (call->kind) {
    case VARVE_KIND_DEV_ALLOC:
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_ALLOC_ASYNC:
    case VARVE_KIND_DEV_FREE_ASYNC:
    case VARVE_KIND_VMM_CREATE:
    case VARVE_KIND_VMM_RELEASE:
    case VARVE_KIND_VMM_UNMAP:
        return is_device;
    default:
        return call->kind == VARVE_KIND_DEV_POOL;
    }
}

static void look_at_memory(const struct cuda_scope *scope)
{
    const struct cuda_call *call = &scope->call;

    if (scope->is_captured) {
        return;
    }
    if (call->is_alloc && call->result == CUDA_RESULT_OUT_OF_MEMORY) {
        cuda_memory_emit(true);
    } else if (call->result == 0 && changes_memory(call)) {
        cuda_memory_emit(false);
    }
}

int cuda_end(struct cuda_scope *scope)
{
    int result = scope->call.result;

    if (scope->is_recorded) {
        if (is_there(result)) {
            cuda_resolve(scope);
        }
        cuda_call_emit(&scope->call);
        look_at_memory(scope);
    }
    cuda_thread.depth--;
    errno = scope->saved_errno;
    return result;
}

void cuda_free_emit(struct cuda_scope *scope)
{
    int saved_errno = errno;

    if (scope->is_recorded) {
        cuda_resolve(scope);
        cuda_call_emit(&scope->call);
        scope->began_ns = varve_clock_monotonic_ns();
    }
    errno = saved_errno;
}

int cuda_free_end(struct cuda_scope *scope, int result)
{
    struct cuda_call waited;

    cuda_returned(scope, result);
    if (scope->is_recorded) {
        if (result != 0) { /* it is still there */
            cuda_call_emit(&scope->call);
        }
        waited = scope->call;
        waited.kind = VARVE_KIND_DEV_SYNC;
        waited.addr = 0;
        waited.bytes = 0;
        waited.arg = 0;
        cuda_call_emit(&waited);
        look_at_memory(scope);
    }
    cuda_thread.depth--;
    errno = scope->saved_errno;
    return result;
}
