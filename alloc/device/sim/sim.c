/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim device: a device of addresses only, whose capacity, bases, failures and completions a script
 * decides and whose clock is virtual, for replays of recordings and for tests. Its operations check all that
 * the driver would and cost the logarithm of what is out. Called by allocators through the ops table, by
 * tests and replays through varve_sim_*.
 *
 * With scripted events a wait does not stand still: whatever is waited for completes. Waiting for an event
 * completes that event alone, since a replay puts the uses of all unknown streams on one.
 */
#include "alloc/device/sim/sim.h"
#include "alloc/device/sim/faults.h"
#include "alloc/device/sim/memory.h"
#include "alloc/device/sim/pool.h"

#include <stdlib.h>

#define SIM_FIRST_ADDR 0x7f0000000000U
#define SIM_ALIGNMENT ((uint64_t)2 << 20)
#define SIM_TOTAL_BYTES ((uint64_t)80 << 30)

struct sim_device *sim_of(const struct varve_device *device)
{
    return (struct sim_device *)(uintptr_t)device;
}

static int stream_complete(struct sim_device *sim, uint64_t stream)
{
    struct device_stream *entry = resources_stream_acquire(&sim->resources, stream);

    if (!entry) {
        return VARVE_ERROR_NO_MEMORY;
    }
    entry->completed = sim->resources.records;
    return 0;
}

static int sim_stream_synchronize(struct varve_device *device, uint64_t stream)
{
    return varve_sim_stream_complete(device, stream);
}

static int sim_event_create(struct varve_device *device, uint64_t *event_out)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = resources_event_create(&sim->resources, event_out);
    pthread_mutex_unlock(&sim->mutex);
    return error;
}

static int sim_event_destroy(struct varve_device *device, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = resources_event_destroy(&sim->resources, event);
    pthread_mutex_unlock(&sim->mutex);
    return error;
}

static int sim_event_record(struct varve_device *device, uint64_t event, uint64_t stream)
{
    struct sim_device *sim = sim_of(device);
    int error = sim_enter(sim, VARVE_DEVICE_EVENT_RECORD);

    if (error == 0) {
        error = resources_event_record(&sim->resources, event, stream, sim->options.events_are_scripted);
    }
    return sim_leave(sim, VARVE_DEVICE_EVENT_RECORD, 0, error);
}

static int sim_event_query(struct varve_device *device, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    int result = sim_enter(sim, VARVE_DEVICE_EVENT_QUERY);

    if (result == 0) {
        result = resources_event_query(&sim->resources, event);
    }
    return sim_leave(sim, VARVE_DEVICE_EVENT_QUERY, 0, result);
}

static int sim_event_synchronize(struct varve_device *device, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    int result;

    pthread_mutex_lock(&sim->mutex);
    result = resources_event_query(&sim->resources, event);
    if (result == 0) {
        result = resources_event_complete(&sim->resources, event);
    }
    pthread_mutex_unlock(&sim->mutex);
    return result < 0 ? result : 0;
}

static int sim_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    struct sim_device *sim = sim_of(device);
    uint64_t total = sim->options.total_bytes;
    uint64_t most;

    pthread_mutex_lock(&sim->mutex);
    most = sim->resources.capacity < total ? sim->resources.capacity : total;
    *free_out = most > sim->resources.used ? most - sim->resources.used : 0;
    *total_out = total;
    pthread_mutex_unlock(&sim->mutex);
    return 0;
}

static int sim_peer_enable(struct varve_device *device, int peer)
{
    return peer < 0 || peer > DEVICE_INDEX_MAX || peer == device->index ? VARVE_ERROR_INVALID : 0;
}

static void sim_close(struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);

    resources_close(&sim->resources);
    pthread_mutex_destroy(&sim->mutex);
    free(sim);
}

static void get_reason(const struct varve_device *device, struct varve_message *message_out)
{
    struct sim_device *sim = sim_of(device);

    pthread_mutex_lock(&sim->mutex);
    *message_out = sim->resources.reason;
    pthread_mutex_unlock(&sim->mutex);
}

static const struct varve_device_ops sim_ops = {
    .name = "sim",
    .segment_alloc = sim_segment_alloc,
    .segment_free = sim_segment_free,
    .vmm_reserve = sim_vmm_reserve,
    .vmm_create = sim_vmm_create,
    .vmm_map = sim_vmm_map,
    .vmm_set_access = sim_vmm_set_access,
    .vmm_unmap = sim_vmm_unmap,
    .vmm_release = sim_vmm_release,
    .vmm_address_free = sim_vmm_address_free,
    .stream_synchronize = sim_stream_synchronize,
    .event_create = sim_event_create,
    .event_destroy = sim_event_destroy,
    .event_record = sim_event_record,
    .event_query = sim_event_query,
    .event_synchronize = sim_event_synchronize,
    .alloc_async = sim_alloc_async,
    .free_async = sim_free_async,
    .stream_wait_event = sim_stream_wait_event,
    .join_stream = sim_join_stream,
    .pool_trim = sim_pool_trim,
    .memory_info = sim_memory_info,
    .peer_enable = sim_peer_enable,
    .reason = get_reason,
    .close = sim_close,
};

/* Defaults for zeros. */
static int options_complete(struct varve_sim_options *options, struct varve_message *message)
{
    if (options->index < 0 || options->index > DEVICE_INDEX_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "sim: %d is no device's index; 0 to %d are",
                                 options->index, DEVICE_INDEX_MAX);
    }
    if (options->alignment == 0) {
        options->alignment = SIM_ALIGNMENT;
    }
    if ((options->alignment & (options->alignment - 1)) != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "sim: the alignment %llu is no power of two",
                                 (unsigned long long)options->alignment);
    }
    if (options->first_addr == 0) {
        options->first_addr = SIM_FIRST_ADDR;
    }
    if (options->first_addr >> 62 != 0 || options->alignment >> 62 != 0) {
        return varve_message_set(
            message, VARVE_ERROR_INVALID, "sim: first address %#llx and alignment %#llx must be below 2^62",
            (unsigned long long)options->first_addr, (unsigned long long)options->alignment);
    }
    if (options->total_bytes == 0) {
        options->total_bytes = options->capacity_bytes ? options->capacity_bytes : SIM_TOTAL_BYTES;
    }
    return 0;
}

int varve_sim_open(const struct varve_sim_options *options, struct varve_device **device_out,
                   struct varve_message *message)
{
    struct varve_sim_options all = *options;
    int error = options_complete(&all, message);
    pthread_mutexattr_t attributes;
    struct sim_device *sim;

    if (error != 0) {
        return error;
    }
    sim = calloc(1, sizeof(*sim));
    if (!sim) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "sim: no memory for a device");
    }
    sim->device = (struct varve_device){&sim_ops, all.index};
    sim->options = all;
    sim->next_addr = (all.first_addr + all.alignment - 1) & ~(all.alignment - 1);
    resources_init(&sim->resources, all.capacity_bytes ? all.capacity_bytes : UINT64_MAX, 1, all.first_addr,
                   all.alignment);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&sim->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    *device_out = &sim->device;
    return 0;
}

int varve_sim_event_complete(struct varve_device *device, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = resources_event_complete(&sim->resources, event);
    pthread_mutex_unlock(&sim->mutex);
    return error;
}

int varve_sim_stream_complete(struct varve_device *device, uint64_t stream)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = sim->options.events_are_scripted ? stream_complete(sim, stream) : 0;
    pthread_mutex_unlock(&sim->mutex);
    return error;
}

uint64_t varve_sim_used(const struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);
    uint64_t used;

    pthread_mutex_lock(&sim->mutex);
    used = sim->resources.used;
    pthread_mutex_unlock(&sim->mutex);
    return used;
}

int varve_sim_check(const struct varve_device *device, struct varve_message *message)
{
    struct sim_device *sim = sim_of(device);
    int error;

    pthread_mutex_lock(&sim->mutex);
    error = resources_check(&sim->resources, message);
    if (error == 0) {
        error = sim_pool_check(sim, message);
    }
    pthread_mutex_unlock(&sim->mutex);
    return error;
}
