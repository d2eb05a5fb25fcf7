/* SPDX-License-Identifier: Apache-2.0 */
/* An array that grows by doubling. A failed growth leaves it as it was. */
#ifndef VARVE_BASE_GROWN_ARRAY_H
#define VARVE_BASE_GROWN_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/// Make room for `needed` elements in a grown array; false without memory.
bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes);
/// The same for element `index`; new elements are zero.
bool array_cover(void **array, size_t *capacity, size_t index, size_t element_bytes);

/* The same for an array of any type and its capacity. */
#define ARRAY_GROW(array, capacity, needed) array_grow((void **)&(array), &(capacity), needed, sizeof(*(array)))
#define ARRAY_COVER(array, capacity, index) array_cover((void **)&(array), &(capacity), index, sizeof(*(array)))

#endif
