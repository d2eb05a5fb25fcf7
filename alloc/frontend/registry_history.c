/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The array grows until it has the entries that were asked for, or the machine has no memory for more; from
 * then on the oldest makes room for the newest.
 */
#include "alloc/frontend/registry.h"

#include <stdlib.h>
#include <time.h>

#define FIRST_CAPACITY 1024U

static bool registry_history_is_kept(enum varve_kind kind)
{
    switch (kind) {
    case VARVE_KIND_ALLOC:
    case VARVE_KIND_FREE_REQUESTED:
    case VARVE_KIND_FREE_COMPLETED:
    case VARVE_KIND_SEGMENT_ALLOC:
    case VARVE_KIND_SEGMENT_FREE:
    case VARVE_KIND_SEGMENT_MAP:
    case VARVE_KIND_SEGMENT_UNMAP:
    case VARVE_KIND_OOM:
        return true;
    default:
        return false;
    }
}

/* PyTorch's history has the size of the request, where there was one. */
static uint64_t registry_history_bytes_of(enum varve_kind kind, const struct varve_record *record)
{
    bool is_request =
        kind == VARVE_KIND_ALLOC || kind == VARVE_KIND_FREE_REQUESTED || kind == VARVE_KIND_FREE_COMPLETED;
    return is_request ? record->requested : record->size;
}

static void resolve(struct history *history, struct varve_alloc *alloc, const struct varve_record *record)
{
    uint16_t stream_number = (uint16_t)varve_record_stream(record);
    if (history->recent.is_known && history->recent.pool_number == record->pool &&
        history->recent.stream_number == stream_number) {
        return;
    }
    history->recent.pool_number = record->pool;
    history->recent.stream_number = stream_number;
    history->recent.is_known =
        varve_alloc_resolve_record(alloc, record, &history->recent.stream, &history->recent.pool) == VARVE_OK;
}

/* Where the next event goes; NULL: there is no memory for any. */
static struct history_event *next_event(struct history *history)
{
    uint64_t capacity = history->capacity > 0 ? 2 * history->capacity : FIRST_CAPACITY;
    if (history->count == history->capacity && history->capacity < history->limit) {
        capacity = capacity < history->limit ? capacity : history->limit;
        struct history_event *grown = realloc(history->events, capacity * sizeof(*grown));
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

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void history_add_snapshot(struct history *history, uint64_t active_bytes)
{
    struct history_event *event = history->limit > 0 ? next_event(history) : NULL;
    if (event != NULL) {
        *event = (struct history_event){.bytes = active_bytes, .time_us = now_us(), .kind = VARVE_KIND_NONE};
    }
}

void history_add(struct history *history, struct varve_alloc *alloc, struct varve_device *device,
                 const struct varve_record *record)
{
    enum varve_kind kind = (enum varve_kind)varve_record_kind(record);
    if (!registry_history_is_kept(kind)) {
        return;
    }
    struct history_event *event = next_event(history);
    if (event == NULL) {
        return;
    }
    resolve(history, alloc, record);
    *event = (struct history_event){
        .addr = record->addr,
        .bytes = registry_history_bytes_of(kind, record),
        .stream = history->recent.stream,
        .pool = history->recent.pool,
        .time_us = now_us(),
        .kind = kind,
    };
    uint64_t total = 0;
    if (kind == VARVE_KIND_OOM) {
        event->addr = 0;
        device->ops->memory_info(device, &event->addr, &total);
    }
}

void history_begin(struct history *history, uint64_t limit)
{
    free(history->events);
    *history = (struct history){.limit = limit};
}

const struct history_event *history_at(const struct history *history, uint64_t i)
{
    return &history->events[(history->start + i) % history->capacity];
}
