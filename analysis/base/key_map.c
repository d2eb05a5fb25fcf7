/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing; removing moves later keys back, so that no markers pile up over millions
 * of frees.
 */
#include "analysis/base/key_map.h"

#include "analysis/base/memory_or_exit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 64
#define EMPTY UINT64_MAX

/* Addresses are multiples of 512 and lie together: the high half of the product spreads them. */
static size_t key_map_slot_of(const struct map *map, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (map->capacity - 1);
}

static size_t key_map_find(const struct map *map, uint64_t key)
{
    size_t slot = key_map_slot_of(map, key);
    while (map->slots[2 * slot] != key && map->slots[2 * slot] != EMPTY) {
        slot = (slot + 1) & (map->capacity - 1);
    }
    return slot;
}

static bool key_map_grow(struct map *map)
{
    struct map larger = {.capacity = map->capacity == 0 ? CAPACITY_MIN : 2 * map->capacity};
    larger.slots = malloc(larger.capacity * 2 * sizeof(*larger.slots));
    if (larger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < larger.capacity; i++) {
        larger.slots[2 * i] = EMPTY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[2 * i] != EMPTY) {
            size_t slot = key_map_find(&larger, map->slots[2 * i]);
            larger.slots[2 * slot] = map->slots[2 * i];
            larger.slots[2 * slot + 1] = map->slots[2 * i + 1];
        }
    }
    larger.count = map->count;
    free(map->slots);
    *map = larger;
    return true;
}

/* Eight bytes a step. Not made against an adversary: what collides makes a map slow, never wrong. */
uint64_t map_hash(const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ count;
    for (; count >= 8; count -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, 8);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    for (; count > 0; count--) {
        hash = (hash ^ *next++) * UINT64_C(0x100000001b3);
    }
    hash = (hash ^ (hash >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (hash ^ (hash >> 32)) >> 1;
}

uint64_t *map_find(const struct map *map, uint64_t key)
{
    if (map->count == 0 || key == EMPTY) {
        return NULL;
    }
    size_t slot = key_map_find(map, key);
    return map->slots[2 * slot] == key ? &map->slots[2 * slot + 1] : NULL;
}

bool map_try_put(struct map *map, uint64_t key, uint64_t value)
{
    assert(key != EMPTY);
    if (2 * (map->count + 1) > map->capacity && !key_map_grow(map)) {
        return false;
    }
    size_t slot = key_map_find(map, key);
    map->count += map->slots[2 * slot] == EMPTY ? 1 : 0;
    map->slots[2 * slot] = key;
    map->slots[2 * slot + 1] = value;
    return true;
}

void map_put(struct map *map, uint64_t key, uint64_t value)
{
    if (!map_try_put(map, key, value)) {
        memory_exhausted();
    }
}

bool map_remove(struct map *map, uint64_t key, uint64_t *value_out)
{
    const uint64_t *value = map_find(map, key);
    if (value == NULL) {
        return false;
    }
    *value_out = *value;
    size_t hole = (size_t)(value - map->slots) / 2;
    size_t slot = hole;
    for (;;) {
        slot = (slot + 1) & (map->capacity - 1);
        if (map->slots[2 * slot] == EMPTY) {
            break;
        }
        /* it may move into the hole unless its own slot lies behind the hole */
        if (((slot - key_map_slot_of(map, map->slots[2 * slot])) & (map->capacity - 1)) >=
            ((slot - hole) & (map->capacity - 1))) {
            map->slots[2 * hole] = map->slots[2 * slot];
            map->slots[2 * hole + 1] = map->slots[2 * slot + 1];
            hole = slot;
        }
    }
    map->slots[2 * hole] = EMPTY;
    map->count--;
    return true;
}

void map_free(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}
