/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash index. It is asked once or twice for every event of the heap, so a slot is 16 bytes. Multiplicative hashing
 * spreads the regular addresses of an allocator well and keeps neighbours apart.
 */
#include "base/hash_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BITS_MIN 8U

static inline uint64_t slot_wanted(const struct index *index, uint64_t key)
{
    return key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - index->bits);
}

static inline uint64_t slot_mask(const struct index *index)
{
    return (UINT64_C(1) << index->bits) - 1;
}

/* The slot that holds `key`, or the empty one where it belongs. */
static inline struct index_slot *slot_find(const struct index *index, uint64_t key)
{
    uint64_t at = slot_wanted(index, key);
    while (index->slots[at].number != 0 && index->slots[at].key != key) {
        at = (at + 1) & slot_mask(index);
    }
    return &index->slots[at];
}

/* Keys may be equal: those of contents are hashes. */
static bool index_grow(struct index *index)
{
    struct index larger = {.count = index->count, .bits = index->slots ? index->bits + 1 : BITS_MIN};
    larger.slots = calloc((size_t)1 << larger.bits, sizeof(*larger.slots));
    if (larger.slots == NULL) {
        return false;
    }
    for (uint64_t i = 0; i < index_slots(index); i++) {
        uint64_t at = slot_wanted(&larger, index->slots[i].key);
        if (index->slots[i].number == 0) {
            continue;
        }
        while (larger.slots[at].number != 0) {
            at = (at + 1) & slot_mask(&larger);
        }
        larger.slots[at] = index->slots[i];
    }
    free(index->slots);
    *index = larger;
    return true;
}

bool index_reserve(struct index *index)
{
    return index->count + 1 <= index_slots(index) / 4 * 3 || index_grow(index);
}

uint64_t index_find(const struct index *index, uint64_t key)
{
    return index->slots != NULL ? slot_find(index, key)->number : 0;
}

uint64_t index_insert(struct index *index, uint64_t key, uint64_t number)
{
    assert(number != 0 && index->slots != NULL);
    struct index_slot *slot = slot_find(index, key);
    uint64_t before = slot->number;
    index->count += before == 0;
    *slot = (struct index_slot){.key = key, .number = number};
    return before;
}

uint64_t index_remove(struct index *index, uint64_t key)
{
    if (index->count == 0) {
        return 0;
    }
    const struct index_slot *slot = slot_find(index, key);
    uint64_t number = slot->number;
    if (number == 0) {
        return 0;
    }
    uint64_t mask = slot_mask(index);
    uint64_t hole = (uint64_t)(slot - index->slots);
    /* Move back every follower whose search would now end at the hole before it is found. */
    for (uint64_t at = (hole + 1) & mask; index->slots[at].number != 0; at = (at + 1) & mask) {
        uint64_t wanted = slot_wanted(index, index->slots[at].key);
        if (((at - wanted) & mask) >= ((at - hole) & mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = (struct index_slot){0};
    index->count--;
    return number;
}

void index_free(struct index *index)
{
    free(index->slots);
    *index = (struct index){0};
}

bool index_check(const struct index *index)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < index_slots(index); i++) {
        const struct index_slot *slot = &index->slots[i];
        count += slot->number != 0;
        if (slot->number != 0 && slot_find(index, slot->key) != slot) {
            return false;
        }
    }
    return count == index->count && count <= index_slots(index) / 4 * 3;
}

/* ---- contents ---- */

static uint64_t hash_index_mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    return value ^ (value >> 32);
}

uint64_t index_hash(const void *bytes, size_t length, uint64_t seed)
{
    const unsigned char *at = bytes;
    uint64_t hash = hash_index_mix(seed ^ length), chunk;
    for (; length >= sizeof(chunk); at += sizeof(chunk), length -= sizeof(chunk)) {
        memcpy(&chunk, at, sizeof(chunk));
        hash = hash_index_mix(hash ^ chunk);
    }
    chunk = 0;
    if (length) {
        memcpy(&chunk, at, length);
    }
    return hash_index_mix(hash ^ chunk);
}

struct index_slot *index_find_equal(struct index *index, uint64_t hash,
                                    bool (*is_equal)(const void *wanted, uint64_t number), const void *wanted)
{
    if (!index_reserve(index)) {
        return NULL;
    }
    uint64_t at = slot_wanted(index, hash);
    while (index->slots[at].number != 0 &&
           !(index->slots[at].key == hash && is_equal(wanted, index->slots[at].number))) {
        at = (at + 1) & slot_mask(index);
    }
    return &index->slots[at];
}

void index_fill(struct index *index, struct index_slot *slot, uint64_t hash, uint64_t number)
{
    assert(slot->number == 0 && number != 0);
    *slot = (struct index_slot){.key = hash, .number = number};
    index->count++;
}
