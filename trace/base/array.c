/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow: what the collector's files keep of things whose number nobody knows beforehand. */
#include "trace/base/array.h"

#include <stdlib.h>

bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes)
{
    size_t grown = *capacity ? *capacity : 64;
    void *moved;

    if (needed <= *capacity)
        return true;
    while (grown < needed)
        grown *= 2;
    moved = reallocarray(*array, grown, element_bytes);
    if (!moved)
        return false;
    *array = moved;
    *capacity = grown;
    return true;
}
