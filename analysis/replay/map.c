/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash map of 64-bit keys to 64-bit values for the passes of a replay: addresses to blocks, segments or
 * events. Open addressing with linear probing; removing moves later keys back, so that no markers pile up
 * over millions of frees. Out of memory ends the process, as everywhere in analysis/.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN 64
#define EMPTY UINT64_MAX

/* Addresses are multiples of 512 and lie together: the high half of the product spreads them. */
static size_t place_of(const struct replay_map *map, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (map->capacity - 1);
}

static size_t find(const struct replay_map *map, uint64_t key)
{
    size_t place = place_of(map, key);

    while (map->slots[2 * place] != key && map->slots[2 * place] != EMPTY) {
        place = (place + 1) & (map->capacity - 1);
    }
    return place;
}

static void grow(struct replay_map *map)
{
    struct replay_map larger = {.capacity = map->capacity == 0 ? CAPACITY_MIN : 2 * map->capacity};

    larger.slots = memory_resize(NULL, larger.capacity * 2 * sizeof(*larger.slots));
    for (size_t i = 0; i < larger.capacity; i++) {
        larger.slots[2 * i] = EMPTY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[2 * i] != EMPTY) {
            size_t place = find(&larger, map->slots[2 * i]);

            larger.slots[2 * place] = map->slots[2 * i];
            larger.slots[2 * place + 1] = map->slots[2 * i + 1];
        }
    }
    larger.count = map->count;
    free(map->slots);
    *map = larger;
}

uint64_t *replay_map_find(const struct replay_map *map, uint64_t key)
{
    size_t place;

    if (map->count == 0 || key == EMPTY) {
        return NULL;
    }
    place = find(map, key);
    return map->slots[2 * place] == key ? &map->slots[2 * place + 1] : NULL;
}

void replay_map_put(struct replay_map *map, uint64_t key, uint64_t value)
{
    size_t place;

    assert(key != EMPTY);
    if (2 * (map->count + 1) > map->capacity) {
        grow(map);
    }
    place = find(map, key);
    map->count += map->slots[2 * place] == EMPTY ? 1 : 0;
    map->slots[2 * place] = key;
    map->slots[2 * place + 1] = value;
}

bool replay_map_take(struct replay_map *map, uint64_t key, uint64_t *value_out)
{
    const uint64_t *value = replay_map_find(map, key);
    size_t hole;
    size_t place;

    if (value == NULL) {
        return false;
    }
    *value_out = *value;
    hole = (size_t)(value - map->slots) / 2;
    place = hole;
    for (;;) {
        place = (place + 1) & (map->capacity - 1);
        if (map->slots[2 * place] == EMPTY) {
            break;
        }
        /* it may move into the hole unless its own place lies behind the hole */
        if (((place - place_of(map, map->slots[2 * place])) & (map->capacity - 1)) >=
            ((place - hole) & (map->capacity - 1))) {
            map->slots[2 * hole] = map->slots[2 * place];
            map->slots[2 * hole + 1] = map->slots[2 * place + 1];
            hole = place;
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
