/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is out: segments, reservations of addresses, handles of physical memory and their mappings, and how
 * much physical memory that is. Each entry point first looks for everything that the driver would refuse,
 * says why in `reason`, and then changes the books in steps that cannot fail. Called by the sim and the host
 * device.
 *
 * A handle may be mapped in several places. Released, it takes no more mappings, and its memory is gone with
 * the last one that it has.
 */
#include "alloc/device/shared.h"

#include <stdlib.h>

static const char *kind_name(enum device_range_kind kind)
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
    }
    return "range";
}

static int refuse_overlap(struct device_ledger *ledger, const struct device_range *range,
                          const struct device_range *other)
{
    return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "the %s [%#llx, %#llx) overlaps the %s [%#llx, %#llx)",
                         kind_name(range->kind), (unsigned long long)range->addr,
                         (unsigned long long)(range->addr + range->bytes), kind_name(other->kind),
                         (unsigned long long)other->addr, (unsigned long long)(other->addr + other->bytes));
}

static bool is_whole(const struct device_ledger *ledger, uint64_t addr, uint64_t bytes)
{
    return bytes != 0 && addr % ledger->grain == 0 && bytes % ledger->grain == 0;
}

static void handle_drop(struct device_ledger *ledger, uint64_t id)
{
    const struct device_slot *handle = slots_find(&ledger->handles, id);

    ledger->used -= ledger_footprint(ledger, handle->bytes);
    if (ledger->handle_gone) {
        ledger->handle_gone(ledger->handle_gone_context, handle);
    }
    slots_release(&ledger->handles, id);
}

void ledger_init(struct device_ledger *ledger, uint64_t capacity, uint64_t grain, uint64_t floor,
                 uint64_t alignment)
{
    *ledger = (struct device_ledger){.capacity = capacity, .grain = grain};
    device_ranges_init(&ledger->space, floor, alignment);
    device_ranges_init(&ledger->mappings, 0, 1);
}

void ledger_close(struct device_ledger *ledger)
{
    device_ranges_close(&ledger->space);
    device_ranges_close(&ledger->mappings);
    slots_close(&ledger->handles);
    slots_close(&ledger->events);
    free(ledger->streams);
    ledger->streams = NULL;
}

uint64_t ledger_footprint(const struct device_ledger *ledger, uint64_t bytes)
{
    return bytes > UINT64_MAX - ledger->grain ? UINT64_MAX
                                              : (bytes + ledger->grain - 1) / ledger->grain * ledger->grain;
}

int ledger_room(struct device_ledger *ledger, uint64_t bytes)
{
    if (bytes == 0) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "0 bytes of memory asked for");
    }
    assert(ledger->used <= ledger->capacity);
    if (ledger_footprint(ledger, bytes) > ledger->capacity - ledger->used) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NO_MEMORY, "%llu bytes do not fit: %llu of %llu are in use",
                             (unsigned long long)bytes, (unsigned long long)ledger->used,
                             (unsigned long long)ledger->capacity);
    }
    return 0;
}

int ledger_pool_room(struct device_ledger *ledger, uint64_t bytes)
{
    if (bytes > ledger->capacity - ledger->used) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NO_MEMORY,
                             "the pool can't grow by %llu bytes: %llu of %llu are in use",
                             (unsigned long long)bytes, (unsigned long long)ledger->used,
                             (unsigned long long)ledger->capacity);
    }
    return 0;
}

void ledger_pool_grow(struct device_ledger *ledger, uint64_t bytes)
{
    ledger->pooled += bytes;
    ledger->used += bytes;
}

void ledger_pool_shrink(struct device_ledger *ledger, uint64_t bytes)
{
    assert(bytes <= ledger->pooled);
    ledger->pooled -= bytes;
    ledger->used -= bytes;
}

struct device_range *ledger_range_new(struct device_ledger *ledger, enum device_range_kind kind,
                                      uint64_t bytes)
{
    struct device_range *range = calloc(1, sizeof(*range));

    if (range) {
        range->kind = kind;
        range->bytes = bytes;
    } else {
        varve_message_set(&ledger->reason, VARVE_ERROR_NO_MEMORY, "no memory for the books of a %s",
                          kind_name(kind));
    }
    return range;
}

int ledger_range_enter(struct device_ledger *ledger, struct device_range *range, uint64_t addr)
{
    const struct device_range *other;
    int error = 0;

    range->addr = addr;
    if (addr == 0 || range->bytes == 0 || addr > UINT64_MAX - range->bytes) {
        error =
            DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "a %s of %llu bytes cannot lie at %#llx",
                          kind_name(range->kind), (unsigned long long)range->bytes, (unsigned long long)addr);
    } else {
        other = device_ranges_overlap(&ledger->space, addr, range->bytes);
        error = other ? refuse_overlap(ledger, range, other) : 0;
    }
    if (error != 0) {
        free(range);
        return error;
    }
    device_ranges_insert(&ledger->space, range);
    if (range->kind == DEVICE_RANGE_SEGMENT) {
        ledger->used += ledger_footprint(ledger, range->bytes);
    }
    return 0;
}

int ledger_range_find(struct device_ledger *ledger, enum device_range_kind kind, uint64_t addr,
                      uint64_t bytes, struct device_range **range_out)
{
    struct device_range *range = device_ranges_at_or_before(&ledger->space, addr);
    const struct device_range *mapping;

    if (!range || range->addr != addr || range->kind != kind) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NOT_FOUND, "no %s begins at %#llx", kind_name(kind),
                             (unsigned long long)addr);
    }
    if (bytes != 0 && range->bytes != bytes) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "the %s at %#llx has %llu bytes, not %llu",
                             kind_name(kind), (unsigned long long)addr, (unsigned long long)range->bytes,
                             (unsigned long long)bytes);
    }
    mapping = kind == DEVICE_RANGE_RESERVATION ? device_ranges_overlap(&ledger->mappings, addr, range->bytes)
                                               : NULL;
    if (mapping) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID,
                             "in the reservation at %#llx memory is mapped at %#llx",
                             (unsigned long long)addr, (unsigned long long)mapping->addr);
    }
    *range_out = range;
    return 0;
}

int ledger_range_to_free(struct device_ledger *ledger, enum device_range_kind kind, uint64_t addr,
                         uint64_t bytes, struct device_range **range_out)
{
    return bytes == 0 ? DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "0 bytes to free")
                      : ledger_range_find(ledger, kind, addr, bytes, range_out);
}

void ledger_range_drop(struct device_ledger *ledger, struct device_range *range)
{
    if (range->kind == DEVICE_RANGE_SEGMENT) {
        ledger->used -= ledger_footprint(ledger, range->bytes);
    }
    device_ranges_remove(&ledger->space, range);
    free(range);
}

int ledger_handle_create(struct device_ledger *ledger, uint64_t bytes, uint64_t value, uint64_t *handle_out)
{
    struct device_slot *slot;

    if (!is_whole(ledger, 0, bytes)) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "a handle of %llu bytes is not a multiple of %llu",
                             (unsigned long long)bytes, (unsigned long long)ledger->grain);
    }
    slot = slots_acquire(&ledger->handles, handle_out);
    if (!slot) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NO_MEMORY, "no memory for the books of a handle");
    }
    slot->bytes = bytes;
    slot->value = value;
    ledger->used += ledger_footprint(ledger, bytes);
    return 0;
}

/* The handle, if it lives, was not released and has that size. */
static int handle_find(struct device_ledger *ledger, uint64_t handle, uint64_t bytes,
                       struct device_slot **slot_out)
{
    struct device_slot *slot = slots_find(&ledger->handles, handle);

    if (!slot || slot->is_released) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NOT_FOUND, "no handle %#llx", (unsigned long long)handle);
    }
    if (slot->bytes != bytes) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "the handle %#llx has %llu bytes, not %llu",
                             (unsigned long long)handle, (unsigned long long)slot->bytes,
                             (unsigned long long)bytes);
    }
    *slot_out = slot;
    return 0;
}

int ledger_handle_release(struct device_ledger *ledger, uint64_t handle, uint64_t bytes)
{
    struct device_slot *slot;
    int error = handle_find(ledger, handle, bytes, &slot);

    if (error != 0) {
        return error;
    }
    if (slot->maps == 0) {
        handle_drop(ledger, handle);
    } else {
        slot->is_released = true;
    }
    return 0;
}

int ledger_map_check(struct device_ledger *ledger, uint64_t addr, uint64_t bytes, uint64_t handle,
                     struct device_range **mapping_out)
{
    const struct device_range *around = device_ranges_at_or_before(&ledger->space, addr);
    const struct device_range *other;
    struct device_range *mapping;
    struct device_slot *slot;
    int error = handle_find(ledger, handle, bytes, &slot);

    if (error != 0) {
        return error;
    }
    if (!around || around->kind != DEVICE_RANGE_RESERVATION || addr - around->addr >= around->bytes) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_NOT_FOUND, "%#llx lies in no reservation",
                             (unsigned long long)addr);
    }
    if (!is_whole(ledger, addr, bytes) || bytes > around->bytes - (addr - around->addr)) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID,
                             "%llu bytes at %#llx end behind their reservation, or are no multiples of %llu",
                             (unsigned long long)bytes, (unsigned long long)addr,
                             (unsigned long long)ledger->grain);
    }
    mapping = ledger_range_new(ledger, DEVICE_RANGE_MAPPING, bytes);
    if (!mapping) {
        return VARVE_ERROR_NO_MEMORY;
    }
    mapping->addr = addr;
    mapping->value = handle;
    other = device_ranges_overlap(&ledger->mappings, addr, bytes);
    if (other) {
        error = refuse_overlap(ledger, mapping, other);
        free(mapping);
        return error;
    }
    *mapping_out = mapping;
    return 0;
}

void ledger_map_enter(struct device_ledger *ledger, struct device_range *mapping)
{
    struct device_slot *slot = slots_find(&ledger->handles, mapping->value);

    assert(slot && !slot->is_released);
    device_ranges_insert(&ledger->mappings, mapping);
    slot->maps++;
}

int ledger_mapped_check(struct device_ledger *ledger, uint64_t addr, uint64_t bytes)
{
    const struct device_range *mapping = NULL;
    uint64_t at = addr;

    if (bytes == 0 || addr > UINT64_MAX - bytes) {
        return DEVICE_REFUSE(ledger, VARVE_ERROR_INVALID, "%llu bytes at %#llx are no range",
                             (unsigned long long)bytes, (unsigned long long)addr);
    }
    for (; at < addr + bytes; at = mapping->addr + mapping->bytes) {
        mapping = device_ranges_at_or_before(&ledger->mappings, at);
        if (!mapping || mapping->addr != at || mapping->bytes > addr + bytes - at) {
            return DEVICE_REFUSE(
                ledger, VARVE_ERROR_INVALID, "[%#llx, %#llx) is not made of whole mappings: see %#llx",
                (unsigned long long)addr, (unsigned long long)(addr + bytes), (unsigned long long)at);
        }
    }
    return 0;
}

void ledger_unmap_enter(struct device_ledger *ledger, uint64_t addr, uint64_t bytes)
{
    uint64_t end = addr + bytes;

    while (addr < end) {
        struct device_range *mapping = device_ranges_at_or_before(&ledger->mappings, addr);
        struct device_slot *slot = slots_find(&ledger->handles, mapping->value);

        assert(mapping->addr == addr && slot->maps != 0);
        addr += mapping->bytes;
        if (--slot->maps == 0 && slot->is_released) {
            handle_drop(ledger, mapping->value);
        }
        device_ranges_remove(&ledger->mappings, mapping);
        free(mapping);
    }
}
