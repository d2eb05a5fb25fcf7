/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events: what cuda_device.c puts into struct device_hooks. */
#ifndef VARVE_ALLOC_DEVICE_CUDA_EVENT_H
#define VARVE_ALLOC_DEVICE_CUDA_EVENT_H

#include "alloc/device/cuda_device.h"

/* Of struct device_hooks. */
int cuda_stream_wait(struct device_table *table, uint64_t stream);
int cuda_event_make(struct device_table *table, uint32_t index);
int cuda_event_record(struct device_table *table, uint64_t event, uint64_t stream);
int cuda_event_query(struct device_table *table, uint64_t event);
int cuda_event_wait(struct device_table *table, uint64_t event);
int cuda_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete);
/// VARVE_ERROR_BUSY for a stream that is being captured. With the table locked.
int cuda_capture_check(struct cuda_device *cuda, uint64_t stream);
/// May the stream be given work? VARVE_ERROR_BUSY for the default one while another one is captured. With
/// the table locked.
int cuda_work_check(struct cuda_device *cuda, uint64_t stream);

#endif
