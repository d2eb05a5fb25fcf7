/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped memory of expandable segments while a history is undone: ranges by address that grow together and
 * fall apart. A snapshot has one segment for each contiguous range, an unmapped one has left no more than the
 * event, which does not say whether it served small requests; what was allocated in it before does. Called by
 * start.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <stdlib.h>
#include <string.h>

/* The first range that ends behind an address. */
static size_t place_of(const struct replay_ranges *ranges, uint64_t addr)
{
    size_t low = 0;
    size_t high = ranges->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ranges->items[middle].addr + ranges->items[middle].bytes <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert(struct replay_ranges *ranges, size_t place, struct replay_range range)
{
    if (ranges->count == ranges->capacity) {
        ranges->capacity = ranges->capacity == 0 ? 16 : 2 * ranges->capacity;
        ranges->items = memory_resize(ranges->items, ranges->capacity * sizeof(*ranges->items));
    }
    memmove(&ranges->items[place + 1], &ranges->items[place],
            (ranges->count - place) * sizeof(*ranges->items));
    ranges->items[place] = range;
    ranges->count++;
    ranges->unknown_count += range.kind == REPLAY_RANGE_UNKNOWN ? 1 : 0;
}

static void erase(struct replay_ranges *ranges, size_t place)
{
    ranges->unknown_count -= ranges->items[place].kind == REPLAY_RANGE_UNKNOWN ? 1 : 0;
    ranges->count--;
    memmove(&ranges->items[place], &ranges->items[place + 1],
            (ranges->count - place) * sizeof(*ranges->items));
}

struct replay_range *replay_range_at(struct replay_ranges *ranges, uint64_t addr)
{
    size_t place = place_of(ranges, addr);

    return place < ranges->count && ranges->items[place].addr <= addr ? &ranges->items[place] : NULL;
}

/* `range` takes in a neighbour that it touches, if both can be of one segment. */
static bool absorb(struct replay_ranges *ranges, size_t place, struct replay_range *range)
{
    const struct replay_range *other = &ranges->items[place];
    bool touches = other->addr + other->bytes == range->addr || range->addr + range->bytes == other->addr;

    bool both_known = other->kind != REPLAY_RANGE_UNKNOWN && range->kind != REPLAY_RANGE_UNKNOWN;
    bool same_pool = other->pool.capture == range->pool.capture && other->pool.user == range->pool.user;

    if (!touches || other->stream != range->stream ||
        (both_known && (other->kind != range->kind || !same_pool))) {
        return false;
    }
    range->addr = other->addr < range->addr ? other->addr : range->addr;
    range->bytes += other->bytes;
    if (other->kind != REPLAY_RANGE_UNKNOWN) {
        range->kind = other->kind;
        range->pool = other->pool;
    }
    erase(ranges, place);
    return true;
}

bool replay_range_add(struct replay_ranges *ranges, struct replay_range range)
{
    size_t place = place_of(ranges, range.addr);

    if (range.bytes == 0 || (place < ranges->count && ranges->items[place].addr < range.addr + range.bytes)) {
        return false;
    }
    if (place < ranges->count) {
        absorb(ranges, place, &range);
    }
    if (place > 0 && absorb(ranges, place - 1, &range)) {
        place--;
    }
    insert(ranges, place, range);
    return true;
}

bool replay_range_remove(struct replay_ranges *ranges, uint64_t addr, uint64_t bytes)
{
    size_t place = place_of(ranges, addr);
    struct replay_range whole;

    if (bytes == 0 || place == ranges->count || ranges->items[place].addr > addr) {
        return false;
    }
    whole = ranges->items[place];
    if (bytes > whole.bytes - (addr - whole.addr)) {
        return false;
    }
    erase(ranges, place);
    if (addr + bytes < whole.addr + whole.bytes) {
        struct replay_range back = whole;

        back.addr = addr + bytes;
        back.bytes = whole.addr + whole.bytes - back.addr;
        insert(ranges, place, back);
    }
    if (addr > whole.addr) {
        struct replay_range front = whole;

        front.bytes = addr - whole.addr;
        insert(ranges, place, front);
    }
    return true;
}

void replay_range_note(struct replay_ranges *ranges, uint64_t addr, bool is_small)
{
    struct replay_range *range = replay_range_at(ranges, addr);

    if (range != NULL && range->kind == REPLAY_RANGE_UNKNOWN) {
        range->kind = is_small ? REPLAY_RANGE_SMALL : REPLAY_RANGE_LARGE;
        ranges->unknown_count--;
    }
}

void replay_ranges_free(struct replay_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct replay_ranges){0};
}
