/* SPDX-License-Identifier: Apache-2.0 */
/* Elements from one memory to another. */
#ifndef VARVE_STORAGE_CORE_STORAGE_COPY_H
#define VARVE_STORAGE_CORE_STORAGE_COPY_H

#include "storage/core/storage_memory.h"

/* What a device's work is ordered by. Work of the processor has been done when a call returns, in any case. */
struct copy_order {
    uint64_t stream;
    bool is_asynchronous; /* what the device does by itself may go on behind the call */
};

/// As varve_array_copy, in whatever memory both lie. Errors: VARVE_ERROR_UNSUPPORTED, the device's.
int copy_elements(struct varve_memory *target_memory, const struct varve_array *target,
                  struct varve_memory *source_memory, const struct varve_array *source, struct copy_order order,
                  struct varve_message *message);
/// As varve_array_fill, in whatever memory. Errors: as copy_elements.
int fill_elements(struct varve_memory *memory, const struct varve_array *array, struct varve_scalar value,
                  struct copy_order order, struct varve_message *message);

#endif
