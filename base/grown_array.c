/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays that grow by doubling: for things whose number nobody knows beforehand.
 */
#include "base/grown_array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4

bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes)
{
    size_t grown = *capacity < FIRST_CAPACITY ? FIRST_CAPACITY : *capacity * 2;
    if (needed <= *capacity) {
        return true;
    }
    if (needed > PTRDIFF_MAX / 2 / element_bytes) {
        return false; /* so that doubling never overflows */
    }
    grown = grown < needed ? needed : grown;
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
    if (index < before) {
        return true;
    }
    if (!array_grow(array, capacity, index + 1, element_bytes)) {
        return false;
    }
    memset((char *)*array + before * element_bytes, 0, (*capacity - before) * element_bytes);
    return true;
}
