/* SPDX-License-Identifier: Apache-2.0 */
/* Distinct pairs of numbers, numbered in turn: 8 bytes for a pair, and 5 to 11 in the table. */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_PAIRS_H
#define VARVE_TRACE_CALLSITES_CALLSITE_PAIRS_H

#include <stddef.h>
#include <stdint.h>

struct pair {
    uint32_t first, second;
};

/* All zero: empty. */
struct pairs {
    struct pair *pairs; /* number n is at [n - 1] */
    size_t capacity;
    uint32_t count;
    uint32_t *slots; /* numbers, with bits of the pair's hash, at places that follow from it; 0: empty */
    unsigned bits;   /* log2 of the number of slots */
};

/// Number of a pair, from 1; a new one if it is new. 0 without memory, or past 2^31 pairs.
uint32_t pairs_intern(struct pairs *pairs, struct pair pair);
/// 0: it is not there.
uint32_t pairs_find(const struct pairs *pairs, struct pair pair);
/// A pair will be asked for soon: its place in a large table is brought near. It need not be there.
void pairs_fetch(const struct pairs *pairs, struct pair pair);
/// Replace all of them by `array`, number n at [n - 1], which is taken over; the first of equal ones is found from now
/// on, and {0, 0} is not found. VARVE_ERROR_NO_MEMORY.
int pairs_renumber(struct pairs *pairs, struct pair *array, uint32_t count);
void pairs_free(struct pairs *pairs);

#endif
