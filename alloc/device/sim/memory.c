/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and virtual memory of the sim device: ranges of addresses without memory behind them, within a
 * capacity. Where a range lies is a script's choice, or counted up, or the lowest address that fits. What a
 * script says is checked like everything else: an address may come again after it was freed, but no range
 * that is out is ever overlapped. A script is asked last, when nothing else can fail, so that one that reads
 * from a recording is never an address ahead of what was allocated.
 */
#include "alloc/device/sim/memory.h"
#include "alloc/device/sim/sim.h"
#include "alloc/device/sim/faults.h"

#include <stdlib.h>

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Up from the last one, over what scripts have put in the way. */
static int place_counted(struct sim_device *sim, uint64_t bytes, uint64_t *addr_out)
{
    uint64_t alignment = sim->resources.space.alignment;
    uint64_t addr = sim->next_addr, end = (uint64_t)1 << 63;
    const struct device_range *other;

    while (addr < end && bytes <= end - addr) {
        other = device_ranges_overlap(&sim->resources.space, addr, bytes);
        if (!other) {
            *addr_out = addr;
            sim->next_addr = align_up(addr + bytes, alignment);
            return 0;
        }
        addr = other->addr + other->bytes;
        addr = addr < end ? align_up(addr, alignment) : end;
    }
    return DEVICE_REFUSE(&sim->resources, VARVE_ERROR_NO_MEMORY, "no addresses left for %llu bytes",
                         (unsigned long long)bytes);
}

static int choose_address(struct sim_device *sim, varve_sim_address script, uint64_t bytes, uint64_t stream,
                          const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    int error;

    if (!script) {
        if (!sim->options.reuses_addresses) {
            return place_counted(sim, bytes, addr_out);
        }
        return device_ranges_first_fit(&sim->resources.space, bytes, addr_out)
                   ? 0
                   : DEVICE_REFUSE(&sim->resources, VARVE_ERROR_NO_MEMORY, "no addresses left for %llu bytes",
                                   (unsigned long long)bytes);
    }
    *addr_out = 0;
    error = script(sim->options.address_context, bytes, stream, reservation, addr_out);
    if (error != 0) {
        return DEVICE_REFUSE(&sim->resources, error < 0 ? error : VARVE_ERROR_INVALID,
                             "the script has no address for %llu bytes", (unsigned long long)bytes);
    }
    return 0;
}

int sim_range_alloc(struct sim_device *sim, enum device_range_kind kind, uint64_t bytes, uint64_t stream,
                    const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    varve_sim_address script =
        kind == DEVICE_RANGE_RESERVATION ? sim->options.reservation_address : sim->options.segment_address;
    struct device_range *range = resources_range_new(&sim->resources, kind, bytes);
    uint64_t addr;
    int error;

    if (!range) {
        return VARVE_ERROR_NO_MEMORY;
    }
    error = choose_address(sim, script, bytes, stream, reservation, &addr);
    if (error != 0) {
        free(range);
        return error;
    }
    error = resources_range_enter(&sim->resources, range, addr);
    if (error == 0) {
        *addr_out = addr;
    }
    return error;
}

int sim_range_free(struct sim_device *sim, enum device_range_kind kind, uint64_t addr, uint64_t bytes)
{
    struct device_range *range;
    int error = bytes == 0 ? DEVICE_REFUSE(&sim->resources, VARVE_ERROR_INVALID, "0 bytes to free")
                           : resources_range_find(&sim->resources, kind, addr, bytes, &range);

    if (error == 0) {
        resources_range_drop(&sim->resources, range);
    }
    return error;
}

int sim_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_SEGMENT_ALLOC);

    if (error == 0) {
        error = resources_room(&sim->resources, bytes);
    }
    if (error == 0) {
        error = sim_range_alloc(sim, DEVICE_RANGE_SEGMENT, bytes, stream, NULL, addr_out);
    }
    return sim_leave(sim, VARVE_DEVICE_SEGMENT_ALLOC, bytes, error);
}

int sim_segment_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_SEGMENT_FREE);

    if (error == 0) {
        error = sim_range_free(sim, DEVICE_RANGE_SEGMENT, addr, bytes);
    }
    return sim_leave(sim, VARVE_DEVICE_SEGMENT_FREE, bytes, error);
}

int sim_vmm_reserve(struct varve_device *device, uint64_t bytes,
                    const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_VMM_RESERVE);

    if (error == 0 && bytes == 0) {
        error = DEVICE_REFUSE(&sim->resources, VARVE_ERROR_INVALID, "0 bytes of addresses asked for");
    }
    if (error == 0) {
        error = sim_range_alloc(sim, DEVICE_RANGE_RESERVATION, bytes, reservation ? reservation->stream : 0,
                                reservation, addr_out);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_RESERVE, bytes, error);
}

int sim_vmm_create(struct varve_device *device, uint64_t bytes, uint64_t *handle_out)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_VMM_CREATE);

    if (error == 0) {
        error = resources_room(&sim->resources, bytes);
    }
    if (error == 0) {
        error = resources_handle_create(&sim->resources, bytes, 0, handle_out);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_CREATE, bytes, error);
}

int sim_vmm_map(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    struct sim_device *sim = sim_of(device);
    struct device_range *mapping;
    int error = sim_enter(sim, VARVE_DEVICE_VMM_MAP);

    if (error == 0) {
        error = resources_map_check(&sim->resources, addr, bytes, handle, &mapping);
    }
    if (error == 0) {
        resources_map_enter(&sim->resources, mapping);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_MAP, bytes, error);
}

int sim_vmm_set_access(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_VMM_SET_ACCESS);

    if (error == 0 && (peer < 0 || peer > DEVICE_INDEX_MAX)) {
        error = DEVICE_REFUSE(&sim->resources, VARVE_ERROR_INVALID, "%d is no device's index", peer);
    }
    if (error == 0) {
        error = resources_mapped_check(&sim->resources, addr, bytes);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_SET_ACCESS, bytes, error);
}

int sim_vmm_unmap(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_VMM_UNMAP);

    if (error == 0) {
        error = resources_mapped_check(&sim->resources, addr, bytes);
    }
    if (error == 0) {
        resources_unmap_enter(&sim->resources, addr, bytes);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_UNMAP, bytes, error);
}

int sim_vmm_release(struct varve_device *device, uint64_t handle, uint64_t bytes)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_VMM_RELEASE);

    if (error == 0) {
        error = resources_handle_release(&sim->resources, handle, bytes);
    }
    return sim_leave(sim, VARVE_DEVICE_VMM_RELEASE, bytes, error);
}

int sim_vmm_address_free(struct varve_device *device, uint64_t addr, uint64_t bytes)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = sim_range_free(sim, DEVICE_RANGE_RESERVATION, addr, bytes);
    pthread_mutex_unlock(&sim->mutex);
    return error;
}
