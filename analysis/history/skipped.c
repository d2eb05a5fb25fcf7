/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block whose free was requested and that still waits for other streams at the end has no completion. Of all others a
 * missing completion is put behind the request, where PyTorch has it for blocks that one stream used.
 */
#include "analysis/history/skipped.h"

#include "analysis/base/map.h"
#include "analysis/base/memory.h"

#include <stdio.h>
#include <stdlib.h>

static size_t count_of(const struct history_device *device, enum history_action action)
{
    size_t count = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        count += device->events[i].action == action;
    }
    return count;
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
        const uint64_t *event = map_find(&last, device->blocks[i].addr);
        if (device->blocks[i].state == HISTORY_ACTIVE_PENDING_FREE && event != NULL) {
            map_put(&pending, *event, 1);
        }
    }
    map_free(&last);
    return pending;
}

/* `moved` are the new numbers of the events, by their old ones; one more for the end. */
static void renumber(struct history_device *device, const size_t *moved, size_t count)
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
        bool is_one = events[i].action == given && map_find(except, i) == NULL;
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
    renumber(device, moved, count);
    free(moved);
    free(events);
}

void history_infer_skipped(struct history *history)
{
    for (size_t i = 0; i < history->device_count; i++) {
        struct history_device *device = &history->devices[i];
        size_t requested = count_of(device, HISTORY_FREE_REQUESTED);
        size_t completed = count_of(device, HISTORY_FREE_COMPLETED);
        struct map except = {0};
        if (requested == 0 && completed > 0) {
            put_beside(device, HISTORY_FREE_COMPLETED, HISTORY_FREE_REQUESTED, &except);
        } else if (completed == 0 && requested > 0) {
            except = pending_at_end(device);
            put_beside(device, HISTORY_FREE_REQUESTED, HISTORY_FREE_COMPLETED, &except);
        }
        map_free(&except);
    }
}

void history_inferred_words(const struct history *history, char *text, size_t bytes)
{
    unsigned inferred = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        inferred |= history->devices[i].inferred;
    }
    text[0] = '\0';
    if (inferred & 1U << HISTORY_FREE_REQUESTED) {
        snprintf(text, bytes,
                 "the trace has no free_requested (skip_actions): each is taken to be where its free_completed is");
    } else if (inferred & 1U << HISTORY_FREE_COMPLETED) {
        snprintf(text, bytes,
                 "the trace has no free_completed (skip_actions): each is taken to be where its free_requested is");
    }
}
