/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls of the CUDA API cost, added up per function, and where their events are: tables so small that no
 * report has to look for a thousand calls among ten million events of the heap.
 *
 * A free is two records, one before the call, which no other thread's allocation may
 * overtake, and a dev_sync with the time after it; and a third one if it failed. The first is the call, the
 * second the time, the third the failure. derive.c calls it.
 */
#include "trace/model/device_calls.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "base/hash_index.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdlib.h>

struct derive_calls *calls_open(void)
{
    struct derive_calls *calls = calloc(1, sizeof(*calls));
    if (calls != NULL) {
        seqs_open(&calls->events);
    }
    return calls;
}

void calls_close(struct derive_calls *calls)
{
    if (calls != NULL) {
        seqs_close(&calls->events);
        index_free(&calls->index);
        free(calls->calls);
        free(calls->memories);
        free(calls);
    }
}

bool call_frees(unsigned cause)
{
    switch (cause) {
    case VARVE_CAUSE_CUDA_FREE:
    case VARVE_CAUSE_CUDA_FREE_ARRAY:
    case VARVE_CAUSE_CUDA_FREE_MIPMAPPED_ARRAY:
    case VARVE_CAUSE_CUDA_FREE_HOST:
    case VARVE_CAUSE_CUDA_HOST_UNREGISTER:
    case VARVE_CAUSE_CUDA_FREE_ASYNC:
    case VARVE_CAUSE_CU_MEM_FREE:
    case VARVE_CAUSE_CU_ARRAY_DESTROY:
    case VARVE_CAUSE_CU_MIPMAPPED_ARRAY_DESTROY:
    case VARVE_CAUSE_CU_MEM_FREE_HOST:
    case VARVE_CAUSE_CU_MEM_HOST_UNREGISTER:
    case VARVE_CAUSE_CU_MEM_FREE_ASYNC:
    case VARVE_CAUSE_CU_MEM_ADDRESS_FREE:
    case VARVE_CAUSE_CU_MEM_RELEASE:
    case VARVE_CAUSE_CU_MEM_UNMAP:
    case VARVE_CAUSE_CU_IPC_CLOSE_MEM_HANDLE:
        return true;
    default:
        return false;
    }
}

bool call_resets(unsigned cause)
{
    return cause == VARVE_CAUSE_CUDA_DEVICE_RESET || cause == VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RESET ||
           cause == VARVE_CAUSE_CU_DEVICE_PRIMARY_CTX_RELEASE || cause == VARVE_CAUSE_CU_CTX_DESTROY;
}

enum call_class call_class_of(unsigned kind, unsigned cause)
{
    switch (kind) {
    case VARVE_KIND_DEV_ALLOC:
    case VARVE_KIND_DEV_ALLOC_ASYNC:
    case VARVE_KIND_VMM_RESERVE:
    case VARVE_KIND_VMM_CREATE:
    case VARVE_KIND_VMM_MAP:
    case VARVE_KIND_VMM_SET_ACCESS:
    case VARVE_KIND_DEV_OOM:
        return CALL_ALLOC;
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_FREE_ASYNC:
    case VARVE_KIND_VMM_UNMAP:
    case VARVE_KIND_VMM_RELEASE:
    case VARVE_KIND_VMM_ADDRESS_FREE:
        return CALL_FREE;
    case VARVE_KIND_DEV_RESET:
        return CALL_OTHER;
    case VARVE_KIND_DEV_SYNC:
        return call_frees(cause) ? CALL_FREE : call_resets(cause) ? CALL_OTHER : CALL_WAIT;
    case VARVE_KIND_DEV_POOL: /* what CUPTI reports of pools are no calls: their fields have no duration */
        return cause >= VARVE_CAUSE_CU_MEM_POOL_CREATE && cause <= VARVE_CAUSE_CU_MEM_POOL_SET_ATTRIBUTE ? CALL_OTHER
                                                                                                         : CALL_NONE;
    default:
        return CALL_NONE;
    }
}

static uint64_t call_key(const struct event *event)
{
    return (uint64_t)event->process_id << 32 | (uint64_t)event->device << 24 | (uint64_t)event->stream << 8 |
           event->cause;
}

int calls_reserve(struct derive *derive, const struct event *event, struct varve_message *message)
{
    struct derive_calls *calls = derive->calls;
    if (!index_reserve(&calls->index) || !ARRAY_GROW(calls->calls, calls->call_capacity, calls->call_count + 1) ||
        (event->kind == VARVE_KIND_DEV_MEMORY &&
         !ARRAY_GROW(calls->memories, calls->memory_capacity, calls->memory_count + 1))) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the calls of the device API");
    }
    return seqs_reserve(&calls->events, derive->path, "devices", message);
}

static struct derive_call *call_get(struct derive_calls *calls, const struct event *event, enum call_class class)
{
    uint64_t key = call_key(event);
    uint64_t number = index_find(&calls->index, key);
    if (number == 0) {
        calls->calls[calls->call_count++] = (struct derive_call){.process_id = event->process_id,
                                                                 .stream = event->stream,
                                                                 .device = event->device,
                                                                 .cause = event->cause,
                                                                 .class = (uint8_t) class};
        number = calls->call_count;
        index_insert(&calls->index, key, number);
    }
    return &calls->calls[number - 1];
}

static void memory_take(const struct derive *derive, const struct event *event)
{
    struct derive_calls *calls = derive->calls;
    calls->memories[calls->memory_count++] = (struct derive_memory){
        .seq = event->seq,
        .ts_ns = event->ts_ns,
        .process_id = event->process_id,
        .device = event->device,
        .total_bytes = event->size,
        .free_bytes = event->requested,
        .live_bytes = derive->domains[slot_of(DOMAIN_DEVICE, event->device)].all.sum.live_bytes,
    };
}

static void call_take(struct derive_calls *calls, const struct event *event)
{
    enum call_class class = call_class_of(event->kind, event->cause);
    bool has_failed = (event->flags & VARVE_FLAG_FAILED) || event->kind == VARVE_KIND_DEV_OOM;
    bool is_time = event->kind == VARVE_KIND_DEV_SYNC && class != CALL_WAIT;
    bool is_failure = has_failed && event->kind != VARVE_KIND_DEV_SYNC && class == CALL_FREE;
    if (class == CALL_NONE) {
        return;
    }
    struct derive_call *call = call_get(calls, event, class);
    if (is_failure) {
        call->failed++;
        return; /* the free was counted, and its time comes or came with the dev_sync */
    }
    call->calls += !is_time;
    call->failed += has_failed && !is_time;
    call->ns += event->requested;
    call->max_ns = event->requested > call->max_ns ? event->requested : call->max_ns;
    if (!has_failed && !is_time && event->kind != VARVE_KIND_DEV_POOL) {
        call->bytes += event->size;
    }
}

void calls_count(struct derive *derive, const struct event *event)
{
    struct derive_calls *calls = derive->calls;
    seqs_add(&calls->events, event->seq, event->kind);
    if (event->flags & VARVE_FLAG_DUPLICATE) {
        return; /* the CUDA recorder has reported the same call */
    }
    if (event->kind == VARVE_KIND_DEV_MEMORY) {
        memory_take(derive, event);
    } else {
        call_take(calls, event);
    }
}
