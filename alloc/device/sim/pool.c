/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory of the sim device: a pool that is a number. What it holds and does not use serves any
 * request at the price of a warm pool; beyond that it grows, in pieces and at the price of mapping them, and
 * it shrinks only when it is trimmed, like a pool of the driver whose release threshold is unlimited. It
 * never fragments, and a free takes effect at once: streams have no time here. Called through the ops table.
 */
#include "alloc/device/sim/pool.h"
#include "alloc/device/sim/sim.h"
#include "alloc/device/sim/faults.h"
#include "alloc/device/sim/memory.h"

#define POOL_STEP ((uint64_t)2 << 20)
#define JOIN_STREAM UINT64_MAX /* no program has such a handle */

static uint64_t whole_steps(uint64_t bytes)
{
    return (bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP;
}

/* So that `bytes` more fit into what the pool holds. */
static int pool_reserve(struct sim_device *sim, uint64_t bytes)
{
    uint64_t spare = sim->resources.pooled - sim->pool_used;
    uint64_t growth;
    int error;

    if (bytes <= spare) {
        return 0;
    }
    if (bytes > UINT64_MAX / 2) {
        return DEVICE_REFUSE(&sim->resources, VARVE_ERROR_NO_MEMORY,
                             "%llu bytes are more than a pool can have", (unsigned long long)bytes);
    }
    growth = whole_steps(bytes - spare);
    error = resources_pool_room(&sim->resources, growth);
    if (error == 0) {
        resources_pool_grow(&sim->resources, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_CREATE, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_MAP, growth);
        sim_charge(sim, VARVE_DEVICE_VMM_SET_ACCESS, growth);
    }
    return error;
}

int sim_alloc_async(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_ALLOC_ASYNC);

    if (error == 0 && bytes == 0) {
        error = DEVICE_REFUSE(&sim->resources, VARVE_ERROR_INVALID, "0 bytes of memory asked for");
    }
    if (error == 0) {
        error = pool_reserve(sim, bytes);
    }
    if (error == 0) {
        error = sim_range_alloc(sim, DEVICE_RANGE_POOLED, bytes, stream, NULL, addr_out);
    }
    if (error == 0) {
        sim->pool_used += bytes;
    }
    return sim_leave(sim, VARVE_DEVICE_ALLOC_ASYNC, bytes, error);
}

int sim_free_async(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_FREE_ASYNC);

    (void)stream;
    if (error == 0) {
        error = sim_range_free(sim, DEVICE_RANGE_POOLED, addr, bytes);
    }
    if (error == 0) {
        sim->pool_used -= bytes;
    }
    return sim_leave(sim, VARVE_DEVICE_FREE_ASYNC, bytes, error);
}

int sim_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    int result = sim_enter(sim, VARVE_DEVICE_STREAM_WAIT_EVENT);

    (void)stream;
    if (result == 0) {
        result = resources_event_query(&sim->resources, event);
    }
    return sim_leave(sim, VARVE_DEVICE_STREAM_WAIT_EVENT, 0, result < 0 ? result : 0);
}

int sim_join_stream(struct varve_device *device, uint64_t *stream_out)
{
    (void)device;
    *stream_out = JOIN_STREAM;
    return 0;
}

int sim_pool_trim(struct varve_device *device, uint64_t keep_bytes)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_POOL_TRIM);
    uint64_t least = whole_steps(sim->pool_used);

    if (error == 0 && keep_bytes > least) {
        least = keep_bytes < sim->resources.pooled ? whole_steps(keep_bytes) : sim->resources.pooled;
    }
    if (error == 0 && sim->resources.pooled > least) {
        uint64_t released = sim->resources.pooled - least;

        resources_pool_shrink(&sim->resources, released);
        sim_charge(sim, VARVE_DEVICE_VMM_UNMAP, released);
        sim_charge(sim, VARVE_DEVICE_VMM_RELEASE, released);
    }
    return sim_leave(sim, VARVE_DEVICE_POOL_TRIM, 0, error);
}

int sim_pool_check(const struct sim_device *sim, struct varve_message *message)
{
    const struct device_range *range = device_ranges_at_or_after(&sim->resources.space, 0);
    uint64_t used = 0;

    for (; range; range = device_ranges_at_or_after(&sim->resources.space, range->addr + range->bytes)) {
        used += range->kind == DEVICE_RANGE_POOLED ? range->bytes : 0;
    }
    if (used != sim->pool_used || used > sim->resources.pooled) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "pool: %llu bytes handed out, %llu counted, %llu held",
                                 (unsigned long long)used, (unsigned long long)sim->pool_used,
                                 (unsigned long long)sim->resources.pooled);
    }
    return 0;
}
