/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks of the driver's functions: CUPTI calls in the program's own thread when a call begins and when
 * it has returned, whichever entry point it came through. What is recorded of a call is what the CUDA
 * recorder records of it, through the same cuda_call_emit. A free is emitted when it begins, since its
 * memory may be another thread's before it returns, and its duration when it has returned (as DEV_SYNC with
 * the function's cause); an allocation when it has returned.
 */
#include "trace/recorder/cupti/cupti_recorder.h"
#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/emit.h"
#include "trace/record.h"

#include <string.h>
#include <time.h>

/*
 * The program may hold any lock in a callback: no memory is allocated, nothing is waited for, and the
 * driver is asked only what a device is, before the first record of it, and whether a stream records a
 * graph, when a call on it begins: after the call it may not do so any more. While it does nothing else is
 * asked, which could end the recording. A driver function that calls another one that is looked at too
 * makes one record, of the outer one.
 */

/* The call that this thread is in. */
static __thread struct {
    uint64_t begin_ns;
    uint32_t depth; /* of looked-at calls inside each other */
    uint32_t callsite;
    uint32_t context_id;
    uint8_t device;
    bool is_reported; /* a free whose beginning was worth a record */
    bool is_captured; /* becomes part of a graph */
    bool ends_context;
} current;

/* NULL: none of ours. */
static const struct cuda_rule *rule_of(uint32_t id)
{
    static const uint8_t calls[CUPTI_CALL_LIMIT] = {/* 1 + enum cuda_driver_call */
#define CALL(name, number, ...) [number] = 1 + CUDA_CALL_##name,
                                                    CUDA_DRIVER_CALL_LIST(CALL)
#undef CALL
    };
    return id < CUPTI_CALL_LIMIT && calls[id] != 0 ? cuda_rule_of((enum cuda_driver_call)(calls[id] - 1)) : NULL;
}

void cupti_calls_mark_end(void)
{
    current.ends_context = true;
}

cupti_result cupti_calls_enable(const struct cupti_recorder *recorder)
{
    /* Without these it would be no recording; the others may be unknown to an older CUPTI. */
    static const uint32_t needed[] = {CUPTI_CALL_cuMemAlloc_v2, CUPTI_CALL_cuMemFree_v2};
    cupti_result first = CUPTI_RESULT_SUCCESS;
    for (uint32_t id = 0; id < CUPTI_CALL_LIMIT; id++) {
        const struct cuda_rule *rule = rule_of(id);
        cupti_result result = CUPTI_RESULT_SUCCESS;

        /* The CUDA recorder asks for the state of the device itself: no need to see that too. */
        if (rule != NULL && (rule->role != CUDA_ROLE_INFO || recorder->flags == 0)) {
            result = recorder->functions.enable_callback(1, recorder->subscriber, CUPTI_DOMAIN_DRIVER, id);
        }
        for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
            if (id == needed[i] && first == CUPTI_RESULT_SUCCESS) {
                first = result;
            }
        }
    }
    recorder->functions.enable_callback(1, recorder->subscriber, CUPTI_DOMAIN_RESOURCE,
                                        CUPTI_RESOURCE_CONTEXT_DESTROYED);
    recorder->functions.enable_callback(1, recorder->subscriber, CUPTI_DOMAIN_STATE, CUPTI_STATE_FATAL);
    return first;
}

/* ---- records ---- */

/* The trace has to know which GPU the record is about before it gets it. */
static void cupti_calls_emit(const struct cuda_call *call)
{
    if (!current.is_captured) {
        cupti_device_describe(call->device);
    }
    cuda_call_emit(call);
}

static bool cupti_calls_is_captured(const struct cuda_rule *rule, const struct cupti_callback_data *data)
{
    struct cuda_parameters parameters = {0};
    return (rule->kind == VARVE_KIND_DEV_ALLOC_ASYNC || rule->kind == VARVE_KIND_DEV_FREE_ASYNC) &&
           rule->read(data->parameters, false, &parameters) &&
           cupti_stream_is_captured(cuda_stream_handle(parameters.stream, rule->is_own));
}

/* False: the call is not worth a record. */
static bool cupti_calls_describe(const struct cupti_recorder *recorder, const struct cuda_rule *rule,
                                 const struct cupti_callback_data *data, int result, struct cuda_call *call)
{
    struct cuda_parameters parameters = {.memory = (enum varve_memory_kind)rule->memory};
    bool is_at_exit = data->callsite == CUPTI_SITE_EXIT;
    if (!rule->read(data->parameters, is_at_exit && result == 0, &parameters)) {
        return false;
    }
    *call = (struct cuda_call){
        .kind = (enum varve_kind)rule->kind,
        .cause = (enum varve_cause)rule->cause,
        .memory = parameters.memory,
        .device = parameters.has_device ? (unsigned)parameters.device : current.device,
        .context = parameters.pool != 0 ? cupti_pool_number(parameters.pool) : current.context_id,
        .result = result,
        .is_alloc = rule->role == CUDA_ROLE_ALLOC,
        .addr = parameters.addr,
        .bytes = parameters.bytes,
        .arg = parameters.arg,
        .callsite = current.callsite,
        .flags = recorder->flags,
    };
    if (rule->kind == VARVE_KIND_DEV_ALLOC_ASYNC) {
        call->context = cupti_pool_number(parameters.pool); /* 0: the device's own */
        call->memory = cupti_pool_memory(call->context);
    }
    call->stream = varve_stream_number(call->device, cuda_stream_handle(parameters.stream, rule->is_own));
    return true;
}

/* The device, context and stream of the call. The context of cuCtxDestroy is another one than the current one, perhaps,
 * and cannot be asked about later. */
static void set_origin(const struct cupti_recorder *recorder, const struct cuda_rule *rule,
                       const struct cupti_callback_data *data)
{
    cupti_context context = data->context;
    uint32_t id = data->context_id;
    current.context_id = id;
    struct cuda_parameters parameters = {0};
    if (rule->role == CUDA_ROLE_RESET && rule->read(data->parameters, false, &parameters)) {
        current.context_id = 0; /* all that the device has */
        if (parameters.context != NULL && recorder->functions.context_id != NULL &&
            recorder->functions.context_id(parameters.context, &id) == CUPTI_RESULT_SUCCESS) {
            context = parameters.context;
            current.context_id = id;
        }
    }
    current.device = (uint8_t)cupti_device_of(recorder, context, id);
}

static void cupti_calls_begin(struct cupti_recorder *recorder, const struct cuda_rule *rule,
                              const struct cupti_callback_data *data)
{
    current.ends_context = false;
    current.is_reported = false;
    current.callsite = varve_callsite_here();
    current.is_captured = cupti_calls_is_captured(rule, data);
    set_origin(recorder, rule, data);
    struct cuda_call call;
    if (rule->role == CUDA_ROLE_FREE && cupti_calls_describe(recorder, rule, data, 0, &call)) {
        current.is_reported = true;
        cupti_calls_emit(&call);
    }
    if (rule->role == CUDA_ROLE_RESET) {
        cupti_activity_flush(recorder, false);
    }
    current.begin_ns = varve_clock_monotonic_ns();
}

static void cupti_calls_end(const struct cupti_recorder *recorder, const struct cuda_rule *rule,
                            const struct cupti_callback_data *data)
{
    uint64_t took_ns = varve_clock_monotonic_ns() - current.begin_ns;
    int result = data->result != NULL ? (int)*data->result : 0;
    if (data->context != NULL && current.context_id == 0 && rule->role != CUDA_ROLE_RESET) {
        set_origin(recorder, rule, data); /* the call made the context current */
    }
    struct cuda_call call;
    if ((rule->role == CUDA_ROLE_FREE && !current.is_reported) ||
        (rule->role == CUDA_ROLE_RELEASE && !current.ends_context) ||
        !cupti_calls_describe(recorder, rule, data, result, &call)) {
        return;
    }
    call.took_ns = took_ns;
    if (rule->role == CUDA_ROLE_RELEASE) {
        call.context = 0;
    }
    if (rule->role == CUDA_ROLE_FREE) {
        cuda_free_ended_emit(&call);
        return;
    }
    if (rule->role == CUDA_ROLE_INFO) {
        call.took_ns = call.arg; /* the field has no room for both */
        call.arg = 0;
    }
    if (rule->kind == VARVE_KIND_DEV_ALLOC_ASYNC && current.is_captured) {
        call.cause = VARVE_CAUSE_GRAPH;
    }
    cupti_calls_emit(&call);
    if (rule->cause == VARVE_CAUSE_CU_MEM_POOL_CREATE && result == 0) {
        cupti_pool_made(call.addr, call.memory);
    } else if (rule->cause == VARVE_CAUSE_CU_MEM_POOL_DESTROY && result == 0) {
        cupti_pool_forget(call.addr);
    }
    if (rule->role == CUDA_ROLE_ALLOC && result == 0) {
        cupti_exit_watch_again();
    }
}

void cupti_calls_on_callback(struct cupti_recorder *recorder, uint32_t id, const struct cupti_callback_data *data)
{
    const struct cuda_rule *rule = rule_of(id);
    if (rule == NULL || data->parameters == NULL) {
        return;
    }
    if (data->callsite == CUPTI_SITE_ENTER) {
        if (current.depth++ == 0) {
            cupti_calls_begin(recorder, rule, data);
        }
    } else if (current.depth > 0 && --current.depth == 0) { /* else it began before we had subscribed */
        cupti_calls_end(recorder, rule, data);
    }
}
