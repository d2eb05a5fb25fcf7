/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/device/ */
/*
 * Streams and events, which a test can hold back. Called by host.c, which has the table of operations.
 */
#ifndef VARVE_ALLOC_DEVICE_HOST_WAIT_H
#define VARVE_ALLOC_DEVICE_HOST_WAIT_H

#include "alloc/device/host/host.h"

int host_stream_synchronize(struct varve_device *device, uint64_t stream);
int host_event_create(struct varve_device *device, uint64_t *event_out);
int host_event_destroy(struct varve_device *device, uint64_t event);
int host_event_record(struct varve_device *device, uint64_t event, uint64_t stream);
int host_event_query(struct varve_device *device, uint64_t event);
int host_event_synchronize(struct varve_device *device, uint64_t event);

#endif
