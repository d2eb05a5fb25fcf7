/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the cuda device. An event here is a slot of the resource table, and the driver's event stays
 * with its slot: the next owner of the slot records it again. So creating one is mostly free, a stale one is
 * refused, and whoever still waits for an event that another thread destroys waits for something that exists.
 *
 * A stream that is being captured can't be waited for, an event recorded on it becomes a part of the graph
 * and can't be asked, and the attempt would end the capture. Both are refused before the driver hears of it.
 */
#include "alloc/device/cuda/event.h"
#include "alloc/device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#define EVENTS_FIRST 64U

int cuda_capture_check(struct cuda_device *cuda, uint64_t stream)
{
    enum cuda_capture_status status = CUDA_CAPTURE_STATUS_NONE;
    cuda_result result = cuda->driver->stream_is_capturing(cuda_stream_of(stream), &status);

    if (result == CUDA_RESULT_SUCCESS && status != CUDA_CAPTURE_STATUS_NONE) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_BUSY, "the stream %#llx is being captured",
                             (unsigned long long)stream);
    }
    return cuda_failed(cuda, result, "cuStreamIsCapturing of %#llx", (unsigned long long)stream);
}

int cuda_stream_synchronize(struct varve_device *device, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    error = cuda_capture_check(cuda, stream);
    if (error == VARVE_OK) {
        cuda_result result;

        cuda_unlock(cuda);
        result = cuda->driver->stream_synchronize(cuda_stream_of(stream));
        cuda_lock(cuda);
        error = cuda_failed(cuda, result, "cuStreamSynchronize of %#llx", (unsigned long long)stream);
    }
    return cuda_leave(cuda, &scope, error);
}

/* ---- events ---- */

static int events_reserve(struct cuda_device *cuda, uint32_t index)
{
    uint32_t capacity = cuda->event_capacity ? cuda->event_capacity : EVENTS_FIRST;
    cuda_event *grown;

    if (index < cuda->event_capacity) {
        return VARVE_OK;
    }
    while (capacity <= index) {
        capacity *= 2;
    }
    grown = realloc(cuda->events, capacity * sizeof(cuda_event));
    if (!grown) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an event");
    }
    memset(grown + cuda->event_capacity, 0, (capacity - cuda->event_capacity) * sizeof(cuda_event));
    cuda->events = grown;
    cuda->event_capacity = capacity;
    return VARVE_OK;
}

static int event_make(struct cuda_device *cuda, uint64_t *event_out)
{
    uint64_t id;
    uint32_t index;
    int error;

    if (!slots_acquire(&cuda->resources.events, &id)) {
        return DEVICE_REFUSE(&cuda->resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an event");
    }
    index = slots_index(id);
    error = events_reserve(cuda, index);
    if (error == VARVE_OK && !cuda->events[index]) {
        error = cuda_failed(cuda, cuda->driver->event_create(&cuda->events[index], CUDA_EVENT_NO_TIMING),
                            "cuEventCreate");
    }
    if (error != VARVE_OK) {
        slots_release(&cuda->resources.events, id);
        return error;
    }
    *event_out = id;
    return VARVE_OK;
}

/* NULL, with the reason noted, for one that is not out. */
static struct device_slot *event_find(struct cuda_device *cuda, uint64_t event)
{
    struct device_slot *slot = slots_find(&cuda->resources.events, event);

    if (!slot) {
        varve_message_set(&cuda->resources.reason, VARVE_ERROR_NOT_FOUND, "no event %#llx",
                          (unsigned long long)event);
    }
    return slot;
}

int cuda_event_create(struct varve_device *device, uint64_t *event_out)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    return error != VARVE_OK ? error : cuda_leave(cuda, &scope, event_make(cuda, event_out));
}

int cuda_event_destroy(struct varve_device *device, uint64_t event)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return cuda_enter_freed(cuda, error);
    }
    if (!event_find(cuda, event)) {
        return cuda_leave(cuda, &scope, VARVE_ERROR_NOT_FOUND);
    }
    slots_release(&cuda->resources.events, event);
    return cuda_leave(cuda, &scope, VARVE_OK);
}

int cuda_event_record(struct varve_device *device, uint64_t event, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of(device);
    struct device_slot *slot;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    slot = event_find(cuda, event);
    error = slot ? cuda_capture_check(cuda, stream) : VARVE_ERROR_NOT_FOUND;
    if (error == VARVE_OK) {
        error = cuda_failed(
            cuda, cuda->driver->event_record(cuda->events[slots_index(event)], cuda_stream_of(stream)),
            "cuEventRecord on the stream %#llx", (unsigned long long)stream);
    }
    if (error == VARVE_OK) {
        slot->is_pending = true; /* it stands for a record of its own, not for one of the slot's last owner */
    }
    return cuda_leave(cuda, &scope, error);
}

int cuda_event_query(struct varve_device *device, uint64_t event)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct device_slot *slot;
    struct cuda_scope scope;
    int result = cuda_enter(cuda, &scope);

    if (result != VARVE_OK) {
        return result;
    }
    slot = event_find(cuda, event);
    if (!slot) {
        result = VARVE_ERROR_NOT_FOUND;
    } else if (!slot->is_pending) {
        result = 1;
    } else {
        cuda_result state = cuda->driver->event_query(cuda->events[slots_index(event)]);

        result = state == CUDA_RESULT_SUCCESS     ? 1
                 : state == CUDA_RESULT_NOT_READY ? 0
                                                  : cuda_failed(cuda, state, "cuEventQuery");
    }
    return cuda_leave(cuda, &scope, result);
}

/* Others go on meanwhile, and may record the event again or destroy it. */
int cuda_event_synchronize(struct varve_device *device, uint64_t event)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct device_slot *slot;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    slot = event_find(cuda, event);
    error = slot ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
    if (slot && slot->is_pending) {
        cuda_event waited = cuda->events[slots_index(event)];
        cuda_result result;

        cuda_unlock(cuda);
        result = cuda->driver->event_synchronize(waited);
        cuda_lock(cuda);
        error = cuda_failed(cuda, result, "cuEventSynchronize");
    }
    return cuda_leave(cuda, &scope, error);
}

int cuda_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event)
{
    struct cuda_device *cuda = cuda_of(device);
    const struct device_slot *slot;
    struct cuda_scope scope;
    int error = cuda_enter(cuda, &scope);

    if (error != VARVE_OK) {
        return error;
    }
    slot = event_find(cuda, event);
    error = slot ? cuda_capture_check(cuda, stream) : VARVE_ERROR_NOT_FOUND;
    if (error == VARVE_OK && slot->is_pending) {
        cuda_result result =
            cuda->driver->stream_wait_event(cuda_stream_of(stream), cuda->events[slots_index(event)], 0);

        error =
            cuda_failed(cuda, result, "cuStreamWaitEvent of the stream %#llx", (unsigned long long)stream);
    }
    return cuda_leave(cuda, &scope, error);
}
