/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sorted table of address ranges: functions of a unit, units of a module, symbols of a table. Ranges may
 * overlap and nest (aliases, dead code that the linker put at address 0, functions inside functions), so each
 * entry knows the largest end before it: a search backwards knows when nothing can reach the address any
 * more. Called by symbol_module.c and dwarf.c.
 */
#include "trace/symbols/symbol_range.h"

#include "base/grown_array.h"

#include <stdlib.h>

bool symbols_ranges_add(struct symbols_ranges *table, uint64_t low, uint64_t high, uint32_t value, uint32_t preference)
{
    if (low >= high) {
        return true;
    }
    if (!ARRAY_GROW(table->ranges, table->capacity, table->count + 1)) {
        return false;
    }
    table->ranges[table->count++] = (struct symbols_range){low, high, 0, value, preference};
    return true;
}

/* What is preferred comes last, because the search goes backwards. */
static int compare_ranges(const void *left, const void *right)
{
    const struct symbols_range *a = left, *b = right;
    if (a->low != b->low) {
        return a->low < b->low ? -1 : 1;
    }
    if (a->high != b->high) {
        return a->high > b->high ? -1 : 1;
    }
    if (a->preference != b->preference) {
        return a->preference < b->preference ? -1 : 1;
    }
    return a->value < b->value ? -1 : a->value > b->value;
}

void symbols_ranges_sort(struct symbols_ranges *table)
{
    if (table->count) {
        qsort(table->ranges, table->count, sizeof(*table->ranges), compare_ranges);
    }
    uint64_t high_max = 0;
    for (size_t i = 0; i < table->count; i++) {
        if (table->ranges[i].high > high_max) {
            high_max = table->ranges[i].high;
        }
        table->ranges[i].high_max = high_max;
    }
}

const struct symbols_range *symbols_ranges_find(const struct symbols_ranges *table, uint64_t address)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->ranges[middle].low <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low > 0 && table->ranges[low - 1].high_max > address; low--) {
        if (table->ranges[low - 1].high > address) {
            return &table->ranges[low - 1];
        }
    }
    return NULL;
}

void symbols_ranges_free(struct symbols_ranges *table)
{
    free(table->ranges);
    table->ranges = NULL;
    table->count = table->capacity = 0;
}
