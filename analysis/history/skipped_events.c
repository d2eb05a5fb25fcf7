/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block whose free was requested and that still waits for other streams at the end has no completion. Of all others a
 * missing completion is put behind the request, where PyTorch has it for blocks that one stream used. A completion may
 * also have been requested before the history began: requests are missing only if the block was allocated in it. When
 * the free was requested of a block that waits for other streams at the end nobody knows: it is taken to be the last.
 */
#include "analysis/history/history_read.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t count_of(const struct history_device *device, enum history_action action)
{
    size_t count = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        count += device->events[i].action == action;
    }
    return count;
}

/* A block that was allocated in the history has a completion. */
static bool completes_own(const struct history_device *device)
{
    struct map live = {0};
    bool completes = false;
    for (size_t i = 0; i < device->event_count && !completes; i++) {
        const struct history_event *event = &device->events[i];
        if (event->action == HISTORY_ALLOC) {
            map_put(&live, event->addr, i);
        }
        completes = event->action == HISTORY_FREE_COMPLETED && map_find(&live, event->addr) != MAP_NONE;
    }
    map_free(&live);
    return completes;
}

/* Numbers of the last requests for blocks that are pending at the end. */
static struct map pending_at_end(const struct history_device *device)
{
    struct map last = {0};
    struct map pending = {0};
    for (size_t i = 0; i < device->event_count; i++) {
        if (device->events[i].action == HISTORY_FREE_REQUESTED) {
            map_put(&last, device->events[i].addr, i);
        }
    }
    for (size_t i = 0; i < device->block_count; i++) {
        uint64_t event = map_find(&last, device->blocks[i].addr);
        if (device->blocks[i].state == HISTORY_ACTIVE_PENDING_FREE && event != MAP_NONE) {
            map_put(&pending, event, 1);
        }
    }
    map_free(&last);
    return pending;
}

/* `moved` are the new numbers of the events, by their old ones; one more for the end. */
static void skipped_events_renumber(struct history_device *device, const size_t *moved, size_t count)
{
    for (size_t i = 0; i < device->rest_count; i++) {
        device->rests[i].event = moved[device->rests[i].event < count ? device->rests[i].event : count];
    }
    for (size_t i = 0; i < device->skipped_count; i++) {
        device->skipped[i].event = moved[device->skipped[i].event < count ? device->skipped[i].event : count];
    }
}

/* Beside each event of one action, but those in `except`, one of another. */
static void put_beside(struct history_device *device, enum history_action given, enum history_action missing,
                       const struct map *except)
{
    size_t count = device->event_count;
    struct history_event *events = device->events;
    size_t *moved = memory_resize(NULL, (count + 1) * sizeof(*moved));
    device->events = NULL;
    device->event_count = device->event_capacity = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_one = events[i].action == given && map_find(except, i) == MAP_NONE;
        struct history_event other = events[i];
        other.action = (uint8_t)missing;
        if (is_one && missing == HISTORY_FREE_REQUESTED) {
            *history_add_event(device) = other;
        }
        moved[i] = device->event_count;
        *history_add_event(device) = events[i];
        if (is_one && missing == HISTORY_FREE_COMPLETED) {
            *history_add_event(device) = other;
        }
        device->inferred |= is_one ? (uint16_t)(1U << missing) : 0;
    }
    moved[count] = device->event_count;
    skipped_events_renumber(device, moved, count);
    free(moved);
    free(events);
}

/* The last one at this address; NULL: it was before the history. */
static const struct history_event *allocation_of(const struct history_device *device, uint64_t addr)
{
    for (size_t i = device->event_count; i > 0; i--) {
        if (device->events[i - 1].action == HISTORY_ALLOC && device->events[i - 1].addr == addr) {
            return &device->events[i - 1];
        }
    }
    return NULL;
}

/* Behind all events, requests for blocks that are pending at the end. */
static void put_pending(struct history_device *device)
{
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            const struct history_event *last = allocation_of(device, block->addr);
            if (block->state == HISTORY_ACTIVE_PENDING_FREE && last != NULL) {
                struct history_event request = *last;
                request.action = HISTORY_FREE_REQUESTED;
                request.stack = 0;
                request.time_us = device->events[device->event_count - 1].time_us;
                *history_add_event(device) = request;
                device->inferred |= 1U << HISTORY_FREE_REQUESTED;
            }
        }
    }
}

void history_infer_skipped(struct history *history)
{
    for (size_t i = 0; i < history->device_count; i++) {
        struct history_device *device = &history->devices[i];
        size_t requested = count_of(device, HISTORY_FREE_REQUESTED);
        size_t completed = count_of(device, HISTORY_FREE_COMPLETED);
        struct map except = {0};
        if (requested == 0) {
            if (completes_own(device)) {
                put_beside(device, HISTORY_FREE_COMPLETED, HISTORY_FREE_REQUESTED, &except);
            }
            put_pending(device);
        } else if (completed == 0) {
            except = pending_at_end(device);
            put_beside(device, HISTORY_FREE_REQUESTED, HISTORY_FREE_COMPLETED, &except);
        }
        map_free(&except);
    }
}

static void add_words(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void add_words(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    if (used > 0 && used + 2 < bytes) {
        used += (size_t)snprintf(text + used, bytes - used, "; ");
    }
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

void history_inferred_words(const struct history *history, char *text, size_t bytes)
{
    const struct history_unknown *unknown = &history->unknown;
    unsigned inferred = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        inferred |= history->devices[i].inferred;
    }
    text[0] = '\0';
    if (inferred & 1U << HISTORY_FREE_REQUESTED) {
        add_words(text, bytes,
                  "the trace has no free_requested (skip_actions): each is taken to be where its free_completed is");
    } else if (inferred & 1U << HISTORY_FREE_COMPLETED) {
        add_words(text, bytes,
                  "the trace has no free_completed (skip_actions): each is taken to be where its free_requested is");
    }
    if (unknown->entries > 0) {
        add_words(text, bytes, "%" PRIu64 " %s that this version cannot read %s left out", unknown->entries,
                  unknown->entries == 1 ? "entry" : "entries", unknown->entries == 1 ? "is" : "are");
    }
    if (unknown->fields > 0) {
        add_words(text, bytes, "%" PRIu64 " %s of a form that this version does not know, and taken as missing",
                  unknown->fields, unknown->fields == 1 ? "field is" : "fields are");
    }
    if (unknown->entries + unknown->fields > 0) {
        add_words(text, bytes, "the first of these: %s", unknown->first);
    }
}
