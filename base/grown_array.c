/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow by doubling: for things whose number nobody knows beforehand. */
#include "base/grown_array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes)
{
    size_t grown = *capacity > 0 ? *capacity : 16;
    if (needed <= *capacity) {
        return true;
    }
    if (needed > PTRDIFF_MAX / 2 / element_bytes) {
        return false;
    }
    while (grown < needed) {
        grown *= 2;
    }
    /* Not reallocarray: a program's own malloc, which the front ends of the allocator meet, may have none. */
    void *moved = realloc(*array, grown * element_bytes);
    if (moved == NULL) {
        return false;
    }
    *array = moved;
    *capacity = grown;
    return true;
}

bool array_cover(void **array, size_t *capacity, size_t index, size_t element_bytes)
{
    size_t before = *capacity;
    if (!array_grow(array, capacity, index + 1, element_bytes)) {
        return false;
    }
    memset((char *)*array + before * element_bytes, 0, (*capacity - before) * element_bytes);
    return true;
}
