/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last events of a device as torch.cuda.memory._snapshot() shows them: what _record_memory_history turns
 * on. The array grows until it has the entries that were asked for, or the machine has no memory for more;
 * from then on the oldest makes room for the newest. All of it with the allocator's lock.
 */
#include "alloc/frontend/torch/state.h"

#include <stdlib.h>
#include <time.h>

#define FIRST_CAPACITY 1024U

static bool action_of(const struct varve_record *record, struct varve_torch_event *event)
{
    switch ((enum varve_kind)varve_record_kind(record)) {
    case VARVE_KIND_ALLOC:
        event->action = VARVE_TORCH_ALLOC;
        event->bytes = record->requested;
        return true;
    case VARVE_KIND_FREE_REQUESTED:
        event->action = VARVE_TORCH_FREE_REQUESTED;
        event->bytes = record->requested;
        return true;
    case VARVE_KIND_FREE_COMPLETED:
        event->action = VARVE_TORCH_FREE_COMPLETED;
        event->bytes = record->requested;
        return true;
    case VARVE_KIND_SEGMENT_ALLOC:
        event->action = VARVE_TORCH_SEGMENT_ALLOC;
        return true;
    case VARVE_KIND_SEGMENT_FREE:
        event->action = VARVE_TORCH_SEGMENT_FREE;
        return true;
    case VARVE_KIND_SEGMENT_MAP:
        event->action = VARVE_TORCH_SEGMENT_MAP;
        return true;
    case VARVE_KIND_SEGMENT_UNMAP:
        event->action = VARVE_TORCH_SEGMENT_UNMAP;
        return true;
    case VARVE_KIND_OOM:
        event->action = VARVE_TORCH_OOM;
        return true;
    default:
        return false;
    }
}

/* Stream and pool have numbers in records; what they mean is found where the block came from. */
static void look_up(struct torch_history *history, struct varve_alloc *alloc,
                    const struct varve_record *record)
{
    uint16_t stream = (uint16_t)varve_record_stream(record);

    if (history->recent.is_known && history->recent.pool == record->pool &&
        history->recent.stream == stream) {
        return;
    }
    history->recent.is_known = false;
    history->recent.handle = 0;
    history->recent.id = (struct varve_pool_id){0, 0};
    for (const struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        for (uint32_t i = 0; pool->number == record->pool && i < pool->index.stream_count; i++) {
            if (index_stream_number(pool->index.streams[i]) == stream) {
                history->recent.is_known = true;
                history->recent.pool = record->pool;
                history->recent.stream = stream;
                history->recent.handle = index_stream_handle(pool->index.streams[i]);
                history->recent.id = pool->owner != NULL ? pool->owner->id : history->recent.id;
                return;
            }
        }
    }
}

static struct varve_torch_event *take_slot(struct torch_history *history)
{
    uint64_t capacity = history->capacity > 0 ? 2 * history->capacity : FIRST_CAPACITY;
    struct varve_torch_event *grown;

    if (history->count == history->capacity && history->capacity < history->limit) {
        capacity = capacity < history->limit ? capacity : history->limit;
        grown = realloc(history->events, capacity * sizeof(*grown));
        if (grown != NULL) {
            history->events = grown;
            history->capacity = capacity;
        } else {
            history->limit = history->capacity; /* the machine's memory is the limit */
        }
    }
    if (history->count < history->capacity) {
        return &history->events[history->count++];
    }
    if (history->capacity == 0) {
        return NULL;
    }
    history->start = (history->start + 1) % history->capacity;
    return &history->events[(history->start + history->capacity - 1) % history->capacity];
}

void torch_history_add(struct torch_history *history, struct varve_alloc *alloc,
                       const struct varve_record *record)
{
    struct varve_torch_event event = {.addr = record->addr, .bytes = record->size, .device = record->device};
    struct varve_torch_event *slot;
    struct timespec now;
    uint64_t total;

    if (!action_of(record, &event)) {
        return;
    }
    slot = take_slot(history);
    if (slot == NULL) {
        return;
    }
    if (event.action == VARVE_TORCH_OOM) {
        event.addr = 0;
        alloc->device->ops->memory_info(alloc->device, &event.addr, &total);
    }
    look_up(history, alloc, record);
    clock_gettime(CLOCK_REALTIME, &now);
    event.stream = history->recent.handle;
    event.pool_capture = history->recent.id.capture;
    event.pool_user = history->recent.id.user;
    event.time_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    *slot = event;
}

void torch_history_begin(struct torch_history *history, uint64_t limit)
{
    free(history->events);
    *history = (struct torch_history){.limit = limit};
}

void torch_history_copy(const struct torch_history *history, struct varve_torch_event *events_out)
{
    for (uint64_t i = 0; i < history->count; i++) {
        events_out[i] = history->events[(history->start + i) % history->capacity];
    }
}
