/* SPDX-License-Identifier: Apache-2.0 */
/* Address ranges that may overlap. */
#ifndef VARVE_TRACE_SYMBOLS_SYMBOL_RANGE_H
#define VARVE_TRACE_SYMBOLS_SYMBOL_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbols_range {
    uint64_t low, high;  /* [low, high) */
    uint64_t high_max;   /* largest high up to here, once sorted: ends the search backwards */
    uint32_t value;      /* the owner's */
    uint32_t preference; /* among equal ranges the largest wins */
};

struct symbols_ranges {
    struct symbols_range *ranges;
    size_t count, capacity;
};

/// Empty and reversed ranges are ignored; false without memory.
bool symbols_ranges_add(struct symbols_ranges *table, uint64_t low, uint64_t high, uint32_t value, uint32_t preference);
void symbols_ranges_sort(struct symbols_ranges *table);
/// The range around `address` that begins last, of these the shortest; NULL if there is none.
const struct symbols_range *symbols_ranges_find(const struct symbols_ranges *table, uint64_t address);
void symbols_ranges_free(struct symbols_ranges *table);

#endif
