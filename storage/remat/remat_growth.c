/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/remat_growth.h"

#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

bool growth_reserve(void *array, uint32_t *capacity, uint64_t wanted, size_t bytes)
{
    size_t grown = *capacity;
    if (wanted > UINT32_MAX / 2 || (wanted > 0 && !array_cover(array, &grown, wanted - 1, bytes))) {
        return false;
    }
    *capacity = (uint32_t)grown;
    return true;
}

/* One more at the end: where numbers at the beginning have gone, if these were as many, else in more memory. */
static bool list_make_room(struct number_list *list)
{
    uint32_t *base = list->skipped > 0 ? list->numbers - list->skipped : list->numbers;
    uint32_t capacity = list->skipped + list->capacity;
    const bool is_reused = list->skipped > list->count;
    if (!is_reused && !growth_reserve(&base, &capacity, (uint64_t)capacity + 1, sizeof(*base))) {
        return false;
    }
    if (is_reused) {
        memcpy(base, list->numbers, list->count * sizeof(*base));
        list->skipped = 0;
    }
    list->numbers = base + list->skipped;
    list->capacity = capacity - list->skipped;
    return true;
}

bool number_list_append(struct number_list *list, uint32_t number)
{
    if (list->count == list->capacity && !list_make_room(list)) {
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

static void remove_at(struct number_list *list, uint32_t place)
{
    uint32_t *numbers = list->numbers;
    list->count--;
    if (place >= list->count / 2) {
        memmove(&numbers[place], &numbers[place + 1], (list->count - place) * sizeof(*numbers));
        return;
    }
    memmove(&numbers[1], &numbers[0], place * sizeof(*numbers));
    list->numbers++;
    list->capacity--;
    list->skipped++;
}

bool number_list_remove(struct number_list *list, uint32_t number)
{
    const uint32_t half = list->count - list->count / 2;
    for (uint32_t i = 0; i < half; i++) { /* from both ends */
        const uint32_t back = list->count - 1 - i;
        if (list->numbers[i] == number || list->numbers[back] == number) {
            remove_at(list, list->numbers[i] == number ? i : back);
            return true;
        }
    }
    return false;
}

void number_list_free(struct number_list *list)
{
    if (list->numbers != NULL) {
        free(list->numbers - list->skipped);
    }
    *list = (struct number_list){0};
}
