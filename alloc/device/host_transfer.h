/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills of the host device. */
#ifndef VARVE_ALLOC_DEVICE_HOST_TRANSFER_H
#define VARVE_ALLOC_DEVICE_HOST_TRANSFER_H

#include "alloc/device/host_device.h"

/* Of struct device_hooks. */
int host_copy(struct device_table *table, const struct varve_copy_2d *copy, uint64_t stream);
int host_fill(struct device_table *table, const struct device_fill *fill, uint64_t stream);
int host_unpin(struct device_table *table, uint64_t addr, uint64_t bytes);
/// The work itself, of ranges that were checked.
void host_copy_bytes(const struct varve_copy_2d *copy);
void host_fill_bytes(const struct device_fill *fill);

#endif
