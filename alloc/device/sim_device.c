/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim device: a device of addresses only, whose capacity, bases, failures and completions a script
 * decides and whose clock is virtual, for replays of recordings and for tests. Called by allocators through the ops
 * table, by tests and replays through varve_sim_*.
 *
 * With scripted events a wait does not stand still: whatever is waited for completes. Waiting for an event
 * completes that event alone, since a replay puts the uses of all unknown streams on one.
 */
#include "alloc/device/sim_device.h"
#include "alloc/device/device_operations.h"

#include <stdlib.h>

#define PLACES_SPAN (UINT64_C(1) << 44) /* above what is counted up */
#define SIM_FIRST_ADDR 0x7f0000000000U
#define SIM_ALIGNMENT ((uint64_t)2 << 20)
#define SIM_TOTAL_BYTES ((uint64_t)80 << 30)

static int stream_complete(struct sim_device *sim, uint64_t stream)
{
    struct device_stream *entry = resources_stream_acquire(&sim->table.resources, stream);
    if (!entry) {
        return VARVE_ERROR_NO_MEMORY;
    }
    entry->completed = sim->table.resources.records;
    return 0;
}

static int sim_device_stream_wait(struct device_table *table, uint64_t stream)
{
    struct sim_device *sim = sim_of(&table->device);
    return sim->options.events_are_scripted ? stream_complete(sim, stream) : 0;
}

static int sim_device_event_record(struct device_table *table, uint64_t event, uint64_t stream)
{
    (void)event;
    (void)stream;
    return sim_of(&table->device)->options.events_are_scripted;
}

static int event_wait(struct device_table *table, uint64_t event)
{
    return resources_event_complete(&table->resources, event);
}

static bool sim_device_is_inherited(const struct device_table *table)
{
    (void)table;
    return false;
}

static int sim_memory_info(struct varve_device *device, uint64_t *free_out, uint64_t *total_out)
{
    struct sim_device *sim = sim_of(device);
    uint64_t total = sim->options.total_bytes;
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t most = sim->table.resources.capacity < total ? sim->table.resources.capacity : total;
    *free_out = most > sim->table.resources.used ? most - sim->table.resources.used : 0;
    *total_out = total;
    pthread_mutex_unlock(&sim->table.mutex);
    return 0;
}

static void sim_close(struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);
    sim_places_close(&sim->places);
    sim_pool_close(&sim->pool);
    device_pinned_close(&sim->table);
    resources_close(&sim->table.resources);
    pthread_mutex_destroy(&sim->table.mutex);
    free(sim);
}

static const struct varve_device_ops sim_ops = {
    .name = "sim",
    DEVICE_OPERATIONS,
    DEVICE_TRANSFERS,
    .alloc_async = device_alloc_async,
    .free_async = device_free_async,
    .stream_wait_event = device_stream_wait_event,
    .join_stream = sim_join_stream,
    .pool_trim = sim_pool_trim,
    .memory_info = sim_memory_info,
    .peer_enable = device_peer_check,
    .close = sim_close,
};

static const struct device_hooks sim_hooks = {
    .enter = sim_enter,
    .leave = sim_leave,
    .obtain = sim_obtain,
    .is_inherited = sim_device_is_inherited,
    .give_back = sim_give_back,
    .stream_wait = sim_device_stream_wait,
    .event_record = sim_device_event_record,
    .event_wait = event_wait,
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
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "sim: first address %#llx and alignment %#llx must be below 2^62",
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
    if (error != 0) {
        return error;
    }
    struct sim_device *sim = calloc(1, sizeof(*sim));
    if (!sim) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "sim: no memory for a device");
    }
    sim->table.device = (struct varve_device){&sim_ops, all.index};
    sim->table.hooks = &sim_hooks;
    sim->options = all;
    sim->next_addr = (all.first_addr + all.alignment - 1) & ~(all.alignment - 1);
    sim->places.top = (all.first_addr + PLACES_SPAN) & ~(PLACES_SPAN - 1);
    resources_init(&sim->table.resources, all.capacity_bytes ? all.capacity_bytes : UINT64_MAX, 1, all.first_addr,
                   all.alignment);
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&sim->table.mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    *device_out = &sim->table.device;
    return 0;
}

int varve_sim_event_complete(struct varve_device *device, uint64_t event)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    int error = resources_event_complete(&sim->table.resources, event);
    pthread_mutex_unlock(&sim->table.mutex);
    return error;
}

int varve_sim_stream_complete(struct varve_device *device, uint64_t stream)
{
    return device_stream_synchronize(device, stream);
}

uint64_t varve_sim_used(const struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t used = sim->table.resources.used;
    pthread_mutex_unlock(&sim->table.mutex);
    return used;
}

uint64_t varve_sim_used_peak(const struct varve_device *device)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    uint64_t peak = sim->table.resources.used_peak;
    pthread_mutex_unlock(&sim->table.mutex);
    return peak;
}

int varve_sim_check(const struct varve_device *device, struct varve_message *message)
{
    struct sim_device *sim = sim_of(device);
    pthread_mutex_lock(&sim->table.mutex);
    int error = resources_check(&sim->table.resources, message);
    VARVE_THEN(error, sim_pool_check(sim, message));
    pthread_mutex_unlock(&sim->table.mutex);
    return error;
}
