/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow, for the planner's tables. A failed growth leaves the array as it was. */
#ifndef VARVE_STORAGE_REMAT_REMAT_GROWTH_H
#define VARVE_STORAGE_REMAT_REMAT_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Room for `wanted` elements of `bytes` each in `*array`, which has `*capacity`; new room is zeroed.
bool growth_reserve(void *array, uint32_t *capacity, uint64_t wanted, size_t bytes);

/* Numbers in the order in which they came. */
struct number_list {
    uint32_t *numbers;
    uint32_t count, capacity; /* from `numbers` on */
    uint32_t skipped;         /* room before `numbers`, of those that went */
};

bool number_list_append(struct number_list *list, uint32_t number);
bool number_list_has(const struct number_list *list, uint32_t number);
/// Such a number, which is there once, goes; the others keep their order. Costs what the shorter way to an end costs.
/// False: there is none.
bool number_list_remove(struct number_list *list, uint32_t number);
void number_list_free(struct number_list *list);

#endif
