/* SPDX-License-Identifier: Apache-2.0 */
/* Streams and events, which a test can hold back: what host_device.c puts into struct device_hooks. */
#ifndef VARVE_ALLOC_DEVICE_HOST_WAIT_H
#define VARVE_ALLOC_DEVICE_HOST_WAIT_H

#include "alloc/device/host_device.h"

int host_stream_wait(struct device_table *table, uint64_t stream);
int host_event_record(struct device_table *table, uint64_t event, uint64_t stream);
int host_event_wait(struct device_table *table, uint64_t event);
int host_stream_wait_event(struct device_table *table, uint64_t stream, uint64_t event, bool is_complete);

#endif
