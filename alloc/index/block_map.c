/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A removal moves later entries of its run back instead of leaving a mark, so the table never ages: costs
 * depend on what it holds, not on what it has held.
 *
 * Invariants: 2 * count <= slots; between the slot that an address hashes to and the slot that it is in, none
 * is empty.
 */
#include "alloc/index/block_map.h"
#include "alloc/index/block.h"

#define BITS_MIN 12U

static int map_grow(struct block_map *map)
{
    struct block_map grown = {.count = map->count, .bits = map->bits == 0 ? BITS_MIN : map->bits + 1};
    grown.mask = (UINT64_C(1) << grown.bits) - 1;
    grown.shift = 64 - grown.bits;
    grown.limit = UINT64_C(1) << (grown.bits - 1);
    grown.mapped_bytes = sizeof(struct block_map_slot) << grown.bits;
    grown.slots = pages_map(grown.mapped_bytes);
    if (grown.slots == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    for (uint64_t i = 0; map->slots != NULL && i <= block_map_mask(map); i++) {
        if (map->slots[i].block != NULL) {
            block_map_fill(&grown, map->slots[i].addr, map->slots[i].block);
        }
    }
    pages_unmap(map->slots, map->mapped_bytes);
    *map = grown;
    return VARVE_OK;
}

int block_map_reserve(struct block_map *map)
{
    return map->count < map->limit ? VARVE_OK : map_grow(map);
}

struct block *block_map_find(const struct block_map *map, uint64_t addr)
{
    const struct block_map_slot *slot = block_map_find_slot(map, addr);
    return slot != NULL ? slot->block : NULL;
}

struct block *block_map_each(const struct block_map *map, uint64_t *position)
{
    uint64_t slots = map->count > 0 ? block_map_mask(map) + 1 : 0;
    while (*position < slots) {
        struct block *block = map->slots[(*position)++].block;
        if (block != NULL && !block->is_free) {
            return block;
        }
    }
    return NULL;
}

void block_map_remove(struct block_map *map, const struct block *block)
{
    struct block_map_slot *slot = block_map_find_slot(map, block->addr);
    assert(slot != NULL && slot->block == block);
    block_map_clear(map, slot);
}

void block_map_close(struct block_map *map)
{
    pages_unmap(map->slots, map->mapped_bytes);
    *map = (struct block_map){0};
}

int block_map_check(const struct block_map *map, struct varve_message *message)
{
    if (map->slots == NULL) {
        return map->count == 0 && map->limit == 0 && map->bits == 0 && map->mapped_bytes == 0
                   ? VARVE_OK
                   : varve_message_set(message, VARVE_ERROR_CORRUPT, "map: entries without slots");
    }
    uint64_t filled = 0;
    for (uint64_t i = 0; i <= block_map_mask(map); i++) {
        const struct block_map_slot *slot = &map->slots[i];
        if (slot->block == NULL ? slot->addr != 0 : slot->block->addr != slot->addr || !slot->block->is_in_map) {
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
    if (filled != map->count || filled > map->limit || map->mask != (UINT64_C(1) << map->bits) - 1 ||
        map->shift != 64 - map->bits || 2 * map->limit != map->mask + 1 ||
        map->mapped_bytes != sizeof(struct block_map_slot) << map->bits) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "map: %llu entries in 2^%u slots, counted %llu",
                                 (unsigned long long)map->count, map->bits, (unsigned long long)filled);
    }
    return VARVE_OK;
}
