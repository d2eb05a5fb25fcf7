/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory is mapped at the lowest address that has room, so that a reservation grows from its base without gaps:
 * what is mapped elsewhere than between the base and the highest end so far is in another one. Only a base below
 * all that was mapped when a history began is not seen until the memory there is mapped again.
 */
#include "analysis/history/infer_device.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/infer_ranges.h"

#include <stdlib.h>

#define SMALL_UNIT (UINT64_C(2) << 20)
#define SMALL_MAX (UINT64_C(1) << 20)

struct work {
    const struct history *history;
    const struct history_device *trace;
    const struct varve_alloc_config *config;
    uint64_t reach; /* bytes of a reservation */
    struct replay_reservations *reservations;
};

static struct replay_reservation *add_reservation(struct work *work, uint64_t addr, uint16_t stream, bool is_small)
{
    struct replay_reservations *reservations = work->reservations;
    reservations->items =
        memory_grow(reservations->items, &reservations->capacity, reservations->count, sizeof(*reservations->items));
    reservations->items[reservations->count] = (struct replay_reservation){
        .base = addr,
        .high = addr,
        .stream = stream,
        .is_small = is_small,
        .made_by = REPLAY_NONE,
        .gone_by = REPLAY_NONE,
    };
    return &reservations->items[reservations->count++];
}

/* Ranges of one pool and stream share a reservation as long as it can reach that far. */
static void take_start(struct work *work, const struct varve_alloc_snapshot *start)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        const struct varve_segment_info *range = &start->segments[i];
        uint16_t stream = history_find_stream(work->history, range->stream);
        if (!range->is_expandable) {
            continue;
        }
        struct replay_reservation *reservation = NULL;
        for (size_t j = 0; j < work->reservations->count && reservation == NULL; j++) {
            struct replay_reservation *known = &work->reservations->items[j];
            if (known->stream == stream && known->is_small == range->is_small &&
                replay_same_pool(known->pool, range->pool) && range->addr + range->bytes - known->base <= work->reach) {
                reservation = known;
            }
        }
        if (reservation == NULL) {
            reservation = add_reservation(work, range->addr, stream, range->is_small);
            reservation->pool = range->pool;
            reservation->is_start = true;
        }
        reservation->high = range->addr + range->bytes;
        reservation->mapped += range->bytes;
    }
}

size_t replay_reservation_at(const struct replay_reservations *reservations, uint64_t addr)
{
    for (size_t i = reservations->count; i > 0; i--) {
        const struct replay_reservation *reservation = &reservations->items[i - 1];
        if (reservation->gone_by == REPLAY_NONE && addr >= reservation->base && addr < reservation->high) {
            return i - 1;
        }
    }
    return REPLAY_NONE;
}

static struct replay_reservation *reservation_of_map(struct work *work, const struct history_event *event,
                                                     bool is_small)
{
    struct replay_reservation *below = NULL; /* begins above the address: its base was not known */
    for (size_t i = work->reservations->count; i > 0; i--) {
        struct replay_reservation *reservation = &work->reservations->items[i - 1];
        if (reservation->gone_by != REPLAY_NONE || reservation->stream != event->stream ||
            reservation->is_small != is_small) {
            continue;
        }
        if (event->addr >= reservation->base && event->addr <= reservation->high) {
            return reservation;
        }
        if (reservation->is_start && event->addr < reservation->base &&
            reservation->high - event->addr <= work->reach && (below == NULL || reservation->base < below->base)) {
            below = reservation;
        }
    }
    if (below != NULL) {
        below->base = event->addr;
        return below;
    }
    return add_reservation(work, event->addr, event->stream, is_small);
}

static void take_map(struct work *work, size_t index, bool is_small)
{
    const struct history_event *event = &work->trace->events[index];
    struct replay_reservation *reservation = reservation_of_map(work, event, is_small);
    if (reservation->made_by == REPLAY_NONE && !reservation->is_start) {
        reservation->made_by = index;
    }
    reservation->mapped += event->size;
    if (event->addr + event->size > reservation->high) {
        reservation->high = event->addr + event->size;
    }
    work->reservations->of_event[index] = (uint32_t)(reservation - work->reservations->items) + 1;
}

static void take_unmap(struct work *work, size_t index)
{
    const struct history_event *event = &work->trace->events[index];
    size_t number = replay_reservation_at(work->reservations, event->addr);
    if (number == REPLAY_NONE) {
        return;
    }
    struct replay_reservation *reservation = &work->reservations->items[number];
    reservation->mapped -= event->size < reservation->mapped ? event->size : reservation->mapped;
    if (reservation->mapped == 0) {
        reservation->gone_by = index;
    }
    work->reservations->of_event[index] = (uint32_t)number + 1;
}

/* For each segment_map whether the request that made it is a small one: bit 0 of what is in of_event. */
static void note_classes(struct work *work)
{
    bool is_small = false;
    for (size_t i = work->trace->event_count; i > 0; i--) {
        const struct history_event *event = &work->trace->events[i - 1];
        if (work->config != NULL && (event->action == HISTORY_ALLOC || event->action == HISTORY_OOM)) {
            uint64_t rounded = varve_alloc_block_size(NULL, work->config, event->size);
            is_small = rounded > 0 && rounded <= SMALL_MAX;
        }
        work->reservations->of_event[i - 1] = event->action == HISTORY_SEGMENT_MAP && is_small ? 1 : 0;
    }
}

void replay_reservations_find(const struct history *history, const struct history_device *trace,
                              const struct varve_alloc_snapshot *start, const struct varve_alloc_config *config,
                              uint64_t reach, struct replay_reservations *reservations)
{
    struct work work = {
        .history = history, .trace = trace, .config = config, .reach = reach, .reservations = reservations};
    *reservations = (struct replay_reservations){0};
    reservations->of_event = memory_resize(NULL, (trace->event_count + 1) * sizeof(*reservations->of_event));
    take_start(&work, start);
    note_classes(&work);
    for (size_t i = 0; i < trace->event_count; i++) {
        size_t number;
        switch (trace->events[i].action) {
        case HISTORY_SEGMENT_MAP:
            take_map(&work, i, reservations->of_event[i] != 0);
            break;
        case HISTORY_SEGMENT_UNMAP:
            take_unmap(&work, i);
            break;
        case HISTORY_ALLOC:
            if (config == NULL) {
                break;
            }
            number = replay_reservation_at(reservations, trace->events[i].addr);
            reservations->of_event[i] = number != REPLAY_NONE ? (uint32_t)number + 1 : 0;
            break;
        default:
            break;
        }
    }
}

bool replay_reservations_coexist(const struct replay_reservation *a, const struct replay_reservation *b)
{
    bool a_first = a->gone_by != REPLAY_NONE && !b->is_start && a->gone_by < b->made_by;
    bool b_first = b->gone_by != REPLAY_NONE && !a->is_start && b->gone_by < a->made_by;
    return !a_first && !b_first;
}

/* Room above a base up to the next one. */
static uint64_t infer_reservations_room_of(const struct replay_reservations *reservations,
                                           const struct replay_reservation *reservation)
{
    uint64_t room = UINT64_MAX;
    for (size_t i = 0; i < reservations->count; i++) {
        const struct replay_reservation *other = &reservations->items[i];
        if (other->base > reservation->base && other->base - reservation->base < room &&
            replay_reservations_coexist(reservation, other)) {
            room = other->base - reservation->base;
        }
    }
    return room;
}

uint64_t replay_reservations_room(const struct replay_reservations *reservations)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < reservations->count; i++) {
        uint64_t room = infer_reservations_room_of(reservations, &reservations->items[i]);
        least = room < least ? room : least;
    }
    return least;
}

void replay_reservations_lower(struct replay_reservations *reservations, uint64_t reach, uint64_t large_unit)
{
    for (size_t i = reservations->count; i > 0; i--) {
        struct replay_reservation *reservation = &reservations->items[i - 1];
        uint64_t unit = reservation->is_small ? SMALL_UNIT : large_unit;
        uint64_t bytes = (reach + unit - 1) / unit * unit;
        uint64_t room = infer_reservations_room_of(reservations, reservation);
        if (reservation->is_start && room < bytes) {
            uint64_t lower = (bytes - room + unit - 1) / unit * unit;
            reservation->base -= lower < reservation->base ? lower : 0;
        }
    }
}

void replay_reservations_free(struct replay_reservations *reservations)
{
    free(reservations->items);
    free(reservations->of_event);
    *reservations = (struct replay_reservations){0};
}
