/* SPDX-License-Identifier: Apache-2.0 */
/* Segments of other processes, and ours for them. Called by host_device.c, which has the table of operations. */
#ifndef VARVE_ALLOC_DEVICE_HOST_IPC_H
#define VARVE_ALLOC_DEVICE_HOST_IPC_H

#include "alloc/device/host_device.h"

int host_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out);
int host_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out);
/// The entry of a segment that is about to be freed, so that nobody opens it any more.
void host_export_withdraw(struct host_device *host, uint64_t export_id);

#endif
