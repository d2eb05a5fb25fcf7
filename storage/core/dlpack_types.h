/* SPDX-License-Identifier: Apache-2.0 */
/* DLPack's names for types and devices, and ours. */
#ifndef VARVE_STORAGE_CORE_DLPACK_TYPES_H
#define VARVE_STORAGE_CORE_DLPACK_TYPES_H

#include "storage/storage.h"

/// Of a type of the list in array.h.
struct varve_dlpack_dtype dlpack_dtype(enum varve_dtype dtype);
/// Errors: VARVE_ERROR_UNSUPPORTED.
int dlpack_dtype_find(struct varve_dlpack_dtype dlpack, enum varve_dtype *dtype_out, struct varve_message *message);
/// Errors: VARVE_ERROR_UNSUPPORTED.
int dlpack_device(const struct varve_memory *memory, struct varve_dlpack_device *device_out,
                  struct varve_message *message);

#endif
