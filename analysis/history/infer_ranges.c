/* SPDX-License-Identifier: Apache-2.0 */
/* An array by address; no two ranges overlap. Ranges that touch become one if both can be of one segment. */
#include "analysis/history/infer_ranges.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>
#include <string.h>

/* The first range that ends behind an address. */
static size_t position_of(const struct replay_ranges *ranges, uint64_t addr)
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

static void infer_ranges_insert(struct replay_ranges *ranges, size_t position, struct replay_range range)
{
    ranges->items = memory_grow(ranges->items, &ranges->capacity, ranges->count, sizeof(range));
    memmove(&ranges->items[position + 1], &ranges->items[position],
            (ranges->count - position) * sizeof(*ranges->items));
    ranges->items[position] = range;
    ranges->count++;
    ranges->unknown_count += range.kind == REPLAY_RANGE_UNKNOWN ? 1 : 0;
}

static void erase(struct replay_ranges *ranges, size_t position)
{
    ranges->unknown_count -= ranges->items[position].kind == REPLAY_RANGE_UNKNOWN ? 1 : 0;
    ranges->count--;
    memmove(&ranges->items[position], &ranges->items[position + 1],
            (ranges->count - position) * sizeof(*ranges->items));
}

struct replay_range *replay_range_at(struct replay_ranges *ranges, uint64_t addr)
{
    size_t position = position_of(ranges, addr);
    return position < ranges->count && ranges->items[position].addr <= addr ? &ranges->items[position] : NULL;
}

/* `range` takes in a neighbour that it touches, if both can be of one segment. */
static bool infer_ranges_absorb(struct replay_ranges *ranges, size_t position, struct replay_range *range)
{
    const struct replay_range *other = &ranges->items[position];
    bool touches = other->addr + other->bytes == range->addr || range->addr + range->bytes == other->addr;
    bool both_known = other->kind != REPLAY_RANGE_UNKNOWN && range->kind != REPLAY_RANGE_UNKNOWN;
    if (!touches || other->stream != range->stream ||
        (both_known && (other->kind != range->kind || !replay_same_pool(other->pool, range->pool)))) {
        return false;
    }
    range->addr = other->addr < range->addr ? other->addr : range->addr;
    range->bytes += other->bytes;
    if (other->kind != REPLAY_RANGE_UNKNOWN) {
        range->kind = other->kind;
        range->pool = other->pool;
    }
    erase(ranges, position);
    return true;
}

bool replay_range_add(struct replay_ranges *ranges, struct replay_range range)
{
    size_t position = position_of(ranges, range.addr);
    if (range.bytes == 0 || (position < ranges->count && ranges->items[position].addr < range.addr + range.bytes)) {
        return false;
    }
    if (position < ranges->count) {
        infer_ranges_absorb(ranges, position, &range);
    }
    if (position > 0 && infer_ranges_absorb(ranges, position - 1, &range)) {
        position--;
    }
    infer_ranges_insert(ranges, position, range);
    return true;
}

bool replay_range_remove(struct replay_ranges *ranges, uint64_t addr, uint64_t bytes)
{
    size_t position = position_of(ranges, addr);
    if (bytes == 0 || position == ranges->count || ranges->items[position].addr > addr) {
        return false;
    }
    struct replay_range whole = ranges->items[position];
    if (bytes > whole.bytes - (addr - whole.addr)) {
        return false;
    }
    erase(ranges, position);
    if (addr + bytes < whole.addr + whole.bytes) {
        struct replay_range back = whole;
        back.addr = addr + bytes;
        back.bytes = whole.addr + whole.bytes - back.addr;
        infer_ranges_insert(ranges, position, back);
    }
    if (addr > whole.addr) {
        struct replay_range front = whole;
        front.bytes = addr - whole.addr;
        infer_ranges_insert(ranges, position, front);
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
