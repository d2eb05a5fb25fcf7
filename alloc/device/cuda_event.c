/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the cuda device. An event here is a slot of the resource table, and the driver's event stays
 * with its slot: the next owner of the slot records it again. So creating one is mostly free, a stale one is
 * refused, and whoever still waits for an event that another thread destroys waits for something that exists.
 *
 * A stream that is being captured can't be waited for, an event recorded on it becomes a part of the graph
 * and can't be asked, and the attempt would end the capture. Both are refused before the driver hears of it.
 */
#include "alloc/device/cuda_device.h"
#include "base/grown_array.h"

int cuda_capture_check(struct cuda_device *cuda, uint64_t stream)
{
    enum cuda_capture_status status = CUDA_CAPTURE_STATUS_NONE;
    cuda_result result = cuda->driver->stream_is_capturing(cuda_stream_of(stream), &status);
    if (result == CUDA_RESULT_SUCCESS && status != CUDA_CAPTURE_STATUS_NONE) {
        return DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_BUSY, "the stream %#llx is being captured",
                             (unsigned long long)stream);
    }
    return cuda_failed(cuda, result, "cuStreamIsCapturing of %#llx", (unsigned long long)stream);
}

int cuda_work_check(struct cuda_device *cuda, uint64_t stream)
{
    return stream <= CUDA_STREAM_LEGACY ? cuda_capture_check(cuda, stream) : VARVE_OK;
}

int cuda_stream_wait(struct device_table *table, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = cuda_capture_check(cuda, stream);
    if (error != VARVE_OK) {
        return error;
    }
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->stream_synchronize(cuda_stream_of(stream));
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuStreamSynchronize of %#llx", (unsigned long long)stream);
}

static cuda_event event_of(const struct cuda_device *cuda, uint64_t event)
{
    return cuda->events[slots_index(event)];
}

/* ---- events ---- */

static int events_reserve(struct cuda_device *cuda, uint32_t index)
{
    return ARRAY_COVER(cuda->events, cuda->event_capacity, index)
               ? VARVE_OK
               : DEVICE_REFUSE(&cuda->table.resources, VARVE_ERROR_NO_MEMORY, "no memory for the entry of an event");
}

int cuda_event_make(struct device_table *table, uint32_t index)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = events_reserve(cuda, index);
    return error == VARVE_OK && !cuda->events[index]
               ? cuda_failed(cuda, cuda->driver->event_create(&cuda->events[index], CUDA_EVENT_NO_TIMING),
                             "cuEventCreate")
               : error;
}

int cuda_event_record(struct device_table *table, uint64_t event, uint64_t stream)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = cuda_capture_check(cuda, stream);
    VARVE_THEN(error, cuda_failed(cuda, cuda->driver->event_record(event_of(cuda, event), cuda_stream_of(stream)),
                                  "cuEventRecord on the stream %#llx", (unsigned long long)stream));
    return error == VARVE_OK ? 1 : error;
}

int cuda_event_query(struct device_table *table, uint64_t event)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_result state = cuda->driver->event_query(event_of(cuda, event));
    return state == CUDA_RESULT_SUCCESS     ? 1
           : state == CUDA_RESULT_NOT_READY ? 0
                                            : cuda_failed(cuda, state, "cuEventQuery");
}

/* Others go on meanwhile, and may record the event again or destroy it. */
int cuda_event_wait(struct device_table *table, uint64_t event)
{
    struct cuda_device *cuda = cuda_of_table(table);
    cuda_event waited = event_of(cuda, event);
    cuda_unlock(cuda);
    cuda_result result = cuda->driver->event_synchronize(waited);
    cuda_lock(cuda);
    return cuda_failed(cuda, result, "cuEventSynchronize");
}

int cuda_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete)
{
    struct cuda_device *cuda = cuda_of_table(table);
    int error = cuda_capture_check(cuda, stream);
    return error == VARVE_OK && !is_complete
               ? cuda_failed(cuda, cuda->driver->stream_wait_event(cuda_stream_of(stream), event_of(cuda, event), 0),
                             "cuStreamWaitEvent of the stream %#llx", (unsigned long long)stream)
               : error;
}
