/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where ranges of the sim device lie: a script's choice, or counted up, or the lowest address that fits; no range that
 * is out is ever overlapped. A script is asked last, when nothing else can fail, so that one that reads from a
 * recording is never an address ahead of what was allocated. Stream-ordered memory is a pool that is a number: it
 * serves any request from what it holds, grows in pieces, and shrinks only when it is trimmed. With
 * places_as_cuda it has holes.
 */
#include "alloc/device/sim_device.h"

#define POOL_STEP ((uint64_t)2 << 20)
#define POOL_PIECE ((uint64_t)32 << 20) /* in which the driver's grows */
#define JOIN_STREAM UINT64_MAX          /* no program has such a handle */

static uint64_t sim_memory_align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Up from the last one, over what scripts have put in the way. */
static int place_counted(struct sim_device *sim, uint64_t bytes, uint64_t *addr_out)
{
    uint64_t alignment = sim->table.resources.space.alignment;
    uint64_t addr = sim->next_addr, end = (uint64_t)1 << 63;
    while (addr < end && bytes <= end - addr) {
        const struct device_range *other = device_ranges_overlap(&sim->table.resources.space, addr, bytes);
        if (!other) {
            *addr_out = addr;
            sim->next_addr = sim_memory_align_up(addr + bytes, alignment);
            return 0;
        }
        addr = other->addr + other->bytes;
        addr = addr < end ? sim_memory_align_up(addr, alignment) : end;
    }
    return DEVICE_REFUSE(&sim->table.resources, VARVE_ERROR_NO_MEMORY, "no addresses left for %llu bytes",
                         (unsigned long long)bytes);
}

/* What nobody else has: reservations and scripts may have put something in the way. */
static int place_as_cuda(struct sim_device *sim, uint64_t bytes, uint64_t *addr_out)
{
    int error = bytes < (uint64_t)1 << 62 ? sim_places_take(&sim->places, bytes, addr_out) : VARVE_ERROR_NO_MEMORY;
    if (error == 0 && device_ranges_overlap(&sim->table.resources.space, *addr_out, bytes) != NULL) {
        sim_places_give_back(&sim->places, *addr_out);
        return place_counted(sim, bytes, addr_out);
    }
    return error == 0 ? 0
                      : DEVICE_REFUSE(&sim->table.resources, error, "no addresses left for %llu bytes",
                                      (unsigned long long)bytes);
}

static int choose_address(struct sim_device *sim, varve_sim_address script, uint64_t bytes, uint64_t stream,
                          const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    if (!script && sim->options.places_as_cuda && reservation == NULL) {
        return place_as_cuda(sim, bytes, addr_out);
    }
    if (!script) {
        if (!sim->options.reuses_addresses) {
            return place_counted(sim, bytes, addr_out);
        }
        return device_ranges_first_fit(&sim->table.resources.space, bytes, addr_out)
                   ? 0
                   : DEVICE_REFUSE(&sim->table.resources, VARVE_ERROR_NO_MEMORY, "no addresses left for %llu bytes",
                                   (unsigned long long)bytes);
    }
    *addr_out = 0;
    int error = script(sim->options.address_context, bytes, stream, reservation, addr_out);
    if (error != 0) {
        return DEVICE_REFUSE(&sim->table.resources, error < 0 ? error : VARVE_ERROR_INVALID,
                             "the script has no address for %llu bytes", (unsigned long long)bytes);
    }
    return 0;
}

/* ---- stream-ordered memory ---- */

static uint64_t whole_steps(uint64_t bytes)
{
    return (bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
}

static int pool_grow(struct sim_device *sim, uint64_t growth)
{
    int error = growth > 0 ? resources_pool_room(&sim->table.resources, growth) : 0;
    if (error == 0 && growth > 0) {
        resources_pool_grow(&sim->table.resources, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_CREATE, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_MAP, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_SET_ACCESS, growth);
    }
    return error;
}

/* So that `bytes` more fit into what the pool holds. */
static int pool_reserve(struct sim_device *sim, uint64_t bytes)
{
    uint64_t spare = sim->table.resources.pooled - sim->pool_used;
    if (bytes > UINT64_MAX / 2) {
        return DEVICE_REFUSE(&sim->table.resources, VARVE_ERROR_NO_MEMORY, "%llu bytes are more than a pool can have",
                             (unsigned long long)bytes);
    }
    return bytes <= spare ? 0 : pool_grow(sim, whole_steps(bytes - spare));
}

/* The driver's pool: where `bytes` go in it. A device that has no room for a whole piece more gives a smaller one. */
static int pool_place(struct sim_device *sim, uint64_t bytes, uint64_t *addr_out)
{
    if (bytes > UINT64_MAX / 4) {
        return DEVICE_REFUSE(&sim->table.resources, VARVE_ERROR_NO_MEMORY, "%llu bytes are more than a pool can have",
                             (unsigned long long)bytes);
    }
    struct sim_pool_place place = sim_pool_find(&sim->pool, bytes, POOL_PIECE);
    int error = pool_grow(sim, place.growth);
    if (error == VARVE_ERROR_NO_MEMORY) {
        place = sim_pool_find(&sim->pool, bytes, POOL_STEP);
        error = pool_grow(sim, place.growth);
    }
    if (error == 0) {
        error = sim_pool_take(&sim->pool, &place);
        *addr_out = sim->places.top + place.offset;
    }
    return error;
}

int sim_obtain(struct device_table *table, struct device_call *call, struct device_range *range)
{
    struct sim_device *sim = sim_of(&table->device);
    bool is_reservation = range->kind == DEVICE_RANGE_RESERVATION;
    bool is_placed = range->kind == DEVICE_RANGE_POOLED && sim->options.places_as_cuda;
    int error = 0;
    if (is_placed) {
        error = pool_place(sim, range->bytes, &range->addr);
    } else if (range->kind == DEVICE_RANGE_POOLED) {
        error = pool_reserve(sim, range->bytes);
    }
    if (error == 0 && !is_placed) {
        error = choose_address(sim, is_reservation ? sim->options.reservation_address : sim->options.segment_address,
                               range->bytes, call->stream, call->reservation, &range->addr);
    }
    if (error == 0 && range->kind == DEVICE_RANGE_POOLED) {
        sim->pool_used += range->bytes;
    }
    return error;
}

int sim_give_back(struct device_table *table, struct device_call *call, struct device_range *range)
{
    struct sim_device *sim = sim_of(&table->device);
    (void)call;
    if (sim->options.places_as_cuda && range->kind == DEVICE_RANGE_SEGMENT) {
        sim_places_give_back(&sim->places, range->addr);
    }
    if (range->kind == DEVICE_RANGE_POOLED) {
        sim->pool_used -= range->bytes;
    }
    return range->kind == DEVICE_RANGE_POOLED && sim->options.places_as_cuda
               ? sim_pool_give_back(&sim->pool, range->addr - sim->places.top, range->bytes)
               : 0;
}

int sim_join_stream(struct varve_device *device, uint64_t *stream_out)
{
    (void)device;
    *stream_out = JOIN_STREAM;
    return 0;
}

static int pool_trim(struct device_table *table, struct device_call *call)
{
    struct sim_device *sim = sim_of(&table->device);
    uint64_t least = whole_steps(sim->pool_used);
    if (call->bytes > least) {
        least = call->bytes < table->resources.pooled ? whole_steps(call->bytes) : table->resources.pooled;
    }
    if (table->resources.pooled > least) {
        uint64_t most = table->resources.pooled - least;
        uint64_t released = sim->options.places_as_cuda ? sim_pool_shrink(&sim->pool, most) : most;
        resources_pool_shrink(&table->resources, released);
        sim_charge(sim, VARVE_DEVICE_VMM_UNMAP, released);
        sim_charge(sim, VARVE_DEVICE_VMM_RELEASE, released);
    }
    return 0;
}

int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes)
{
    return device_run(device, (struct device_call){.kind = VARVE_DEVICE_POOL_TRIM, .bytes = keep_bytes}, pool_trim);
}

int sim_pool_check(const struct sim_device *sim, struct varve_message *message)
{
    const struct device_range *range = device_ranges_at_or_after(&sim->table.resources.space, 0);
    uint64_t used = 0;
    for (; range; range = device_ranges_at_or_after(&sim->table.resources.space, range->addr + range->bytes)) {
        used += range->kind == DEVICE_RANGE_POOLED ? range->bytes : 0;
    }
    if (used != sim->pool_used || used > sim->table.resources.pooled) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "pool: %llu bytes handed out, %llu counted, %llu held",
                                 (unsigned long long)used, (unsigned long long)sim->pool_used,
                                 (unsigned long long)sim->table.resources.pooled);
    }
    return 0;
}
