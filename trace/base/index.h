/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * A hash index: from contents to the number of an entry in an array of the caller's. Open addressing, at most half full.
 * It keeps a number and 32 bits of hash per entry, never a pointer, so that the array can move, and growing compares nothing.
 */
#ifndef VARVE_TRACE_BASE_INDEX_H
#define VARVE_TRACE_BASE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct index_slot {
    uint32_t number; /* from 1; 0: empty */
    uint32_t hash;
};

/* All zero: empty. slot_count is 0 or a power of two. */
struct index {
    struct index_slot *slots;
    uint32_t slot_count;
    uint32_t used;
};

uint32_t index_hash(const void *bytes, size_t length, uint64_t seed);
/// The slot of the entry that `is_equal` says is equal to `key`, or the empty one where it belongs; until the next call. NULL
/// without memory.
struct index_slot *index_find(struct index *index, uint32_t hash,
                              bool (*is_equal)(const void *key, uint32_t number), const void *key);
/// Fill the empty slot that index_find gave.
void index_fill(struct index *index, struct index_slot *slot, uint32_t hash, uint32_t number);
/// Forget all entries; `index_free` gives the memory back too.
void index_clear(struct index *index);
void index_free(struct index *index);

#endif
