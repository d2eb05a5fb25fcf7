/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks in use by address: what a free looks its pointer up in. Open addressing with linear probing, at
 * most half full, in one mapping that doubles. Slots carry the address, so a probe touches no block but the
 * one it is after. A removal moves later entries of its run back instead of leaving a mark, so the table
 * never ages: costs depend on what it holds, not on what it has held. Called under the allocator's lock.
 *
 * Invariants: 2 * count <= slots; between the slot that an address hashes to and the slot that it is in, none
 * is empty.
 */
#include "alloc/alloc_internal.h"

#define BITS_MIN 12U

static uint64_t slot_mask(const struct block_map *map)
{
    return (UINT64_C(1) << map->bits) - 1;
}

static uint64_t slot_home(const struct block_map *map, uint64_t addr)
{
    return addr_mix(addr) >> (64 - map->bits);
}

static void slot_fill(struct block_map *map, uint64_t addr, struct block *block)
{
    uint64_t mask = slot_mask(map);
    uint64_t i = slot_home(map, addr);
    while (map->slots[i].block != NULL) {
        assert(map->slots[i].addr != addr);
        i = (i + 1) & mask;
    }
    map->slots[i] = (struct block_map_slot){.addr = addr, .block = block};
}

static int map_grow(struct block_map *map)
{
    struct block_map grown = {.count = map->count, .bits = map->bits == 0 ? BITS_MIN : map->bits + 1};
    grown.mapped_bytes = sizeof(struct block_map_slot) << grown.bits;
    grown.slots = pages_map(grown.mapped_bytes);
    if (grown.slots == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint64_t i = 0; map->slots != NULL && i <= slot_mask(map); i++) {
        if (map->slots[i].block != NULL) {
            slot_fill(&grown, map->slots[i].addr, map->slots[i].block);
        }
    }
    pages_unmap(map->slots, map->mapped_bytes);
    *map = grown;
    return VARVE_OK;
}

static bool has_room(const struct block_map *map)
{
    return map->slots != NULL && 2 * (map->count + 1) <= slot_mask(map) + 1;
}

int block_map_reserve(struct block_map *map)
{
    return has_room(map) ? VARVE_OK : map_grow(map);
}

void block_map_put(struct block_map *map, struct block *block)
{
    assert(has_room(map));
    slot_fill(map, block->addr, block);
    map->count++;
}

struct block *block_map_find(const struct block_map *map, uint64_t addr)
{
    if (map->slots == NULL) {
        return NULL;
    }
    uint64_t mask = slot_mask(map);
    uint64_t i = slot_home(map, addr);
    /* An empty slot has address 0 and no block, which is the answer for an absent address 0 as well. */
    while (map->slots[i].addr != addr && map->slots[i].block != NULL) {
        i = (i + 1) & mask;
    }
    return map->slots[i].block;
}

void block_map_remove(struct block_map *map, const struct block *block)
{
    assert(map->count > 0);
    uint64_t mask = slot_mask(map);
    uint64_t hole = slot_home(map, block->addr);
    while (map->slots[hole].block != block) {
        assert(map->slots[hole].block != NULL);
        hole = (hole + 1) & mask;
    }
    /* An entry may move back to the hole if its home is not after it: probes for it would pass the hole. */
    for (uint64_t i = (hole + 1) & mask; map->slots[i].block != NULL; i = (i + 1) & mask) {
        uint64_t distance = (i - slot_home(map, map->slots[i].addr)) & mask;
        if (distance >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (struct block_map_slot){0};
    map->count--;
}

void block_map_close(struct block_map *map)
{
    pages_unmap(map->slots, map->mapped_bytes);
    *map = (struct block_map){0};
}

int block_map_check(const struct block_map *map, struct varve_message *message)
{
    if (map->slots == NULL) {
        return map->count == 0 && map->bits == 0 && map->mapped_bytes == 0
                   ? VARVE_OK
                   : varve_message_set(message, VARVE_ERROR_CORRUPT, "map: entries without slots");
    }
    uint64_t filled = 0;
    for (uint64_t i = 0; i <= slot_mask(map); i++) {
        const struct block_map_slot *slot = &map->slots[i];
        if (slot->block == NULL ? slot->addr != 0 : slot->block->addr != slot->addr) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "map: slot %llu has address 0x%llx",
                                     (unsigned long long)i, (unsigned long long)slot->addr);
        }
        /* Found from its address: no gap on the way, and no other entry with that address before it. */
        if (slot->block != NULL && block_map_find(map, slot->addr) != slot->block) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "map: 0x%llx in slot %llu is not found",
                                     (unsigned long long)slot->addr, (unsigned long long)i);
        }
        filled += slot->block != NULL;
    }
    if (filled != map->count || 2 * filled > slot_mask(map) + 1 ||
        map->mapped_bytes != sizeof(struct block_map_slot) << map->bits) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                 "map: %llu entries in 2^%u slots, counted %llu",
                                 (unsigned long long)map->count, map->bits, (unsigned long long)filled);
    }
    return VARVE_OK;
}
