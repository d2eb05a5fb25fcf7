/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, from 1, of things that are recognized by 128 bits of hash. */
#ifndef VARVE_TRACE_STORE_HASH_NUMBERS_H
#define VARVE_TRACE_STORE_HASH_NUMBERS_H

#include "base/grown_array.h"
#include "base/hash_index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct wide_hash {
    uint64_t words[2];
};

/* All zero: empty. */
struct hash_numbers {
    struct index index;
    struct wide_hash *hashes; /* of number n at [n - 1] */
    size_t capacity;
};

struct hash_wanted {
    const struct hash_numbers *numbers;
    const struct wide_hash *hash;
};

static inline bool hash_is_wanted(const void *context, uint64_t number)
{
    const struct hash_wanted *wanted = context;
    return memcmp(&wanted->numbers->hashes[number - 1], wanted->hash, sizeof(*wanted->hash)) == 0;
}

/// The slot of what has the hash, or, with number 0, the one where hash_numbers_add puts it. NULL without memory.
static inline struct index_slot *hash_numbers_find(struct hash_numbers *numbers, const struct wide_hash *hash)
{
    const struct hash_wanted wanted = {numbers, hash};
    struct index_slot *slot = index_find_equal(&numbers->index, hash->words[0], hash_is_wanted, &wanted);
    return slot != NULL && ARRAY_GROW(numbers->hashes, numbers->capacity, numbers->index.count + 1) ? slot : NULL;
}

/// The next number, for an empty slot that hash_numbers_find gave.
static inline uint64_t hash_numbers_add(struct hash_numbers *numbers, struct index_slot *slot,
                                        const struct wide_hash *hash)
{
    const uint64_t number = numbers->index.count + 1;
    numbers->hashes[number - 1] = *hash;
    index_fill(&numbers->index, slot, hash->words[0], number);
    return number;
}

static inline void hash_numbers_free(struct hash_numbers *numbers)
{
    index_free(&numbers->index);
    free(numbers->hashes);
    *numbers = (struct hash_numbers){0};
}

#endif
