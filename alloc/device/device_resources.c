/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is out: segments, reservations of addresses, handles of physical memory and their mappings, and how
 * much physical memory that is. Each entry point first looks for everything that the driver would refuse,
 * says why in `reason`, and then changes the table in steps that cannot fail. Called by the operations of all
 * devices.
 *
 * A handle may be mapped at several addresses. Released, it takes no more mappings, and its memory is gone with
 * the last one that it has.
 */
#include "alloc/device/device_resources.h"
#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

static const char *device_resources_kind_name(enum device_range_kind kind)
{
    switch (kind) {
    case DEVICE_RANGE_SEGMENT:
        return "segment";
    case DEVICE_RANGE_RESERVATION:
        return "reservation";
    case DEVICE_RANGE_IMPORT:
        return "imported segment";
    case DEVICE_RANGE_POOLED:
        return "allocation of the pool";
    case DEVICE_RANGE_MAPPING:
        return "mapping";
    case DEVICE_RANGE_EXTENT:
        return "extent";
    case DEVICE_RANGE_PINNED:
        return "host memory";
    }
    return "range";
}

static int refuse_overlap(struct device_resources *resources, const struct device_range *range,
                          const struct device_range *other)
{
    return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "the %s [%#llx, %#llx) overlaps the %s [%#llx, %#llx)",
                         device_resources_kind_name(range->kind), (unsigned long long)range->addr,
                         (unsigned long long)(range->addr + range->bytes), device_resources_kind_name(other->kind),
                         (unsigned long long)other->addr, (unsigned long long)(other->addr + other->bytes));
}

static bool device_resources_is_whole(const struct device_resources *resources, uint64_t addr, uint64_t bytes)
{
    return bytes != 0 && addr % resources->grain == 0 && bytes % resources->grain == 0;
}

static void handle_drop(struct device_resources *resources, uint64_t id)
{
    const struct device_slot *handle = slots_find(&resources->handles, id);
    if (resources->handle_gone) {
        resources->handle_gone(resources->handle_gone_context, handle);
    }
    resources_handle_cancel(resources, id);
}

void resources_init(struct device_resources *resources, uint64_t capacity, uint64_t grain, uint64_t floor,
                    uint64_t alignment)
{
    *resources = (struct device_resources){.capacity = capacity, .grain = grain};
    device_ranges_init(&resources->space, floor, alignment);
    device_ranges_init(&resources->mappings, 0, 1);
    device_ranges_init(&resources->pinned, 0, 1);
}

void resources_close(struct device_resources *resources)
{
    device_ranges_close(&resources->space);
    device_ranges_close(&resources->mappings);
    device_ranges_close(&resources->pinned);
    slots_close(&resources->handles);
    slots_close(&resources->events);
    free(resources->streams);
    free(resources->created);
    resources->streams = NULL;
    resources->created = NULL;
}

uint64_t resources_footprint(const struct device_resources *resources, uint64_t bytes)
{
    return bytes > UINT64_MAX - resources->grain ? UINT64_MAX
                                                 : (bytes + resources->grain - 1) / resources->grain * resources->grain;
}

static void device_resources_use(struct device_resources *resources, uint64_t bytes)
{
    resources->used += bytes;
    if (resources->used > resources->used_peak) {
        resources->used_peak = resources->used;
    }
}

int resources_room(struct device_resources *resources, uint64_t bytes)
{
    if (bytes == 0) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "0 bytes of memory asked for");
    }
    assert(resources->used <= resources->capacity);
    if (resources_footprint(resources, bytes) > resources->capacity - resources->used) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "%llu bytes do not fit: %llu of %llu are in use",
                             (unsigned long long)bytes, (unsigned long long)resources->used,
                             (unsigned long long)resources->capacity);
    }
    return 0;
}

int resources_pool_room(struct device_resources *resources, uint64_t bytes)
{
    if (bytes > resources->capacity - resources->used) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY,
                             "the pool can't grow by %llu bytes: %llu of %llu are in use", (unsigned long long)bytes,
                             (unsigned long long)resources->used, (unsigned long long)resources->capacity);
    }
    return 0;
}

void resources_pool_grow(struct device_resources *resources, uint64_t bytes)
{
    resources->pooled += bytes;
    device_resources_use(resources, bytes);
}

void resources_pool_shrink(struct device_resources *resources, uint64_t bytes)
{
    assert(bytes <= resources->pooled);
    resources->pooled -= bytes;
    resources->used -= bytes;
}

/* Does a size make sense for that kind of range, and is there room for it? */
static int range_check(struct device_resources *resources, enum device_range_kind kind, uint64_t bytes)
{
    if (kind == DEVICE_RANGE_SEGMENT) {
        return resources_room(resources, bytes);
    }
    if (kind == DEVICE_RANGE_POOLED && bytes == 0) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "0 bytes of memory asked for");
    }
    if (kind == DEVICE_RANGE_RESERVATION && bytes == 0) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "0 bytes of addresses asked for");
    }
    if (kind == DEVICE_RANGE_RESERVATION && !device_resources_is_whole(resources, 0, bytes)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "a reservation of %llu bytes is not a multiple of %llu",
                             (unsigned long long)bytes, (unsigned long long)resources->grain);
    }
    if (kind == DEVICE_RANGE_RESERVATION && bytes > UINT64_MAX / 2) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "no addresses for %llu bytes",
                             (unsigned long long)bytes);
    }
    return 0;
}

/* Only segments have memory of their own. */
static uint64_t range_memory(const struct device_resources *resources, const struct device_range *range)
{
    return range->kind == DEVICE_RANGE_SEGMENT ? resources_footprint(resources, range->bytes) : 0;
}

int resources_range_new(struct device_resources *resources, enum device_range_kind kind, uint64_t bytes,
                        struct device_range **range_out)
{
    int error = range_check(resources, kind, bytes);
    if (error != 0) {
        return error;
    }
    struct device_range *range = calloc(1, sizeof(*range));
    if (!range) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of a %s",
                             device_resources_kind_name(kind));
    }
    range->kind = kind;
    range->bytes = bytes;
    *range_out = range;
    return 0;
}

void resources_range_end(struct device_resources *resources, struct device_range *range)
{
    resources->used -= range_memory(resources, range);
    free(range);
}

int resources_range_enter(struct device_resources *resources, struct device_range *range)
{
    if (range->addr == 0 || range->bytes == 0 || range->addr > UINT64_MAX - range->bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "a %s of %llu bytes cannot lie at %#llx",
                             device_resources_kind_name(range->kind), (unsigned long long)range->bytes,
                             (unsigned long long)range->addr);
    }
    const struct device_range *other = device_ranges_overlap(&resources->space, range->addr, range->bytes);
    if (other) {
        return refuse_overlap(resources, range, other);
    }
    device_ranges_insert(&resources->space, range);
    device_resources_use(resources, range_memory(resources, range));
    return 0;
}

int resources_range_find(struct device_resources *resources, enum device_range_kind kind, uint64_t addr, uint64_t bytes,
                         struct device_range **range_out)
{
    struct device_range *range = device_ranges_at_or_before(&resources->space, addr);
    if (!range || range->addr != addr || range->kind != kind) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "no %s begins at %#llx",
                             device_resources_kind_name(kind), (unsigned long long)addr);
    }
    if (bytes != 0 && range->bytes != bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "the %s at %#llx has %llu bytes, not %llu",
                             device_resources_kind_name(kind), (unsigned long long)addr,
                             (unsigned long long)range->bytes, (unsigned long long)bytes);
    }
    const struct device_range *mapping =
        kind == DEVICE_RANGE_RESERVATION ? device_ranges_overlap(&resources->mappings, addr, range->bytes) : NULL;
    if (mapping) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "in the reservation at %#llx memory is mapped at %#llx",
                             (unsigned long long)addr, (unsigned long long)mapping->addr);
    }
    *range_out = range;
    return 0;
}

int resources_range_to_free(struct device_resources *resources, enum device_range_kind kind, uint64_t addr,
                            uint64_t bytes, struct device_range **range_out)
{
    return bytes == 0 && kind != DEVICE_RANGE_IMPORT ? DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "0 bytes to free")
                                                     : resources_range_find(resources, kind, addr, bytes, range_out);
}

int resources_handle_create(struct device_resources *resources, uint64_t bytes, uint64_t *handle_out)
{
    int error = resources_room(resources, bytes);
    if (error != 0) {
        return error;
    }
    if (!device_resources_is_whole(resources, 0, bytes)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "a handle of %llu bytes is not a multiple of %llu",
                             (unsigned long long)bytes, (unsigned long long)resources->grain);
    }
    struct device_slot *slot = slots_acquire(&resources->handles, handle_out);
    if (!slot) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of a handle");
    }
    slot->bytes = bytes;
    device_resources_use(resources, resources_footprint(resources, bytes));
    return 0;
}

void resources_handle_cancel(struct device_resources *resources, uint64_t handle)
{
    resources->used -= resources_footprint(resources, slots_find(&resources->handles, handle)->bytes);
    slots_release(&resources->handles, handle);
}

int resources_handle_find(struct device_resources *resources, uint64_t handle, uint64_t bytes,
                          struct device_slot **slot_out)
{
    struct device_slot *slot = slots_find(&resources->handles, handle);
    if (!slot || slot->is_released) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "no handle %#llx", (unsigned long long)handle);
    }
    if (slot->bytes != bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "the handle %#llx has %llu bytes, not %llu",
                             (unsigned long long)handle, (unsigned long long)slot->bytes, (unsigned long long)bytes);
    }
    *slot_out = slot;
    return 0;
}

void resources_handle_release(struct device_resources *resources, uint64_t handle)
{
    struct device_slot *slot = slots_find(&resources->handles, handle);
    if (slot->maps == 0) {
        handle_drop(resources, handle);
    } else {
        slot->is_released = true;
    }
}

int resources_map_check(struct device_resources *resources, uint64_t addr, uint64_t bytes, uint64_t handle,
                        struct device_range **mapping_out)
{
    const struct device_range *around = device_ranges_at_or_before(&resources->space, addr);
    struct device_slot *slot;
    int error = resources_handle_find(resources, handle, bytes, &slot);
    if (error != 0) {
        return error;
    }
    if (!around || around->kind != DEVICE_RANGE_RESERVATION || addr - around->addr >= around->bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "%#llx lies in no reservation",
                             (unsigned long long)addr);
    }
    if (!device_resources_is_whole(resources, addr, bytes) || bytes > around->bytes - (addr - around->addr)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID,
                             "%llu bytes at %#llx end behind their reservation, or are no multiples of %llu",
                             (unsigned long long)bytes, (unsigned long long)addr, (unsigned long long)resources->grain);
    }
    struct device_range *mapping;
    error = resources_range_new(resources, DEVICE_RANGE_MAPPING, bytes, &mapping);
    if (error != 0) {
        return error;
    }
    mapping->addr = addr;
    mapping->value = handle;
    const struct device_range *other = device_ranges_overlap(&resources->mappings, addr, bytes);
    if (other) {
        error = refuse_overlap(resources, mapping, other);
        free(mapping);
        return error;
    }
    *mapping_out = mapping;
    return 0;
}

void resources_map_enter(struct device_resources *resources, struct device_range *mapping)
{
    struct device_slot *slot = slots_find(&resources->handles, mapping->value);
    assert(slot && !slot->is_released);
    device_ranges_insert(&resources->mappings, mapping);
    slot->maps++;
}

int resources_mapped_check(struct device_resources *resources, uint64_t addr, uint64_t bytes)
{
    uint64_t at = addr;
    if (bytes == 0 || addr > UINT64_MAX - bytes) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "%llu bytes at %#llx are no range",
                             (unsigned long long)bytes, (unsigned long long)addr);
    }
    const struct device_range *mapping = NULL;
    for (; at < addr + bytes; at = mapping->addr + mapping->bytes) {
        mapping = device_ranges_at_or_before(&resources->mappings, at);
        if (!mapping || mapping->addr != at || mapping->bytes > addr + bytes - at) {
            return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID,
                                 "[%#llx, %#llx) is not made of whole mappings: see %#llx", (unsigned long long)addr,
                                 (unsigned long long)(addr + bytes), (unsigned long long)at);
        }
    }
    return 0;
}

void resources_access_enter(struct device_resources *resources, uint64_t addr, uint64_t bytes)
{
    struct device_range *mapping;
    for (uint64_t at = addr; at < addr + bytes; at = mapping->addr + mapping->bytes) {
        mapping = device_ranges_at_or_before(&resources->mappings, at);
        mapping->is_accessible = true;
    }
}

/* The range lies in a reservation. */
static int mapped_memory_check(struct device_resources *resources, uint64_t addr, uint64_t bytes)
{
    const struct device_range *mapping = NULL;
    for (uint64_t at = addr; at < addr + bytes; at = mapping->addr + mapping->bytes) {
        mapping = device_ranges_at_or_before(&resources->mappings, at);
        if (!mapping || at - mapping->addr >= mapping->bytes || !mapping->is_accessible) {
            return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "[%#llx, %#llx): at %#llx %s",
                                 (unsigned long long)addr, (unsigned long long)(addr + bytes), (unsigned long long)at,
                                 mapping && at - mapping->addr < mapping->bytes ? "the device has no access"
                                                                                : "nothing is mapped");
        }
    }
    return 0;
}

bool resources_memory_begins(const struct device_resources *resources, uint64_t addr)
{
    const struct device_range *range = device_ranges_at_or_before(&resources->space, addr);
    return range && addr - range->addr < range->bytes;
}

int resources_memory_check(struct device_resources *resources, uint64_t addr, uint64_t bytes)
{
    const struct device_range *range = device_ranges_at_or_before(&resources->space, addr);
    assert(bytes != 0);
    if (!resources_memory_begins(resources, addr)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "%#llx lies in no memory of the device",
                             (unsigned long long)addr);
    }
    if (bytes > range->bytes - (addr - range->addr)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_INVALID, "%llu bytes at %#llx end behind the %s [%#llx, %#llx)",
                             (unsigned long long)bytes, (unsigned long long)addr,
                             device_resources_kind_name(range->kind), (unsigned long long)range->addr,
                             (unsigned long long)(range->addr + range->bytes));
    }
    return range->kind == DEVICE_RANGE_RESERVATION ? mapped_memory_check(resources, addr, bytes) : 0;
}

void resources_unmap_enter(struct device_resources *resources, struct device_range *mapping)
{
    struct device_slot *slot = slots_find(&resources->handles, mapping->value);
    assert(slot->maps != 0);
    if (--slot->maps == 0 && slot->is_released) {
        handle_drop(resources, mapping->value);
    }
    device_ranges_remove(&resources->mappings, mapping);
    free(mapping);
}

/* ---- events ----
 *
 * Each event has the number of its last record, each stream the number up to
 * which everything on it is complete, so that a whole stream completes in one step. Streams of which there is
 * nothing to say have no entry. As with the driver, an event that was never recorded is complete, and one
 * that is recorded again stands for its last record only. */

static struct device_slot *event_find(struct device_resources *resources, uint64_t event)
{
    struct device_slot *slot = slots_find(&resources->events, event);
    if (!slot) {
        varve_message_set(&resources->reason, VARVE_ERROR_NOT_FOUND, "no event %#llx", (unsigned long long)event);
    }
    return slot;
}

/* First entry whose stream is not below `stream`. */
static size_t device_resources_stream_position(const struct device_resources *resources, uint64_t stream)
{
    size_t low = 0, high = resources->stream_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (resources->streams[middle].stream < stream) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool is_pending(const struct device_resources *resources, const struct device_slot *slot)
{
    if (!slot->is_pending) {
        return false;
    }
    const struct device_stream *stream = resources_stream_find(resources, slot->stream);
    return !stream || slot->value > stream->completed;
}

int resources_event_create(struct device_resources *resources, uint64_t *event_out)
{
    if (!slots_acquire(&resources->events, event_out)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an event");
    }
    return 0;
}

int resources_event_destroy(struct device_resources *resources, uint64_t event)
{
    if (!event_find(resources, event)) {
        return VARVE_ERROR_NOT_FOUND;
    }
    slots_release(&resources->events, event);
    return 0;
}

int resources_event_record(struct device_resources *resources, uint64_t event, uint64_t stream, bool is_incomplete)
{
    struct device_slot *slot = event_find(resources, event);
    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    slot->stream = stream;
    slot->value = ++resources->records;
    slot->is_pending = is_incomplete;
    return 0;
}

int resources_event_query(struct device_resources *resources, uint64_t event)
{
    const struct device_slot *slot = event_find(resources, event);
    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    return is_pending(resources, slot) ? 0 : 1;
}

int resources_event_complete(struct device_resources *resources, uint64_t event)
{
    struct device_slot *slot = event_find(resources, event);
    if (!slot) {
        return VARVE_ERROR_NOT_FOUND;
    }
    if (!is_pending(resources, slot)) {
        return DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "the event %#llx is not pending",
                             (unsigned long long)event);
    }
    slot->is_pending = false;
    return 0;
}

struct device_stream *resources_stream_find(const struct device_resources *resources, uint64_t stream)
{
    size_t position = device_resources_stream_position(resources, stream);
    if (position == resources->stream_count || resources->streams[position].stream != stream) {
        return NULL;
    }
    return &resources->streams[position];
}

struct device_stream *resources_stream_acquire(struct device_resources *resources, uint64_t stream)
{
    struct device_stream *found = resources_stream_find(resources, stream);
    if (found) {
        return found;
    }
    if (!ARRAY_GROW(resources->streams, resources->stream_capacity, resources->stream_count + 1)) {
        varve_message_set(&resources->reason, VARVE_ERROR_NO_MEMORY, "no memory for the entry of a stream");
        return NULL;
    }
    size_t position = device_resources_stream_position(resources, stream);
    found = &resources->streams[position];
    memmove(found + 1, found, (resources->stream_count - position) * sizeof(*found));
    resources->stream_count++;
    *found = (struct device_stream){.stream = stream};
    return found;
}

/* ---- streams of stream_create ---- */

int resources_created_reserve(struct device_resources *resources)
{
    return ARRAY_GROW(resources->created, resources->created_capacity, resources->created_count + 1)
               ? 0
               : DEVICE_REFUSE(resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of a stream");
}

void resources_created_enter(struct device_resources *resources, uint64_t stream)
{
    assert(resources->created_count < resources->created_capacity);
    resources->created[resources->created_count++] = stream;
}

/* Its position; created_count if it is not there. */
static size_t created_position(const struct device_resources *resources, uint64_t stream)
{
    size_t position = 0;
    while (position < resources->created_count && resources->created[position] != stream) {
        position++;
    }
    return position;
}

int resources_created_find(struct device_resources *resources, uint64_t stream)
{
    return created_position(resources, stream) == resources->created_count
               ? DEVICE_REFUSE(resources, VARVE_ERROR_NOT_FOUND, "no stream %#llx was created here",
                               (unsigned long long)stream)
               : 0;
}

void resources_created_remove(struct device_resources *resources, uint64_t stream)
{
    size_t position = created_position(resources, stream);
    assert(position < resources->created_count);
    resources->created[position] = resources->created[--resources->created_count];
}

int resources_stream_check(struct device_resources *resources, uint64_t stream)
{
    return stream - DEVICE_STREAM_FIRST < resources->streams_made ? resources_created_find(resources, stream) : 0;
}

/* ---- the walker ---- */

static uint64_t device_resources_range_end(const struct device_range *range)
{
    return range->addr + range->bytes;
}

static uint64_t device_resources_segment_bytes(const struct device_resources *resources)
{
    uint64_t bytes = 0;
    const struct device_range *range = device_ranges_at_or_after(&resources->space, 0);
    for (; range; range = device_ranges_at_or_after(&resources->space, device_resources_range_end(range))) {
        if (range->kind == DEVICE_RANGE_SEGMENT) {
            bytes += resources_footprint(resources, range->bytes);
        }
    }
    return bytes;
}

/* Counts mappings by handle into `maps` on the way. */
static int mappings_check(const struct device_resources *resources, uint32_t *maps, struct varve_message *message)
{
    const struct device_range *mapping = device_ranges_at_or_after(&resources->mappings, 0);
    for (; mapping; mapping = device_ranges_at_or_after(&resources->mappings, device_resources_range_end(mapping))) {
        const struct device_range *around = device_ranges_at_or_before(&resources->space, mapping->addr);
        const struct device_slot *handle = slots_find(&resources->handles, mapping->value);
        unsigned long long addr = mapping->addr;
        if (!around || around->kind != DEVICE_RANGE_RESERVATION ||
            device_resources_range_end(mapping) > device_resources_range_end(around)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "the mapping at %#llx is in no reservation", addr);
        }
        if (!handle || handle->bytes != mapping->bytes) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "the mapping at %#llx is of the handle %#llx, which is not live or not of %llu "
                                     "bytes",
                                     addr, (unsigned long long)mapping->value, (unsigned long long)mapping->bytes);
        }
        maps[slots_index(mapping->value)]++;
    }
    return 0;
}

static int handles_check(const struct device_resources *resources, const uint32_t *maps, struct varve_message *message)
{
    uint64_t used = device_resources_segment_bytes(resources) + resources->pooled;
    for (uint32_t i = 0; i < resources->handles.count; i++) {
        const struct device_slot *handle = &resources->handles.slots[i];
        if (!handle->is_live) {
            continue;
        }
        used += resources_footprint(resources, handle->bytes);
        if (handle->maps != maps[i] || (handle->is_released && handle->maps == 0)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "handle %u: %u mappings, %u counted%s", i + 1,
                                     maps[i], handle->maps, handle->is_released ? ", released" : "");
        }
    }
    if (used != resources->used || used > resources->capacity) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "%llu bytes in use, %llu counted, of %llu",
                                 (unsigned long long)used, (unsigned long long)resources->used,
                                 (unsigned long long)resources->capacity);
    }
    return 0;
}

static int events_check(const struct device_resources *resources, struct varve_message *message)
{
    for (size_t i = 0; i < resources->stream_count; i++) {
        const struct device_stream *stream = &resources->streams[i];
        if ((i != 0 && stream[-1].stream >= stream->stream) || stream->completed > resources->records) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "stream %#llx: out of order, or ahead of records",
                                     (unsigned long long)stream->stream);
        }
    }
    for (uint32_t i = 0; i < resources->events.count; i++) {
        if (resources->events.slots[i].is_live && resources->events.slots[i].value > resources->records) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "event %u: recorded in the future", i + 1);
        }
    }
    return 0;
}

int resources_check(const struct device_resources *resources, struct varve_message *message)
{
    uint32_t *maps = calloc((size_t)resources->handles.count + 1, sizeof(*maps));
    if (!maps) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to check the device's resources");
    }
    int error = device_ranges_check(&resources->space, "addresses", message);
    error = error == 0 ? device_ranges_check(&resources->mappings, "mappings", message) : error;
    error = error == 0 ? device_ranges_check(&resources->pinned, "host memory", message) : error;
    error = error == 0 ? slots_check(&resources->handles, "handles", message) : error;
    error = error == 0 ? slots_check(&resources->events, "events", message) : error;
    error = error == 0 ? mappings_check(resources, maps, message) : error;
    error = error == 0 ? handles_check(resources, maps, message) : error;
    error = error == 0 ? events_check(resources, message) : error;
    free(maps);
    return error;
}
