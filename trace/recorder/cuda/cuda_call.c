/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the driver from its beginning to its record. An allocation is emitted after it returned, a free
 * before it begins, since its address may be another thread's a moment later; how long a free took, and
 * whether it failed, is emitted when it has returned. A call inside another one is part of that, and not
 * recorded. Called by the entry points of all functions.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/recorder/session.h"
#include "trace/stacks/callsite_here.h"
#include "trace/format/session_format.h"
#include "trace/producer.h"
#include "trace/record.h"

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

static void cuda_scope_begin(struct cuda_scope *scope)
{
    const struct cuda_rule *rule = scope->rule;
    if (cuda_is_wanted() && cuda_thread.depth == 0) {
        scope->is_recorded = true;
        scope->call.kind = (enum varve_kind)rule->kind;
        scope->call.cause = cuda_thread.cause != VARVE_CAUSE_NONE ? cuda_thread.cause : (enum varve_cause)rule->cause;
        scope->call.memory = (enum varve_memory_kind)rule->memory;
        scope->call.is_alloc = rule->role == CUDA_ROLE_ALLOC;
        scope->call.callsite = cuda_callsite(&scope->entry);
        scope->began_ns = varve_clock_monotonic_ns();
    }
    cuda_thread.depth++;
}

static void returned(struct cuda_scope *scope, int result)
{
    scope->saved_errno = errno;
    scope->call.result = result;
    if (scope->is_recorded) {
        scope->call.took_ns = varve_clock_monotonic_ns() - scope->began_ns;
        if (result == 0) {
            cuda_driver_works();
        }
    }
}

/* A driver that says that it is not there is asked nothing. */
static bool cuda_call_is_there(int result)
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

static int cuda_scope_end(struct cuda_scope *scope)
{
    if (scope->is_recorded) {
        if (cuda_call_is_there(scope->call.result)) {
            cuda_resolve(scope);
        }
        cuda_call_emit(&scope->call);
        look_at_memory(scope);
    }
    cuda_thread.depth--;
    errno = scope->saved_errno;
    return scope->call.result;
}

static void end_free(struct cuda_scope *scope)
{
    if (scope->is_recorded) {
        cuda_free_ended_emit(&scope->call);
        look_at_memory(scope);
    }
    cuda_thread.depth--;
    errno = scope->saved_errno;
}

/* ---- what a call is about ---- */

static void *pointer(uint64_t handle)
{
    return (void *)(uintptr_t)handle;
}

/* What the call gives out is there only if it has succeeded. False: not worth a record. */
static bool read_arguments(struct cuda_scope *scope, bool has_out)
{
    struct cuda_call *call = &scope->call;
    scope->given = (struct cuda_parameters){.memory = (enum varve_memory_kind)scope->rule->memory};
    bool is_worth = scope->rule->read(scope->arguments, has_out, &scope->given);
    call->addr = scope->given.addr;
    call->bytes = scope->given.bytes;
    call->arg = scope->given.arg;
    return is_worth;
}

/* While a stream records a graph, an allocation becomes a part of it: the memory exists when the graph runs. */
static void begin_on_stream(struct cuda_scope *scope)
{
    void *stream = pointer(scope->given.stream);
    scope->is_captured = cuda_is_captured(stream, scope->rule->is_own);
    if (scope->rule->role == CUDA_ROLE_FREE) {
        cuda_resolve_stream(scope, stream, scope->rule->is_own);
    } else if (scope->is_captured) {
        scope->call.cause = VARVE_CAUSE_GRAPH;
        scope->began_ns = varve_clock_monotonic_ns();
    }
}

static void begin_reset(struct cuda_scope *scope)
{
    scope->has_context = scope->given.has_device; /* 0: all that the device has */
    if (!scope->given.has_device) {
        cuda_resolve_context(scope, scope->given.context);
        cuda_context_gone(scope->given.context);
    }
}

/* Before the call: whatever it takes back may be another's when it has returned. */
static void cuda_call_describe(struct cuda_scope *scope)
{
    const struct cuda_rule *rule = scope->rule;
    scope->is_recorded = read_arguments(scope, false);
    if (!scope->is_recorded) {
        return;
    }
    scope->call.memory = scope->given.memory;
    scope->call.device = (unsigned)scope->given.device;
    scope->has_device = scope->given.has_device;
    switch (rule->kind) {
    case VARVE_KIND_DEV_ALLOC_ASYNC:
    case VARVE_KIND_DEV_FREE_ASYNC:
        begin_on_stream(scope);
        break;
    case VARVE_KIND_DEV_RESET:
        begin_reset(scope);
        break;
    case VARVE_KIND_DEV_POOL:
        if (rule->cause != VARVE_CAUSE_CU_MEM_POOL_CREATE) {
            cuda_resolve_pool(scope, pointer(scope->given.pool));
        }
        if (rule->cause == VARVE_CAUSE_CU_MEM_POOL_DESTROY) {
            cuda_pool_gone(pointer(scope->given.pool));
        }
        break;
    case VARVE_KIND_VMM_RELEASE:
        cuda_resolve_handle(scope, scope->given.arg);
        break;
    default:
        break;
    }
    if (rule->role == CUDA_ROLE_FREE) {
        cuda_resolve(scope);
        cuda_call_emit(&scope->call);
        scope->began_ns = varve_clock_monotonic_ns();
    }
}

static void device_gone(int device)
{
    cuda_device_gone((unsigned)device);
    cuda_replace_forget(device);
}

/* The last one to let go ends the context. What others do meanwhile can't be distinguished; it needs two
 * threads that end the same device. */
static bool is_active(int device)
{
    const struct cuda_queries *driver = cuda_driver_asked();
    unsigned flags;
    int active = 1;
    return driver == NULL || driver->primary_state == NULL || driver->primary_state(device, &flags, &active) != 0 ||
           active != 0;
}

static void describe_success(struct cuda_scope *scope)
{
    read_arguments(scope, true);
    switch (scope->rule->cause) {
    case VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE:
    case VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE:
    case VARVE_CAUSE_CU_MEM_MAP:
        cuda_resolve_handle(scope, scope->given.arg);
        break;
    case VARVE_CAUSE_CU_MEM_POOL_CREATE:
        cuda_pool_made(pointer(scope->given.pool), scope);
        cuda_resolve_pool(scope, pointer(scope->given.pool));
        break;
    case VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RELEASE:
        scope->is_recorded = !is_active(scope->given.device);
        if (scope->is_recorded) {
            device_gone(scope->given.device);
        }
        break;
    case VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RESET:
        device_gone(scope->given.device);
        break;
    default:
        break;
    }
}

static void describe_stream(struct cuda_scope *scope)
{
    int result = scope->call.result;
    cuda_resolve_stream(scope, pointer(scope->given.stream), scope->rule->is_own);
    if (scope->rule->kind == VARVE_KIND_DEV_ALLOC_ASYNC) {
        scope->has_context = scope->is_captured; /* number 0: the pool can't be asked for */
        if (!scope->is_captured && (result == 0 || result == CUDA_RESULT_OUT_OF_MEMORY)) {
            cuda_resolve_pool(scope, pointer(scope->given.pool));
        }
    }
}

/* ---- from the entry points ---- */

static bool cuda_call_is_replaced(struct cuda_scope *scope)
{
    const struct cuda_arguments_alloc *alloc = scope->arguments;
    const struct cuda_arguments_free *freed = scope->arguments;
    bool is_served = false;
    int result;
    if (scope->rule->cause == VARVE_CAUSE_CU_MEM_ALLOC) {
        is_served = cuda_replace_is_on() && cuda_replace_alloc(&scope->entry, alloc->bytes, alloc->out, &result);
    } else if (scope->rule->cause == VARVE_CAUSE_CU_MEM_FREE) {
        is_served = cuda_replace_is_on() && cuda_replace_free(&scope->entry, freed->addr, &result);
    }
    if (is_served) {
        scope->call.result = result;
    }
    return is_served;
}

bool cuda_call_begin(struct cuda_scope *scope, enum cuda_driver_call number, const void *arguments)
{
    int saved_errno = errno;
    scope->rule = cuda_rule_of(number);
    scope->arguments = arguments;
    if (cuda_call_is_replaced(scope)) {
        return false;
    }
    if (scope->rule->cause == VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RESET) {
        cuda_thread.reset_device = 0; /* it is seen here */
    }
    cuda_scope_begin(scope);
    if (scope->is_recorded) {
        cuda_call_describe(scope);
    }
    errno = saved_errno;
    return true;
}

int cuda_call_end(struct cuda_scope *scope, int result)
{
    returned(scope, result);
    if (scope->rule->role == CUDA_ROLE_FREE) {
        end_free(scope);
        return result;
    }
    if (scope->is_recorded && result == 0) {
        describe_success(scope);
    }
    if (scope->is_recorded &&
        (scope->rule->kind == VARVE_KIND_DEV_ALLOC_ASYNC || scope->rule->kind == VARVE_KIND_DEV_SYNC)) {
        describe_stream(scope);
    }
    cuda_scope_end(scope);
    return result;
}

/* Without its duration: the call was seen from outside only. */
void cuda_reset_emit(int device)
{
    struct cuda_scope scope = {.entry.start = *cuda_thread.start,
                               .rule = cuda_rule_of(CUDA_CALL_cuDevicePrimaryCtxReset_v2),
                               .has_device = true,
                               .has_context = true};
    cuda_scope_begin(&scope);
    scope.call.device = (unsigned)device;
    returned(&scope, 0);
    scope.call.took_ns = 0;
    if (scope.is_recorded) {
        device_gone(device);
    }
    cuda_scope_end(&scope);
}
