/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address ranges that expandable segments reserved, told from what was mapped in them. Memory is mapped
 * at the lowest place that has room, so that a reservation grows from its base without gaps: what is mapped
 * elsewhere than between the base and the highest end so far is in another one. Only a base below all that
 * was mapped when a history began is not seen until the memory there is mapped again. Called by replay.c and
 * pool_proofs.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <stdlib.h>

#define SMALL_UNIT (UINT64_C(2) << 20)
#define SMALL_MAX (UINT64_C(1) << 20)

struct work {
    const struct history *history;
    const struct history_device *trace;
    struct varve_alloc *rounding;
    uint64_t reach; /* bytes of a reservation */
    struct replay_places *places;
};

static struct replay_place *add_place(struct work *work, uint64_t addr, uint16_t stream, bool is_small)
{
    struct replay_places *places = work->places;

    if (places->count == places->capacity) {
        places->capacity = places->capacity == 0 ? 16 : 2 * places->capacity;
        places->items = memory_resize(places->items, places->capacity * sizeof(*places->items));
    }
    places->items[places->count] = (struct replay_place){
        .base = addr,
        .high = addr,
        .stream = stream,
        .is_small = is_small,
        .made_by = REPLAY_NONE,
        .gone_by = REPLAY_NONE,
    };
    return &places->items[places->count++];
}

static uint16_t stream_number(const struct history *history, uint64_t handle)
{
    for (size_t i = 0; i < history->stream_count; i++) {
        if (history->streams[i] == handle) {
            return (uint16_t)i;
        }
    }
    return 0;
}

static bool same_pool(struct varve_pool_id a, struct varve_pool_id b)
{
    return a.capture == b.capture && a.user == b.user;
}

/* Ranges of one pool and stream share a reservation as long as it can reach that far. */
static void take_start(struct work *work, const struct varve_alloc_snapshot *start)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        const struct varve_segment_info *range = &start->segments[i];
        uint16_t stream = stream_number(work->history, range->stream);
        struct replay_place *place = NULL;

        if (!range->is_expandable) {
            continue;
        }
        for (size_t j = 0; j < work->places->count && place == NULL; j++) {
            struct replay_place *known = &work->places->items[j];

            if (known->stream == stream && known->is_small == range->is_small &&
                same_pool(known->pool, range->pool) &&
                range->addr + range->bytes - known->base <= work->reach) {
                place = known;
            }
        }
        if (place == NULL) {
            place = add_place(work, range->addr, stream, range->is_small);
            place->pool = range->pool;
            place->is_start = true;
        }
        place->high = range->addr + range->bytes;
        place->mapped += range->bytes;
    }
}

size_t replay_place_at(const struct replay_places *places, uint64_t addr)
{
    for (size_t i = places->count; i > 0; i--) {
        const struct replay_place *place = &places->items[i - 1];

        if (place->gone_by == REPLAY_NONE && addr >= place->base && addr < place->high) {
            return i - 1;
        }
    }
    return REPLAY_NONE;
}

static struct replay_place *place_of_map(struct work *work, const struct history_event *event, bool is_small)
{
    struct replay_place *below = NULL; /* begins above the address: its base was not known */

    for (size_t i = work->places->count; i > 0; i--) {
        struct replay_place *place = &work->places->items[i - 1];

        if (place->gone_by != REPLAY_NONE || place->stream != event->stream || place->is_small != is_small) {
            continue;
        }
        if (event->addr >= place->base && event->addr <= place->high) {
            return place;
        }
        if (place->is_start && event->addr < place->base && place->high - event->addr <= work->reach &&
            (below == NULL || place->base < below->base)) {
            below = place;
        }
    }
    if (below != NULL) {
        below->base = event->addr;
        return below;
    }
    return add_place(work, event->addr, event->stream, is_small);
}

static void map(struct work *work, size_t index, bool is_small)
{
    const struct history_event *event = &work->trace->events[index];
    struct replay_place *place = place_of_map(work, event, is_small);

    if (place->made_by == REPLAY_NONE && !place->is_start) {
        place->made_by = index;
    }
    place->mapped += event->size;
    if (event->addr + event->size > place->high) {
        place->high = event->addr + event->size;
    }
    if (work->places->of_event != NULL) {
        work->places->of_event[index] = (uint32_t)(place - work->places->items) + 1;
    }
}

static void unmap(struct work *work, size_t index)
{
    const struct history_event *event = &work->trace->events[index];
    size_t number = replay_place_at(work->places, event->addr);
    struct replay_place *place;

    if (number == REPLAY_NONE) {
        return;
    }
    place = &work->places->items[number];
    place->mapped -= event->size < place->mapped ? event->size : place->mapped;
    if (place->mapped == 0) {
        place->gone_by = index;
    }
    if (work->places->of_event != NULL) {
        work->places->of_event[index] = (uint32_t)number + 1;
    }
}

/* For each segment_map whether the request that made it is a small one: bit 0 of what is in of_event. */
static void note_classes(struct work *work)
{
    bool is_small = false;

    for (size_t i = work->trace->event_count; i > 0; i--) {
        const struct history_event *event = &work->trace->events[i - 1];
        struct varve_alloc_forecast forecast;

        if (event->action == HISTORY_ALLOC || event->action == HISTORY_OOM) {
            is_small = varve_alloc_forecast(work->rounding, event->size, 0, &forecast) == VARVE_OK &&
                       forecast.rounded <= SMALL_MAX;
        }
        work->places->of_event[i - 1] = event->action == HISTORY_SEGMENT_MAP && is_small ? 1 : 0;
    }
}

void replay_places_find(const struct history *history, const struct history_device *trace,
                        const struct varve_alloc_snapshot *start, struct varve_alloc *rounding,
                        uint64_t reach, struct replay_places *places)
{
    struct work work = {
        .history = history, .trace = trace, .rounding = rounding, .reach = reach, .places = places};

    *places = (struct replay_places){0};
    places->of_event = memory_resize(NULL, (trace->event_count + 1) * sizeof(*places->of_event));
    take_start(&work, start);
    note_classes(&work);
    for (size_t i = 0; i < trace->event_count; i++) {
        size_t number;

        switch (trace->events[i].action) {
        case HISTORY_SEGMENT_MAP:
            map(&work, i, places->of_event[i] != 0);
            break;
        case HISTORY_SEGMENT_UNMAP:
            unmap(&work, i);
            break;
        case HISTORY_ALLOC:
            number = replay_place_at(places, trace->events[i].addr);
            places->of_event[i] = number != REPLAY_NONE ? (uint32_t)number + 1 : 0;
            break;
        default:
            break;
        }
    }
}

static bool live_together(const struct replay_place *a, const struct replay_place *b)
{
    bool a_first = a->gone_by != REPLAY_NONE && !b->is_start && a->gone_by < b->made_by;
    bool b_first = b->gone_by != REPLAY_NONE && !a->is_start && b->gone_by < a->made_by;

    return !a_first && !b_first;
}

bool replay_places_coexist(const struct replay_places *places, size_t a, size_t b)
{
    return live_together(&places->items[a], &places->items[b]);
}

/* Room above a base up to the next one. */
static uint64_t room_of(const struct replay_places *places, const struct replay_place *place)
{
    uint64_t room = UINT64_MAX;

    for (size_t i = 0; i < places->count; i++) {
        const struct replay_place *other = &places->items[i];

        if (other->base > place->base && other->base - place->base < room && live_together(place, other)) {
            room = other->base - place->base;
        }
    }
    return room;
}

uint64_t replay_places_room(const struct replay_places *places)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < places->count; i++) {
        uint64_t room = room_of(places, &places->items[i]);

        least = room < least ? room : least;
    }
    return least;
}

void replay_places_lower(struct replay_places *places, uint64_t reach, uint64_t large_unit)
{
    for (size_t i = places->count; i > 0; i--) {
        struct replay_place *place = &places->items[i - 1];
        uint64_t unit = place->is_small ? SMALL_UNIT : large_unit;
        uint64_t bytes = (reach + unit - 1) / unit * unit;
        uint64_t room = room_of(places, place);

        if (place->is_start && room < bytes) {
            uint64_t lower = (bytes - room + unit - 1) / unit * unit;

            place->base -= lower < place->base ? lower : 0;
        }
    }
}

/* Without regard to classes and pools, which no one needs then. */
void replay_places_glance(const struct history_device *trace, struct replay_places *places)
{
    struct work work = {.trace = trace, .places = places};

    *places = (struct replay_places){0};
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].action == HISTORY_SEGMENT_MAP) {
            map(&work, i, false);
        } else if (trace->events[i].action == HISTORY_SEGMENT_UNMAP) {
            unmap(&work, i);
        }
    }
}

void replay_places_free(struct replay_places *places)
{
    free(places->items);
    free(places->of_event);
    *places = (struct replay_places){0};
}
