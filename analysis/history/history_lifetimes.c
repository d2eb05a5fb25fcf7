/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over the events with a map of the addresses in use; a free of an address that is not among them shows a
 * block from before the first event, which had the size that the free says.
 */
#include "analysis/history/history_lifetimes.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

struct maker {
    const struct history *history;
    const struct history_device *device;
    struct history_lifetimes *out;
    struct map live; /* by address: number in out->items */
    uint16_t *pools; /* of the segments at the end, by their numbers */
};

static uint16_t pool_number(struct history_lifetimes *out, const uint64_t id[2])
{
    size_t number = 0;
    while (number < out->pool_count && memcmp(out->pools[number], id, sizeof(out->pools[0])) != 0) {
        number++;
    }
    if (number == UINT16_MAX) {
        return 0;
    }
    if (number == out->pool_count) {
        out->pools = memory_grow(out->pools, &out->pool_capacity, out->pool_count, sizeof(*out->pools));
        memcpy(out->pools[out->pool_count++], id, sizeof(out->pools[0]));
    }
    return (uint16_t)number;
}

/* Segments are by address. */
static uint16_t pool_at(const struct maker *maker, uint64_t addr)
{
    const struct history_device *device = maker->device;
    size_t low = 0;
    size_t high = device->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (device->segments[middle].addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && addr - device->segments[low - 1].addr < device->segments[low - 1].size ? maker->pools[low - 1]
                                                                                             : 0;
}

static uint16_t history_lifetimes_pool_of(struct maker *maker, const struct history_event *event)
{
    return event->pool > 0 ? pool_number(maker->out, maker->history->pool_ids[event->pool - 1])
                           : pool_at(maker, event->addr);
}

/* Lives to the end, for now. */
static void history_lifetimes_begin(struct maker *maker, int64_t lower, const struct history_event *event)
{
    struct history_lifetimes *out = maker->out;
    map_put(&maker->live, event->addr, out->count);
    *MEMORY_ADD(out->items, out->count, out->capacity) = (struct history_lifetime){
        .lower = lower,
        .upper = (int64_t)maker->device->event_count,
        .addr = event->addr,
        .size = event->size,
        .stack = lower == HISTORY_BEFORE ? 0 : event->stack,
        .stream = event->stream,
        .pool = history_lifetimes_pool_of(maker, event),
    };
}

static void history_lifetimes_follow(struct maker *maker, size_t index)
{
    const struct history_event *event = &maker->device->events[index];
    uint64_t number;
    switch (event->action) {
    case HISTORY_ALLOC:
        number = map_remove(&maker->live, event->addr);
        if (number != MAP_NONE) {
            maker->out->items[number].upper = (int64_t)index;
            maker->out->lost++;
        }
        history_lifetimes_begin(maker, (int64_t)index, event);
        break;
    case HISTORY_FREE_REQUESTED:
        if (map_find(&maker->live, event->addr) == MAP_NONE) {
            history_lifetimes_begin(maker, HISTORY_BEFORE, event);
        }
        break;
    case HISTORY_FREE_COMPLETED:
        if (map_find(&maker->live, event->addr) == MAP_NONE) {
            history_lifetimes_begin(maker, HISTORY_BEFORE, event);
        }
        number = map_remove(&maker->live, event->addr);
        maker->out->items[number].upper = (int64_t)index;
        break;
    default:
        break;
    }
}

/* Blocks that no event names live all the time. */
static void add_unnamed(struct maker *maker)
{
    const struct history_device *device = maker->device;
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            if (block->state != HISTORY_INACTIVE && map_find(&maker->live, block->addr) == MAP_NONE) {
                history_lifetimes_begin(
                    maker, HISTORY_BEFORE,
                    &(struct history_event){.addr = block->addr,
                                            .size = block->requested > 0 ? block->requested : block->size,
                                            .stream = segment->stream});
                maker->out->items[maker->out->count - 1].stack = block->stack;
            }
        }
    }
}

static int compare_lifetimes(const void *a_untyped, const void *b_untyped)
{
    const struct history_lifetime *a = a_untyped;
    const struct history_lifetime *b = b_untyped;
    if (a->lower != b->lower) {
        return a->lower < b->lower ? -1 : 1;
    }
    return (a->addr > b->addr) - (a->addr < b->addr);
}

void history_lifetimes_make(const struct history *history, const struct history_device *device,
                            struct history_lifetimes *lifetimes)
{
    struct maker maker = {.history = history, .device = device, .out = lifetimes};
    static const uint64_t default_pool[2] = {0, 0};
    *lifetimes = (struct history_lifetimes){0};
    pool_number(lifetimes, default_pool);
    maker.pools = memory_resize(NULL, (device->segment_count + 1) * sizeof(*maker.pools));
    for (size_t i = 0; i < device->segment_count; i++) {
        maker.pools[i] = pool_number(lifetimes, device->segments[i].pool_id);
    }
    for (size_t i = 0; i < device->event_count; i++) {
        history_lifetimes_follow(&maker, i);
    }
    add_unnamed(&maker);
    if (lifetimes->count > 0) {
        qsort(lifetimes->items, lifetimes->count, sizeof(*lifetimes->items), compare_lifetimes);
    }
    map_free(&maker.live);
    free(maker.pools);
}

void history_lifetimes_free(struct history_lifetimes *lifetimes)
{
    free(lifetimes->items);
    free(lifetimes->pools);
    *lifetimes = (struct history_lifetimes){0};
}
