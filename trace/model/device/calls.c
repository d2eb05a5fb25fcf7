/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls of the CUDA API cost, added up per function, and where their events are: tables so small that no
 * report has to look for a thousand calls among ten million events of the heap.
 *
 * A free is two records, one before the call, which no other thread's allocation may
 * overtake, and a dev_sync with the time after it; and a third one if it failed. The first is the call, the
 * second the time, the third the failure. derive.c calls it.
 */
#include "trace/model/device/calls.h"

#include "trace/base/array.h"
#include "trace/error.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/base/index.h"
#include "trace/model/state.h"
#include "trace/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct derive_calls *calls_open(void)
{
    struct derive_calls *calls = calloc(1, sizeof(*calls));
    if (calls != NULL) {
        calls->fd = -1;
    }
    return calls;
}

void calls_close(struct derive_calls *calls)
{
    if (calls != NULL) {
        if (calls->fd >= 0) {
            close(calls->fd);
        }
        index_free(&calls->index);
        free(calls->calls);
        free(calls->memories);
        free(calls->buffer);
        free(calls);
    }
}

/* ---- which events there are ---- */

static int write_failed(int reason, struct varve_message *message)
{
    int error = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? VARVE_ERROR_FULL : VARVE_ERROR_IO;
    return varve_message_set(message, error, "the list of device events cannot be written: %s",
                             strerror(reason));
}

static int file_open(const struct derive *derive, struct varve_message *message)
{
    char path[4096 + 16];
    snprintf(path, sizeof(path), "%s.devices", derive->path);
    derive->calls->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (derive->calls->fd < 0) {
        return write_failed(errno, message);
    }
    unlink(path); /* nobody has to find it again */
    return VARVE_OK;
}

static int buffer_flush(const struct derive *derive, struct varve_message *message)
{
    struct derive_calls *calls = derive->calls;
    int error = calls->fd < 0 ? file_open(derive, message) : VARVE_OK;
    while (error == VARVE_OK && calls->buffered > 0) {
        ssize_t done = pwrite(calls->fd, calls->buffer, calls->buffered * sizeof(*calls->buffer),
                              (off_t)(calls->event_count * sizeof(*calls->buffer)));
        if (done < (ssize_t)sizeof(*calls->buffer)) {
            return write_failed(done < 0 ? errno : ENOSPC, message);
        }
        uint32_t count = (uint32_t)((size_t)done / sizeof(*calls->buffer));
        calls->event_count += count;
        calls->buffered -= count;
        memmove(calls->buffer, calls->buffer + count, calls->buffered * sizeof(*calls->buffer));
    }
    return error;
}

int calls_each_event(const struct derive *derive, int (*take)(void *context, uint64_t seq, unsigned kind),
                     void *context, struct varve_message *message)
{
    const struct derive_calls *calls = derive->calls;
    uint64_t part[512];
    int error = VARVE_OK;
    for (uint64_t at = 0; at < calls->event_count && error == VARVE_OK;) {
        ssize_t done = pread(calls->fd, part, sizeof(part), (off_t)(at * sizeof(part[0])));
        size_t count = done > 0 ? (size_t)done / sizeof(part[0]) : 0;
        if (count == 0) {
            return varve_message_set(message, VARVE_ERROR_IO, "cannot read the list of device events again");
        }
        for (size_t i = 0; i < count && error == VARVE_OK; i++) {
            error = take(context, part[i] >> 8, part[i] & 0xff);
        }
        at += count;
    }
    for (uint32_t i = 0; i < calls->buffered && error == VARVE_OK; i++) {
        error = take(context, calls->buffer[i] >> 8, calls->buffer[i] & 0xff);
    }
    return error;
}

/* ---- what they cost ---- */

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
        return cause >= VARVE_CAUSE_CU_MEM_POOL_CREATE && cause <= VARVE_CAUSE_CU_MEM_POOL_SET_ATTRIBUTE
                   ? CALL_OTHER
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
    if (calls->buffer == NULL) {
        calls->buffer = malloc(CALL_EVENTS_BUFFERED * sizeof(*calls->buffer));
    }
    if (calls->buffer == NULL || !index_reserve(&calls->index) ||
        !ARRAY_GROW(calls->calls, calls->call_capacity, calls->call_count + 1) ||
        (event->kind == VARVE_KIND_DEV_MEMORY &&
         !ARRAY_GROW(calls->memories, calls->memory_capacity, calls->memory_count + 1))) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for the calls of the device API");
    }
    return calls->buffered == CALL_EVENTS_BUFFERED ? buffer_flush(derive, message) : VARVE_OK;
}

static struct derive_call *call_get(struct derive_calls *calls, const struct event *event,
                                    enum call_class class)
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
        .live_bytes = derive->domains[slot_of(DOMAIN_DEVICE, event->device)].all.live_bytes,
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
    if (!calls->is_closed) {
        calls->buffer[calls->buffered++] = event->seq << 8 | event->kind;
    }
    if (event->flags & VARVE_FLAG_DUPLICATE) {
        return; /* the CUDA recorder has reported the same call */
    }
    if (event->kind == VARVE_KIND_DEV_MEMORY) {
        memory_take(derive, event);
    } else {
        call_take(calls, event);
    }
}
