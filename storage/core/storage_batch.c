/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that do not wait for each other. They go by the streams of the memory that a device does them for, one after
 * the other, so that small ones overlap and large ones share the device's copy engines.
 */
#include "storage/core/storage_object.h"

#define BATCH_MEMORIES_MAX 16U

/* The streams of one memory. */
struct lanes {
    struct varve_memory *memory;
    uint64_t streams[MEMORY_STREAMS_MAX];
    unsigned count, next;
};

struct batch {
    struct lanes lanes[BATCH_MEMORIES_MAX];
    unsigned memory_count;
    unsigned streams;
};

/* The streams wait for what the default one has by now. */
static int lanes_order(struct lanes *lanes, struct varve_message *message)
{
    struct varve_device *device = lanes->memory->device;
    uint64_t event;
    int error = device->ops->event_create(device, &event);
    if (error == VARVE_OK) {
        error = device->ops->event_record(device, event, 0);
        for (unsigned i = 0; error == VARVE_OK && i < lanes->count; i++) {
            error = device->ops->stream_wait_event(device, lanes->streams[i], event);
        }
        device->ops->event_destroy(device, event);
    }
    return error == VARVE_OK ? VARVE_OK : gpu_device_error(device, error, "streams for a batch of copies", message);
}

static int lanes_open(struct lanes *lanes, struct varve_memory *memory, unsigned streams, struct varve_message *message)
{
    *lanes = (struct lanes){.memory = memory};
    int error = VARVE_OK;
    while (error == VARVE_OK && lanes->count < streams) {
        error = memory_side_stream(memory, lanes->count, &lanes->streams[lanes->count], message);
        lanes->count += error == VARVE_OK;
    }
    return error == VARVE_OK ? lanes_order(lanes, message) : error;
}

/* For all that the streams have. */
static int lanes_wait(struct lanes *lanes, struct varve_message *message)
{
    int error = VARVE_OK;
    for (unsigned i = 0; i < lanes->count; i++) {
        int waited = memory_wait(lanes->memory, lanes->streams[i], error == VARVE_OK ? message : NULL);
        error = error == VARVE_OK ? waited : error;
    }
    return error;
}

/* The memory whose device does the copy; NULL: the processor does, or a device without streams. */
static struct varve_memory *memory_of(const struct varve_storage_pair *pair)
{
    struct varve_memory *target = pair->target->memory, *source = pair->source->memory;
    struct varve_memory *memory = !target->is_addressable ? target : source;
    return memory->is_addressable || memory->device->ops->stream_create == NULL ? NULL : memory;
}

/* The next stream of a memory, whose streams are asked for when it first comes. */
static int stream_next(struct batch *batch, struct varve_memory *memory, uint64_t *stream_out,
                       struct varve_message *message)
{
    unsigned i = 0;
    while (i < batch->memory_count && batch->lanes[i].memory != memory) {
        i++;
    }
    if (i == BATCH_MEMORIES_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "copies of more than %u memories in one batch",
                                 BATCH_MEMORIES_MAX);
    }
    int error = VARVE_OK;
    if (i == batch->memory_count) {
        batch->memory_count++;
        error = lanes_open(&batch->lanes[i], memory, batch->streams, message);
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
    if (streams == 0 || streams > MEMORY_STREAMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%u streams; 1 to %u can be used", streams,
                                 MEMORY_STREAMS_MAX);
    }
    int error = VARVE_OK;
    for (size_t i = 0; error == VARVE_OK && i < count; i++) {
        struct varve_memory *memory = memory_of(&pairs[i]);
        uint64_t stream = 0;
        if (memory != NULL) {
            error = stream_next(&batch, memory, &stream, message);
        }
        VARVE_THEN(error, memory != NULL ? varve_storage_copy_on(pairs[i].target, pairs[i].source, stream, message)
                                         : varve_storage_copy(pairs[i].target, pairs[i].source, message));
    }
    for (unsigned i = 0; i < batch.memory_count; i++) {
        int waited = lanes_wait(&batch.lanes[i], error == VARVE_OK ? message : NULL);
        error = error == VARVE_OK ? waited : error;
    }
    return error;
}
