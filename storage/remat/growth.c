/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/growth.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 4

bool growth_reserve(void *array, uint32_t *capacity, uint64_t wanted, size_t bytes)
{
    void **data = array;
    uint64_t grown = *capacity < FIRST_CAPACITY ? FIRST_CAPACITY : (uint64_t)*capacity * 2;
    if (wanted <= *capacity) {
        return true;
    }
    if (grown < wanted) {
        grown = wanted;
    }
    if (grown > UINT32_MAX - 1 || grown > SIZE_MAX / bytes) {
        return false;
    }
    char *moved = realloc(*data, (size_t)grown * bytes);
    if (moved == NULL) {
        return false;
    }
    memset(moved + *capacity * bytes, 0, (size_t)(grown - *capacity) * bytes);
    *data = moved;
    *capacity = (uint32_t)grown;
    return true;
}

bool number_list_append(struct number_list *list, uint32_t number)
{
    if (!growth_reserve(&list->numbers, &list->capacity, (uint64_t)list->count + 1, sizeof(*list->numbers))) {
        return false;
    }
    list->numbers[list->count++] = number;
    return true;
}

bool number_list_has(const struct number_list *list, uint32_t number)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->numbers[i] == number) {
            return true;
        }
    }
    return false;
}

bool number_list_remove(struct number_list *list, uint32_t number)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->numbers[i] == number) {
            memmove(&list->numbers[i], &list->numbers[i + 1], (list->count - i - 1) * sizeof(*list->numbers));
            list->count--;
            return true;
        }
    }
    return false;
}

void number_list_free(struct number_list *list)
{
    free(list->numbers);
    *list = (struct number_list){0};
}
