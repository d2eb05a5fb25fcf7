/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * An array that grows by doubling. For the half of trace/ that may use malloc.
 */
#ifndef VARVE_TRACE_BASE_ARRAY_H
#define VARVE_TRACE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/// Make room for `needed` elements in a grown array; false without memory.
bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes);
/// The same for element `index`; new elements are zero.
bool array_cover(void **array, size_t *capacity, size_t index, size_t element_bytes);

#endif
