/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that do not wait for each other. Each device gets streams for the time of the batch; a copy goes to the one after that of
 * the copy before it, so that small ones overlap and large ones share the device's copy engines.
 */
#include "storage/core/copy.h"
#include "storage/core/object.h"

#include <stdlib.h>

#define BATCH_STREAMS_MAX 16U
#define BATCH_DEVICES_MAX 16U

/* The streams of one device. */
struct lanes {
    struct varve_device *device;
    uint64_t streams[BATCH_STREAMS_MAX];
    unsigned count, next;
};

struct batch {
    struct lanes lanes[BATCH_DEVICES_MAX];
    unsigned device_count;
    unsigned streams;
};

static int lanes_error(const struct lanes *lanes, int error, struct varve_message *message)
{
    return memory_device_error(lanes->device, error, "streams for a batch of copies", message);
}

/* The new streams wait for what the default one has by now. */
static int lanes_order(struct lanes *lanes)
{
    const struct varve_device_ops *ops = lanes->device->ops;
    uint64_t event;
    int error = ops->event_create(lanes->device, &event);

    if (error != VARVE_OK) {
        return error;
    }
    error = ops->event_record(lanes->device, event, 0);
    for (unsigned i = 0; error == VARVE_OK && i < lanes->count; i++) {
        error = ops->stream_wait_event(lanes->device, lanes->streams[i], event);
    }
    ops->event_destroy(lanes->device, event);
    return error;
}

static int lanes_open(struct lanes *lanes, struct varve_device *device, unsigned streams,
                      struct varve_message *message)
{
    int error = VARVE_OK;

    *lanes = (struct lanes){.device = device};
    while (error == VARVE_OK && lanes->count < streams) {
        error = device->ops->stream_create(device, &lanes->streams[lanes->count]);
        lanes->count += error == VARVE_OK;
    }
    if (error == VARVE_OK) {
        error = lanes_order(lanes);
    }
    return error == VARVE_OK ? VARVE_OK : lanes_error(lanes, error, message);
}

/* Waits for all that the streams have. */
static int lanes_close(struct lanes *lanes, struct varve_message *message)
{
    int error = VARVE_OK;

    for (unsigned i = 0; i < lanes->count; i++) {
        int waited = lanes->device->ops->stream_synchronize(lanes->device, lanes->streams[i]);

        error = error == VARVE_OK && waited != VARVE_OK ? lanes_error(lanes, waited, message) : error;
        lanes->device->ops->stream_destroy(lanes->device, lanes->streams[i]);
    }
    return error;
}

/* The device that the copy is work of; NULL: the processor's, or one without streams. */
static struct varve_device *device_of(const struct varve_storage_pair *pair)
{
    const struct varve_memory *target = pair->target->memory, *source = pair->source->memory;
    struct varve_device *device = !target->is_addressable ? target->device : source->device;

    return (target->is_addressable && source->is_addressable) || device->ops->stream_create == NULL ? NULL
                                                                                                    : device;
}

/* The next stream of a device, whose streams are made when it first comes. */
static int stream_next(struct batch *batch, struct varve_device *device, uint64_t *stream_out,
                       struct varve_message *message)
{
    unsigned i = 0;
    int error = VARVE_OK;

    while (i < batch->device_count && batch->lanes[i].device != device) {
        i++;
    }
    if (i == BATCH_DEVICES_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "copies of more than %u devices in one batch",
                                 BATCH_DEVICES_MAX);
    }
    if (i == batch->device_count) {
        batch->device_count++;
        error = lanes_open(&batch->lanes[i], device, batch->streams, message);
    }
    if (error == VARVE_OK) {
        *stream_out = batch->lanes[i].streams[batch->lanes[i].next++ % batch->streams];
    }
    return error;
}

int varve_storage_copy_batch(const struct varve_storage_pair *pairs, size_t count, unsigned streams,
                             struct varve_message *message)
{
    struct batch batch = {.streams = streams};
    int error = VARVE_OK;

    if (streams == 0 || streams > BATCH_STREAMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%u streams; 1 to %u can be used", streams,
                                 BATCH_STREAMS_MAX);
    }
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        struct varve_device *device = device_of(&pairs[i]);
        uint64_t stream = 0;

        if (device != NULL) {
            error = stream_next(&batch, device, &stream, message);
        }
        if (error == VARVE_OK) {
            error = device != NULL ? varve_storage_copy_on(pairs[i].target, pairs[i].source, stream, message)
                                   : varve_storage_copy(pairs[i].target, pairs[i].source, message);
        }
    }
    for (unsigned i = 0; i < batch.device_count; i++) {
        int closed = lanes_close(&batch.lanes[i], error == VARVE_OK ? message : NULL);

        error = error == VARVE_OK ? closed : error;
    }
    return error;
}
