/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the host device. Work is done by the time that it is asked for, so events are
 * complete at once, except on streams that varve_host_stream_block holds back: there, waiting is waiting,
 * until another thread releases the stream. Called through the ops table, and by tests.
 */
#include "alloc/device/host/wait.h"
#include "alloc/device/host/host.h"

static bool is_blocked(const struct device_table *table, uint64_t stream)
{
    const struct device_stream *entry = resources_stream_find(&table->resources, stream);

    return entry && entry->is_blocked;
}

/* Until everything on the stream up to that number is complete; the entries move meanwhile. */
static void wait_for(struct device_table *table, uint64_t stream, uint64_t number)
{
    const struct device_stream *entry = resources_stream_find(&table->resources, stream);

    while (entry && entry->completed < number) {
        pthread_cond_wait(&host_of_table(table)->released, &table->mutex);
        entry = resources_stream_find(&table->resources, stream);
    }
}

int host_stream_wait(struct device_table *table, uint64_t stream)
{
    if (is_blocked(table, stream)) {
        wait_for(table, stream, ++table->resources.records);
    }
    return 0;
}

int host_event_record(struct device_table *table, uint64_t event, uint64_t stream)
{
    (void)event;
    return is_blocked(table, stream);
}

/* For the record of now: the event may be recorded again, or destroyed, meanwhile. */
int host_event_wait(struct device_table *table, uint64_t event)
{
    const struct device_slot *slot = slots_find(&table->resources.events, event);

    wait_for(table, slot->stream, slot->value);
    return 0;
}

static int block(struct device_table *table, struct device_call *call)
{
    struct device_stream *entry = resources_stream_acquire(&table->resources, call->stream);

    if (!entry) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (entry->is_blocked) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_INVALID, "the stream %#llx is blocked already",
                             (unsigned long long)call->stream);
    }
    entry->is_blocked = true;
    return 0;
}

int varve_host_stream_block(struct varve_device *device, uint64_t stream)
{
    return device_run(device, (struct device_call){.stream = stream}, block);
}

static int unblock(struct device_table *table, struct device_call *call)
{
    struct device_stream *entry = resources_stream_find(&table->resources, call->stream);

    if (!entry || !entry->is_blocked) {
        return DEVICE_REFUSE(&table->resources, VARVE_ERROR_INVALID, "the stream %#llx is not blocked",
                             (unsigned long long)call->stream);
    }
    entry->is_blocked = false;
    entry->completed = table->resources.records;
    pthread_cond_broadcast(&host_of_table(table)->released);
    return 0;
}

int varve_host_stream_release(struct varve_device *device, uint64_t stream)
{
    return device_run(device, (struct device_call){.stream = stream}, unblock);
}
