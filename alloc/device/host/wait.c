/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the host device. Work is done by the time that it is asked for, so events are
 * complete at once, except on streams that varve_host_stream_block holds back: there, waiting is waiting,
 * until another thread releases the stream. Called through the ops table, and by tests.
 */
#include "alloc/device/host/wait.h"
#include "alloc/device/host/host.h"

static bool is_blocked(const struct host_device *host, uint64_t stream)
{
    const struct device_stream *entry = resources_stream_find(&host->resources, stream);

    return entry && entry->is_blocked;
}

/* Until everything on the stream up to that number is complete; the entries move meanwhile. */
static void wait_for(struct host_device *host, uint64_t stream, uint64_t number)
{
    const struct device_stream *entry = resources_stream_find(&host->resources, stream);

    while (entry && entry->completed < number) {
        pthread_cond_wait(&host->released, &host->mutex);
        entry = resources_stream_find(&host->resources, stream);
    }
}

int host_stream_synchronize(struct varve_device *device, uint64_t stream)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    if (is_blocked(host, stream)) {
        wait_for(host, stream, ++host->resources.records);
    }
    return host_leave(host, 0);
}

int host_event_create(struct varve_device *device, uint64_t *event_out)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    return error != 0 ? error : host_leave(host, resources_event_create(&host->resources, event_out));
}

int host_event_destroy(struct varve_device *device, uint64_t event)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    return error != 0 ? error : host_leave(host, resources_event_destroy(&host->resources, event));
}

int host_event_record(struct varve_device *device, uint64_t event, uint64_t stream)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    return host_leave(host,
                      resources_event_record(&host->resources, event, stream, is_blocked(host, stream)));
}

int host_event_query(struct varve_device *device, uint64_t event)
{
    struct host_device *host = host_of(device);
    int error = host_enter(host);

    return error != 0 ? error : host_leave(host, resources_event_query(&host->resources, event));
}

/* For the record of now: the event may be recorded again, or destroyed, meanwhile. */
int host_event_synchronize(struct varve_device *device, uint64_t event)
{
    struct host_device *host = host_of(device);
    int result = host_enter(host);

    if (result != 0) {
        return result;
    }
    result = resources_event_query(&host->resources, event);
    if (result == 0) {
        const struct device_slot *slot = slots_find(&host->resources.events, event);

        wait_for(host, slot->stream, slot->value);
    }
    return host_leave(host, result < 0 ? result : 0);
}

int varve_host_stream_block(struct varve_device *device, uint64_t stream)
{
    struct host_device *host = host_of(device);
    struct device_stream *entry;
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    entry = resources_stream_acquire(&host->resources, stream);
    if (!entry) {
        error = VARVE_ERROR_NO_MEMORY;
    } else if (entry->is_blocked) {
        error = DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID, "the stream %#llx is blocked already",
                              (unsigned long long)stream);
    } else {
        entry->is_blocked = true;
    }
    return host_leave(host, error);
}

int varve_host_stream_release(struct varve_device *device, uint64_t stream)
{
    struct host_device *host = host_of(device);
    struct device_stream *entry;
    int error = host_enter(host);

    if (error != 0) {
        return error;
    }
    entry = resources_stream_find(&host->resources, stream);
    if (!entry || !entry->is_blocked) {
        error = DEVICE_REFUSE(&host->resources, VARVE_ERROR_INVALID, "the stream %#llx is not blocked",
                              (unsigned long long)stream);
    } else {
        entry->is_blocked = false;
        entry->completed = host->resources.records;
        pthread_cond_broadcast(&host->released);
    }
    return host_leave(host, error);
}
