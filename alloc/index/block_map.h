/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address → block in use, O(1): open addressing with linear probing, at most half full, in one mapping that
 * doubles. Slots carry the address, so a probe touches no block but the one it is after.
 */
#ifndef VARVE_ALLOC_INDEX_BLOCK_MAP_H
#define VARVE_ALLOC_INDEX_BLOCK_MAP_H

#include "alloc/index/block.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>

struct block_map_slot {
    uint64_t addr;
    struct block *block; /* NULL: empty, and the address is 0 */
};

struct block_map {
    struct block_map_slot *slots;
    uint64_t count;
    uint64_t limit; /* entries that fit: half the slots */
    uint64_t mask;  /* slots, less one */
    unsigned bits;  /* log2 of the number of slots; 0 before the first block */
    unsigned shift; /* 64 less that */
    uint64_t mapped_bytes;
};

int block_map_reserve(struct block_map *map); /* room for one more; VARVE_ERROR_NO_MEMORY */
struct block *block_map_find(const struct block_map *map, uint64_t addr);
void block_map_remove(struct block_map *map, const struct block *block);
/// All blocks that are not free, in no order: begin with a position of 0; NULL at the end. The map must not change
/// meanwhile.
struct block *block_map_each(const struct block_map *map, uint64_t *position);
void block_map_close(struct block_map *map);
int block_map_check(const struct block_map *map, struct varve_message *message);

HOT uint64_t block_map_mask(const struct block_map *map)
{
    return map->mask;
}

/* The slot where the search for an address begins. */
HOT uint64_t block_map_start(const struct block_map *map, uint64_t addr)
{
    return addr_mix(addr) >> map->shift;
}

HOT void block_map_fill(struct block_map *map, uint64_t addr, struct block *block)
{
    uint64_t mask = block_map_mask(map);
    uint64_t i = block_map_start(map, addr);

    while (UNLIKELY(map->slots[i].block != NULL)) {
        assert(map->slots[i].addr != addr);
        i = (i + 1) & mask;
    }
    map->slots[i].addr = addr;
    map->slots[i].block = block;
}

/// After a reserve it cannot fail.
HOT void block_map_put(struct block_map *map, struct block *block)
{
    assert(map->count < map->limit);
    block_map_fill(map, block->addr, block);
    block->is_in_map = true;
    map->count++;
}

/// The slot of a block in use, NULL if that address is not in use; good until the next put or clear.
HOT struct block_map_slot *block_map_find_slot(const struct block_map *map, uint64_t addr)
{
    struct block_map_slot *slot;
    uint64_t i;

    if (UNLIKELY(map->slots == NULL)) {
        return NULL;
    }
    i = block_map_start(map, addr);
    slot = &map->slots[i];
    /* An empty slot has address 0 and no block, which is the answer for an absent address 0 as well. */
    while (UNLIKELY(slot->addr != addr) && slot->block != NULL) {
        i = (i + 1) & block_map_mask(map);
        slot = &map->slots[i];
    }
    return slot->block != NULL ? slot : NULL;
}

/* The run behind the slot, which is to be emptied, closes up; the slot that is to be emptied instead. An entry may move
 * back to the hole if its probes begin at or before it, and would pass it. */
HOT struct block_map_slot *block_map_slot_close(struct block_map *map, struct block_map_slot *slot)
{
    uint64_t mask = block_map_mask(map);
    uint64_t hole = (uint64_t)(slot - map->slots);

    for (uint64_t i = (hole + 1) & mask; UNLIKELY(map->slots[i].block != NULL); i = (i + 1) & mask) {
        uint64_t distance = (i - block_map_start(map, map->slots[i].addr)) & mask;

        if (distance >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    return &map->slots[hole];
}

/// The slot of a block is emptied.
HOT void block_map_clear(struct block_map *map, struct block_map_slot *slot)
{
    assert(map->count > 0 && slot->block != NULL);
    map->count--;
    slot->block->is_in_map = false;
    slot = block_map_slot_close(map, slot);
    slot->addr = 0;
    slot->block = NULL;
}

/// `block` gets that address, which `old` may have had in the map until now; the caller sets is_in_map of both. After a
/// reserve it cannot fail.
HOT void block_map_take(struct block_map *map, uint64_t addr, const struct block *old, struct block *block)
{
    struct block_map_slot *slot = &map->slots[block_map_start(map, addr)];

    while (UNLIKELY(slot->addr != addr) && slot->block != NULL) {
        slot = &map->slots[((uint64_t)(slot - map->slots) + 1) & block_map_mask(map)];
    }
    assert(slot->block == (old->is_in_map ? old : NULL));
    map->count += !old->is_in_map;
    slot->addr = addr;
    slot->block = block;
}

#endif
