/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing; removing moves later keys back, so that no markers pile up over millions
 * of frees.
 */
#include "analysis/replay/map.h"

#include "analysis/base/memory.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN 64
#define EMPTY UINT64_MAX

/* Addresses are multiples of 512 and lie together: the high half of the product spreads them. */
static size_t slot_of(const struct replay_map *map, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (map->capacity - 1);
}

static size_t find(const struct replay_map *map, uint64_t key)
{
    size_t slot = slot_of(map, key);

    while (map->slots[2 * slot] != key && map->slots[2 * slot] != EMPTY) {
        slot = (slot + 1) & (map->capacity - 1);
    }
    return slot;
}

static bool grow(struct replay_map *map)
{
    struct replay_map larger = {.capacity = map->capacity == 0 ? CAPACITY_MIN : 2 * map->capacity};

    larger.slots = malloc(larger.capacity * 2 * sizeof(*larger.slots));
    if (larger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < larger.capacity; i++) {
        larger.slots[2 * i] = EMPTY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[2 * i] != EMPTY) {
            size_t slot = find(&larger, map->slots[2 * i]);

            larger.slots[2 * slot] = map->slots[2 * i];
            larger.slots[2 * slot + 1] = map->slots[2 * i + 1];
        }
    }
    larger.count = map->count;
    free(map->slots);
    *map = larger;
    return true;
}

uint64_t *replay_map_find(const struct replay_map *map, uint64_t key)
{
    size_t slot;

    if (map->count == 0 || key == EMPTY) {
        return NULL;
    }
    slot = find(map, key);
    return map->slots[2 * slot] == key ? &map->slots[2 * slot + 1] : NULL;
}

bool replay_map_try_put(struct replay_map *map, uint64_t key, uint64_t value)
{
    size_t slot;

    assert(key != EMPTY);
    if (2 * (map->count + 1) > map->capacity && !grow(map)) {
        return false;
    }
    slot = find(map, key);
    map->count += map->slots[2 * slot] == EMPTY ? 1 : 0;
    map->slots[2 * slot] = key;
    map->slots[2 * slot + 1] = value;
    return true;
}

void replay_map_put(struct replay_map *map, uint64_t key, uint64_t value)
{
    if (!replay_map_try_put(map, key, value)) {
        memory_exhausted();
    }
}

bool replay_map_remove(struct replay_map *map, uint64_t key, uint64_t *value_out)
{
    const uint64_t *value = replay_map_find(map, key);
    size_t hole;
    size_t slot;

    if (value == NULL) {
        return false;
    }
    *value_out = *value;
    hole = (size_t)(value - map->slots) / 2;
    slot = hole;
    for (;;) {
        slot = (slot + 1) & (map->capacity - 1);
        if (map->slots[2 * slot] == EMPTY) {
            break;
        }
        /* it may move into the hole unless its own slot lies behind the hole */
        if (((slot - slot_of(map, map->slots[2 * slot])) & (map->capacity - 1)) >=
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

void replay_map_free(struct replay_map *map)
{
    free(map->slots);
    *map = (struct replay_map){0};
}
