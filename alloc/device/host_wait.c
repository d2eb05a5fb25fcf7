/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the host device. Work is done by the time that it is asked for, so events are
 * complete at once, except on streams that varve_host_stream_block holds back, and on those that wait for them: there,
 * work is queued (host_work.c), a record or a wait is a mark in the queue, and waiting is waiting, until another thread
 * releases the stream. Called through the ops table, and by tests.
 */
#include "alloc/device/host_device.h"

/* Until everything on the stream up to that number is complete; the entries move meanwhile. */
static void host_wait_for(struct device_table *table, uint64_t stream, uint64_t number)
{
    const struct device_stream *entry = resources_stream_find(&table->resources, stream);
    while (entry && entry->completed < number) {
        pthread_cond_wait(&host_of_table(table)->released, &table->mutex);
        entry = resources_stream_find(&table->resources, stream);
    }
}

static int add_mark(struct device_table *table, uint64_t stream, uint64_t number)
{
    return host_work_add(host_of_table(table),
                         &(struct host_work){.stream = stream, .kind = HOST_WORK_MARK, .number = number});
}

int host_stream_wait(struct device_table *table, uint64_t stream)
{
    uint64_t number = table->resources.records + 1;
    if (!host_work_is_held(host_of_table(table), stream)) {
        return 0;
    }
    int error = add_mark(table, stream, number);
    if (error == 0) {
        table->resources.records = number;
        host_wait_for(table, stream, number);
    }
    return error;
}

/* The mark has the number that the record will get. */
int host_event_record(struct device_table *table, uint64_t event, uint64_t stream)
{
    (void)event;
    if (!host_work_is_held(host_of_table(table), stream)) {
        return 0;
    }
    int error = add_mark(table, stream, table->resources.records + 1);
    return error == 0 ? 1 : error;
}

/* For the record of now: the event may be recorded again, or destroyed, meanwhile. */
int host_event_wait(struct device_table *table, uint64_t event)
{
    const struct device_slot *slot = slots_find(&table->resources.events, event);
    host_wait_for(table, slot->stream, slot->value);
    return 0;
}

int host_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete)
{
    const struct device_slot *slot = slots_find(&table->resources.events, event);
    return is_complete || slot->stream == stream
               ? 0
               : host_work_add(host_of_table(table), &(struct host_work){.stream = stream,
                                                                         .kind = HOST_WORK_WAIT,
                                                                         .number = slot->value,
                                                                         .other = slot->stream});
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
    host_work_drain(host_of_table(table));
    pthread_cond_broadcast(&host_of_table(table)->released);
    return 0;
}

int varve_host_stream_release(struct varve_device *device, uint64_t stream)
{
    return device_run(device, (struct device_call){.stream = stream}, unblock);
}
