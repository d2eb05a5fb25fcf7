/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which allocation lives at an address: an open-addressed hash per process, asked once or twice for every
 * heap event, so a slot is 16 bytes and everything else about the allocation is in its scratch row, which the
 * event has to touch anyway. Multiplicative hashing spreads the regular addresses of an allocator well and
 * keeps neighbours apart. derive.c calls it.
 */
#include "trace/model/live.h"

#include "trace/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#define BITS_MIN 8U

static inline uint64_t slot_wanted(uint64_t addr, unsigned bits)
{
    return addr * UINT64_C(0x9e3779b97f4a7c15) >> (64 - bits);
}

static inline uint64_t slot_mask(const struct live_index *index)
{
    return (UINT64_C(1) << index->bits) - 1;
}

/* The slot that holds `addr`, or the empty one where it belongs. */
static inline struct live_slot *slot_find(const struct live_index *index, uint64_t addr)
{
    uint64_t mask = slot_mask(index);
    uint64_t at = slot_wanted(addr, index->bits);
    while (index->slots[at].addr != addr && index->slots[at].addr != 0) {
        at = (at + 1) & mask;
    }
    return &index->slots[at];
}

static int index_grow(struct live_index *index)
{
    struct live_index larger = {.count = index->count, .bits = index->slots ? index->bits + 1 : BITS_MIN};
    larger.slots = calloc((size_t)1 << larger.bits, sizeof(*larger.slots));
    if (larger.slots == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (index->slots != NULL) {
        for (uint64_t i = 0; i <= slot_mask(index); i++) {
            if (index->slots[i].addr != 0) {
                *slot_find(&larger, index->slots[i].addr) = index->slots[i];
            }
        }
        free(index->slots);
    }
    *index = larger;
    return VARVE_OK;
}

int live_reserve(struct live_index *index)
{
    if (index->slots != NULL && index->count + 1 <= (slot_mask(index) + 1) / 4 * 3) {
        return VARVE_OK;
    }
    return index_grow(index);
}

uint64_t live_find(const struct live_index *index, uint64_t addr)
{
    if (index->slots == NULL || addr == 0) {
        return 0;
    }
    const struct live_slot *slot = slot_find(index, addr);
    return slot->addr == addr ? slot->id : 0;
}

uint64_t live_insert(struct live_index *index, uint64_t addr, uint64_t id)
{
    assert(addr != 0 && id != 0 && index->slots != NULL);
    struct live_slot *slot = slot_find(index, addr);
    uint64_t before = slot->id;
    if (slot->addr == 0) {
        index->count++;
        before = 0;
    }
    *slot = (struct live_slot){.addr = addr, .id = id};
    return before;
}

uint64_t live_remove(struct live_index *index, uint64_t addr)
{
    if (index->slots == NULL || addr == 0) {
        return 0;
    }
    struct live_slot *slot = slot_find(index, addr);
    if (slot->addr == 0) {
        return 0;
    }
    uint64_t id = slot->id;
    uint64_t mask = slot_mask(index);
    uint64_t hole = (uint64_t)(slot - index->slots);
    /* Move back every follower whose search would now end at the hole before it is found. */
    for (uint64_t at = (hole + 1) & mask; index->slots[at].addr != 0; at = (at + 1) & mask) {
        uint64_t home = slot_wanted(index->slots[at].addr, index->bits);
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            index->slots[hole] = index->slots[at];
            hole = at;
        }
    }
    index->slots[hole] = (struct live_slot){0};
    index->count--;
    return id;
}

void live_clear(struct live_index *index)
{
    free(index->slots);
    *index = (struct live_index){0};
}

int live_check(const struct live_index *index)
{
    if (index->slots == NULL) {
        return index->count == 0 ? VARVE_OK : VARVE_ERROR_CORRUPT;
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i <= slot_mask(index); i++) {
        if (index->slots[i].addr == 0) {
            continue;
        }
        count++;
        if (index->slots[i].id == 0 || slot_find(index, index->slots[i].addr) != &index->slots[i]) {
            return VARVE_ERROR_CORRUPT;
        }
    }
    bool is_roomy = count <= (slot_mask(index) + 1) / 4 * 3;
    return count == index->count && is_roomy ? VARVE_OK : VARVE_ERROR_CORRUPT;
}
