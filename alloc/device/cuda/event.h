/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Streams and events. Called by cuda.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_CUDA_EVENT_H
#define VARVE_ALLOC_DEVICE_CUDA_EVENT_H

#include "alloc/device/cuda/cuda.h"

int cuda_stream_synchronize(struct varve_device *device, uint64_t stream);
int cuda_event_create(struct varve_device *device, uint64_t *event_out);
int cuda_event_destroy(struct varve_device *device, uint64_t event);
int cuda_event_record(struct varve_device *device, uint64_t event, uint64_t stream);
int cuda_event_query(struct varve_device *device, uint64_t event);
int cuda_event_synchronize(struct varve_device *device, uint64_t event);
int cuda_stream_wait_event(struct varve_device *device, uint64_t stream, uint64_t event);
/// VARVE_ERROR_BUSY for a stream that is being captured. With the table locked.
int cuda_capture_check(struct cuda_device *cuda, uint64_t stream);

#endif
