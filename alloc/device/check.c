/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the books of a sim or host device and compares every sum and every list with the others; reports the
 * first thing that is wrong. For tests and for varve_sim_check; takes O(n log n).
 */
#include "alloc/device/shared.h"

#include <stdlib.h>

static uint64_t range_end(const struct device_range *range)
{
    return range->addr + range->bytes;
}

static uint64_t segment_bytes(const struct device_ledger *ledger)
{
    uint64_t bytes = 0;
    const struct device_range *range = device_ranges_at_or_after(&ledger->space, 0);

    for (; range; range = device_ranges_at_or_after(&ledger->space, range_end(range))) {
        if (range->kind == DEVICE_RANGE_SEGMENT) {
            bytes += ledger_footprint(ledger, range->bytes);
        }
    }
    return bytes;
}

/* Counts mappings by handle into `maps` on the way. */
static int mappings_check(const struct device_ledger *ledger, uint32_t *maps, struct varve_message *message)
{
    const struct device_range *mapping = device_ranges_at_or_after(&ledger->mappings, 0);

    for (; mapping; mapping = device_ranges_at_or_after(&ledger->mappings, range_end(mapping))) {
        const struct device_range *around = device_ranges_at_or_before(&ledger->space, mapping->addr);
        const struct device_slot *handle = slots_find(&ledger->handles, mapping->value);
        unsigned long long addr = mapping->addr;

        if (!around || around->kind != DEVICE_RANGE_RESERVATION || range_end(mapping) > range_end(around)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "the mapping at %#llx is in no reservation", addr);
        }
        if (!handle || handle->bytes != mapping->bytes) {
            return varve_message_set(
                message, VARVE_ERROR_CORRUPT,
                "the mapping at %#llx is of the handle %#llx, which is not live or not of %llu "
                "bytes",
                addr, (unsigned long long)mapping->value, (unsigned long long)mapping->bytes);
        }
        maps[slots_index(mapping->value)]++;
    }
    return 0;
}

static int handles_check(const struct device_ledger *ledger, const uint32_t *maps,
                         struct varve_message *message)
{
    uint64_t used = segment_bytes(ledger) + ledger->pooled;

    for (uint32_t i = 0; i < ledger->handles.count; i++) {
        const struct device_slot *handle = &ledger->handles.slots[i];

        if (!handle->is_live) {
            continue;
        }
        used += ledger_footprint(ledger, handle->bytes);
        if (handle->maps != maps[i] || (handle->is_released && handle->maps == 0)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "handle %u: %u mappings, %u counted%s",
                                     i + 1, maps[i], handle->maps, handle->is_released ? ", released" : "");
        }
    }
    if (used != ledger->used || used > ledger->capacity) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%llu bytes in use, %llu counted, of %llu",
                                 (unsigned long long)used, (unsigned long long)ledger->used,
                                 (unsigned long long)ledger->capacity);
    }
    return 0;
}

static int events_check(const struct device_ledger *ledger, struct varve_message *message)
{
    for (size_t i = 0; i < ledger->stream_count; i++) {
        const struct device_stream *stream = &ledger->streams[i];

        if ((i != 0 && stream[-1].stream >= stream->stream) || stream->completed > ledger->records) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "stream %#llx: out of order, or ahead of records",
                                     (unsigned long long)stream->stream);
        }
    }
    for (uint32_t i = 0; i < ledger->events.count; i++) {
        if (ledger->events.slots[i].is_live && ledger->events.slots[i].value > ledger->records) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "event %u: recorded in the future", i + 1);
        }
    }
    return 0;
}

int ledger_check(const struct device_ledger *ledger, struct varve_message *message)
{
    uint32_t *maps = calloc((size_t)ledger->handles.count + 1, sizeof(*maps));
    int error;

    if (!maps) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to check the device's books");
    }
    error = device_ranges_check(&ledger->space, "addresses", message);
    if (error == 0) {
        error = device_ranges_check(&ledger->mappings, "mappings", message);
    }
    if (error == 0) {
        error = slots_check(&ledger->handles, "handles", message);
    }
    if (error == 0) {
        error = slots_check(&ledger->events, "events", message);
    }
    if (error == 0) {
        error = mappings_check(ledger, maps, message);
    }
    if (error == 0) {
        error = handles_check(ledger, maps, message);
    }
    if (error == 0) {
        error = events_check(ledger, message);
    }
    free(maps);
    return error;
}
