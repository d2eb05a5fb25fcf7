/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An array, and a table of numbers by linear probing that holds nothing else: keys are read from the array. A recording
 * has millions of nodes, and each process, stack and line of the merged tree has its own such set.
 */
#include "trace/callsites/callsite_pairs.h"

#include "base/grown_array.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdlib.h>

enum { BITS_FIRST = 10, BITS_MAX = 32, FETCH_AHEAD = 8 };

#define COUNT_MAX (1U << 31)

/* A slot holds a number, which is smaller than the number of slots, and above it bits of the hash that are not in its
 * place: a pair that is another one is mostly recognised without reading it. */
static uint64_t callsite_pairs_hash_of(struct pair pair)
{
    const uint64_t key = (uint64_t)pair.first << 32 | pair.second;
    return (key ^ key >> 29) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t callsite_pairs_tag_of(const struct pairs *pairs, uint64_t hash)
{
    return pairs->bits < BITS_MAX ? (uint32_t)(hash >> 8) << pairs->bits : 0;
}

static uint32_t number_in(const struct pairs *pairs, uint32_t slot)
{
    return slot & (uint32_t)((UINT64_C(1) << pairs->bits) - 1);
}

/* The slot of the pair, or the empty one where it belongs. */
static uint32_t *callsite_pairs_seek(const struct pairs *pairs, struct pair pair, uint64_t hash)
{
    const uint64_t mask = (UINT64_C(1) << pairs->bits) - 1;
    const uint32_t tag = callsite_pairs_tag_of(pairs, hash);
    uint64_t i = hash >> (64 - pairs->bits);
    while (pairs->slots[i] != 0) {
        const uint32_t number = number_in(pairs, pairs->slots[i]);
        if ((pairs->slots[i] ^ number) == tag && pairs->pairs[number - 1].first == pair.first &&
            pairs->pairs[number - 1].second == pair.second) {
            break;
        }
        i = (i + 1) & mask;
    }
    return &pairs->slots[i];
}

static bool callsite_pairs_is_none(struct pair pair)
{
    return pair.first == 0 && pair.second == 0;
}

/* Slots for `count` pairs, at most 3/4 full, with those that are there. */
static bool callsite_pairs_reserve(struct pairs *pairs, uint64_t count)
{
    unsigned bits = pairs->slots != NULL ? pairs->bits : BITS_FIRST;
    while ((UINT64_C(3) << bits) / 4 < count) {
        bits++;
    }
    if (pairs->slots != NULL && bits == pairs->bits) {
        return true;
    }
    uint32_t *slots = bits <= BITS_MAX ? calloc(UINT64_C(1) << bits, sizeof(*slots)) : NULL;
    if (slots == NULL) {
        return false;
    }
    free(pairs->slots);
    pairs->slots = slots;
    pairs->bits = bits;
    for (uint32_t number = 1; number <= pairs->count; number++) {
        const struct pair pair = pairs->pairs[number - 1];
        const uint64_t hash = callsite_pairs_hash_of(pair);
        uint32_t *slot = callsite_pairs_is_none(pair) ? NULL : callsite_pairs_seek(pairs, pair, hash);
        if (number + FETCH_AHEAD <= pairs->count) {
            pairs_fetch(pairs, pairs->pairs[number + FETCH_AHEAD - 1]);
        }
        if (slot != NULL && *slot == 0) {
            *slot = number | callsite_pairs_tag_of(pairs, hash);
        }
    }
    return true;
}

uint32_t pairs_intern(struct pairs *pairs, struct pair pair)
{
    const uint64_t hash = callsite_pairs_hash_of(pair);
    if (pairs->count >= COUNT_MAX || !callsite_pairs_reserve(pairs, (uint64_t)pairs->count + 1)) {
        return 0;
    }
    uint32_t *slot = callsite_pairs_seek(pairs, pair, hash);
    if (*slot == 0 && ARRAY_GROW(pairs->pairs, pairs->capacity, (size_t)pairs->count + 1)) {
        pairs->pairs[pairs->count++] = pair;
        *slot = pairs->count | callsite_pairs_tag_of(pairs, hash);
    }
    return number_in(pairs, *slot);
}

uint32_t pairs_find(const struct pairs *pairs, struct pair pair)
{
    return pairs->slots != NULL ? number_in(pairs, *callsite_pairs_seek(pairs, pair, callsite_pairs_hash_of(pair))) : 0;
}

void pairs_fetch(const struct pairs *pairs, struct pair pair)
{
    if (pairs->slots != NULL) {
        __builtin_prefetch(&pairs->slots[callsite_pairs_hash_of(pair) >> (64 - pairs->bits)], 1);
    }
}

int pairs_renumber(struct pairs *pairs, struct pair *array, uint32_t count)
{
    struct pairs fresh = {.pairs = array, .capacity = count, .count = count};
    bool is_indexed = callsite_pairs_reserve(&fresh, count);
    pairs_free(pairs);
    *pairs = fresh;
    return is_indexed ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

void pairs_free(struct pairs *pairs)
{
    free(pairs->pairs);
    free(pairs->slots);
    *pairs = (struct pairs){0};
}
