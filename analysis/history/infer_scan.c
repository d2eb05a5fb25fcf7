/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of hostile sizes wrap, they do not overflow: addresses and sizes have limits. */
#include "analysis/history/infer_device.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/key_map.h"

#include <inttypes.h>
#include <stdlib.h>

/* Above it there is no memory, and sums of sizes could overflow. */
#define SIZE_LIMIT (UINT64_C(1) << 56)
#define ADDR_LIMIT (UINT64_C(1) << 62)

size_t replay_decision(const struct history_device *trace, size_t index)
{
    while (index < trace->event_count && trace->events[index].action == HISTORY_SNAPSHOT) {
        index++;
    }
    return index;
}

struct varve_pool_id replay_named_pool(const struct history *history, const struct history_event *event)
{
    const uint64_t *id = event->pool != 0 ? history->pool_ids[event->pool - 1] : NULL;
    return id != NULL ? (struct varve_pool_id){id[0], id[1]} : (struct varve_pool_id){0, 0};
}

bool replay_is_immediate(const struct history_device *trace, size_t index)
{
    size_t next = replay_decision(trace, index + 1);
    return next < trace->event_count && trace->events[next].action == HISTORY_FREE_COMPLETED &&
           trace->events[next].addr == trace->events[index].addr;
}

static void add_deferred(struct replay_scan *scan, struct map *pending, uint64_t addr, size_t index)
{
    scan->deferred =
        memory_grow(scan->deferred, &scan->deferred_capacity, scan->deferred_count, sizeof(*scan->deferred));
    map_put(pending, addr, scan->deferred_count);
    scan->deferred[scan->deferred_count++] = (struct replay_deferred){.request = index, .completion = REPLAY_NONE};
}

static void add_completion(struct replay_scan *scan, struct map *pending, uint64_t addr, size_t index)
{
    uint64_t number = map_remove(pending, addr);
    if (number != MAP_NONE) {
        scan->deferred[number].completion = index;
        return;
    }
    *MEMORY_ADD(scan->early, scan->early_count, scan->early_capacity) = index;
}

static int refuse_early(const struct history_device *trace, const struct replay_scan *scan,
                        struct varve_message *message)
{
    size_t index = scan->early[0];
    return varve_message_set(message, VARVE_ERROR_FORMAT,
                             "event %zu completes the free of 0x%" PRIx64 ", which no event requested", index,
                             trace->events[index].addr);
}

static void note_segment(struct replay_scan *scan, uint64_t addr, uint64_t bytes)
{
    if (bytes > scan->largest_bytes) {
        scan->largest_bytes = bytes;
        scan->largest_addr = addr;
    }
}

static uint64_t reserved_at_end(const struct history_device *trace, struct replay_scan *scan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < trace->segment_count; i++) {
        note_segment(scan, trace->segments[i].addr, trace->segments[i].size);
        bytes += trace->segments[i].size;
    }
    return bytes;
}

int replay_scan(const struct history_device *trace, struct replay_scan *scan, struct varve_message *message)
{
    struct map pending = {0};
    uint64_t reserved = 0; /* sums of hostile sizes wrap, they do not overflow */
    uint64_t peak = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct history_event *event = &trace->events[i];
        if (event->size >= SIZE_LIMIT || (event->addr >= ADDR_LIMIT && event->action != HISTORY_OOM)) {
            map_free(&pending);
            return varve_message_set(message, VARVE_ERROR_FORMAT,
                                     "event %zu: no memory has the address 0x%" PRIx64 " and %" PRIu64 " bytes", i,
                                     event->addr, event->size);
        }
        switch (event->action) {
        case HISTORY_ALLOC:
            scan->allocations++;
            break;
        case HISTORY_FREE_REQUESTED:
            if (replay_is_immediate(trace, i)) {
                i = replay_decision(trace, i + 1);
            } else {
                add_deferred(scan, &pending, event->addr, i);
            }
            break;
        case HISTORY_FREE_COMPLETED:
            add_completion(scan, &pending, event->addr, i);
            break;
        case HISTORY_SEGMENT_MAP:
        case HISTORY_SEGMENT_ALLOC:
            scan->has_maps |= event->action == HISTORY_SEGMENT_MAP;
            note_segment(scan, event->addr, event->size);
            reserved += event->size;
            break;
        case HISTORY_SEGMENT_FREE:
        case HISTORY_SEGMENT_UNMAP:
            note_segment(scan, event->addr, event->size);
            reserved -= event->size;
            break;
        default:
            break;
        }
        peak = (int64_t)reserved > (int64_t)peak ? reserved : peak;
    }
    map_free(&pending);
    scan->reserved_start = (int64_t)(reserved_at_end(trace, scan) - reserved);
    scan->reserved_peak = peak + (scan->reserved_start > 0 ? (uint64_t)scan->reserved_start : 0);
    return scan->early_count > 0 && scan->reserved_start <= 0 ? refuse_early(trace, scan, message) : VARVE_OK;
}

void replay_scan_free(struct replay_scan *scan)
{
    free(scan->deferred);
    free(scan->early);
    *scan = (struct replay_scan){0};
}
