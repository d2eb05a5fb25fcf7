/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash index: from a 64-bit key, or from contents by their hash, to a number of the caller's, which says where the
 * rest is: arrays may move, and growing compares nothing. Linear probing, deletion by shifting back: no tombstones. At
 * most 3/4 full, and doubled when full, which makes 21 to 43 bytes per entry, 64 while it is being doubled.
 */
#ifndef VARVE_BASE_HASH_INDEX_H
#define VARVE_BASE_HASH_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index_slot {
    uint64_t key;
    uint64_t number; /* from 1; 0: empty */
};

/* All zero: empty. */
struct index {
    struct index_slot *slots; /* NULL until the first entry */
    uint64_t count;
    unsigned bits; /* log2 of the number of slots */
};

bool index_reserve(struct index *index);                      /* space for one more; false without memory */
uint64_t index_find(const struct index *index, uint64_t key); /* 0: none */
/// Remember the key's number and return the one it had before, 0 if none. After index_reserve it cannot fail.
uint64_t index_insert(struct index *index, uint64_t key, uint64_t number);
uint64_t index_remove(struct index *index, uint64_t key); /* forget; returns the number, 0 if none */
void index_free(struct index *index);                     /* empty again, without memory */
bool index_check(const struct index *index);              /* false if an entry cannot be found */

uint64_t index_hash(const void *bytes, size_t length, uint64_t seed);
/// The slot of the entry with this hash that `is_equal` says is equal to `wanted`, or the empty one where it belongs;
/// until the next call. NULL without memory. Such entries are never removed one by one.
struct index_slot *index_find_equal(struct index *index, uint64_t hash,
                                    bool (*is_equal)(const void *wanted, uint64_t number), const void *wanted);
/// Fill the empty slot that index_find_equal gave.
void index_fill(struct index *index, struct index_slot *slot, uint64_t hash, uint64_t number);

/// Slots to walk over; those of number 0 are empty.
static inline uint64_t index_slots(const struct index *index)
{
    return index->slots != NULL ? UINT64_C(1) << index->bits : 0;
}

#endif
