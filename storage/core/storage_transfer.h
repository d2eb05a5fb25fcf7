/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between host memory and a device's. */
#ifndef VARVE_STORAGE_CORE_STORAGE_TRANSFER_H
#define VARVE_STORAGE_CORE_STORAGE_TRANSFER_H

#include "storage/core/storage_memory.h"

/// Without effect on NULL. Pinned memory that the device still reads is waited for.
void staging_close(struct staging *staging);

/// Copy to (`is_fetch`: from) the device, behind what `stream` has. The bytes are there when it returns. Threads: any;
/// large ones to one memory's device go one after the other. Errors: the device's, VARVE_ERROR_UNSUPPORTED (it
/// copies nothing).
int transfer_bytes(struct varve_memory *memory, uint64_t device_addr, void *host, uint64_t bytes, bool is_fetch,
                   uint64_t stream, struct varve_message *message);

#endif
