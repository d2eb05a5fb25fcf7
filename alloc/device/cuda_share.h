/* SPDX-License-Identifier: Apache-2.0 */
/* Peers, and segments of other processes. Called by cuda_device.c, which has the table of operations. */
#ifndef VARVE_ALLOC_DEVICE_CUDA_SHARE_H
#define VARVE_ALLOC_DEVICE_CUDA_SHARE_H

#include "alloc/device/cuda_device.h"

int cuda_peer_enable(struct varve_device *device, int peer);
int cuda_ipc_export(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out);
int cuda_ipc_open(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out);
int cuda_ipc_close(struct varve_device *device, uint64_t addr);
/// The segment is gone, and nobody opens it any more. With the table locked.
void cuda_export_withdraw(struct cuda_device *cuda, uint64_t addr);

#endif
