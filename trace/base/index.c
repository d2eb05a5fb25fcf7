/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash index with linear probing. Entries are never removed one by one, so there are no tombstones.
 */
#include "trace/base/index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t value)
{
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    value ^= value >> 32;
    value *= UINT64_C(0xd6e8feb86659fd93);
    return value ^ (value >> 32);
}

uint32_t index_hash(const void *bytes, size_t length, uint64_t seed)
{
    const unsigned char *at = bytes;
    uint64_t hash = mix(seed ^ length), chunk;

    for (; length >= sizeof(chunk); at += sizeof(chunk), length -= sizeof(chunk)) {
        memcpy(&chunk, at, sizeof(chunk));
        hash = mix(hash ^ chunk);
    }
    chunk = 0;
    if (length) {
        memcpy(&chunk, at, length);
    }
    return (uint32_t)mix(hash ^ chunk);
}

static bool index_grow(struct index *index)
{
    uint32_t slot_count = index->slot_count ? index->slot_count * 2 : 256;
    struct index_slot *slots = calloc(slot_count, sizeof(*slots));

    if (!slots) {
        return false;
    }
    for (uint32_t i = 0; index->slots && i < index->slot_count; i++) {
        uint32_t at = index->slots[i].hash & (slot_count - 1);

        if (index->slots[i].number == 0) {
            continue;
        }
        while (slots[at].number) {
            at = (at + 1) & (slot_count - 1);
        }
        slots[at] = index->slots[i];
    }
    free(index->slots);
    index->slots = slots;
    index->slot_count = slot_count;
    return true;
}

struct index_slot *index_find(struct index *index, uint32_t hash,
                              bool (*is_equal)(const void *key, uint32_t number), const void *key)
{
    uint32_t at;

    if ((!index->slots || (uint64_t)index->used * 2 >= index->slot_count) && !index_grow(index)) {
        return NULL;
    }
    at = hash & (index->slot_count - 1);
    while (index->slots[at].number &&
           !(index->slots[at].hash == hash && is_equal(key, index->slots[at].number))) {
        at = (at + 1) & (index->slot_count - 1);
    }
    return &index->slots[at];
}

void index_fill(struct index *index, struct index_slot *slot, uint32_t hash, uint32_t number)
{
    assert(slot->number == 0 && number != 0);
    slot->number = number;
    slot->hash = hash;
    index->used++;
}

void index_clear(struct index *index)
{
    if (index->slots != NULL) {
        memset(index->slots, 0, index->slot_count * sizeof(*index->slots));
    }
    index->used = 0;
}

void index_free(struct index *index)
{
    free(index->slots);
    *index = (struct index){0};
}
