/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * What every cached request and every free go through of the slab, the map, the index and the pools: the
 * short halves, to be inlined into core/request.c and core/free.c. A pair passes some thirty functions, so that calls,
 * and not what they do, would be a third of its cost; a compiler left alone does not inline across files, and
 * little within them. The long halves, and the same functions for everybody else, are in the .c files of
 * their names.
 */
#ifndef VARVE_ALLOC_INDEX_HOT_H
#define VARVE_ALLOC_INDEX_HOT_H

#include "alloc/index/free_index.h"

#include <string.h>

#define HOT static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect((condition), 1)
#define UNLIKELY(condition) __builtin_expect((condition), 0)

/* ---- block_slab.c ---- */

#define SLAB_LINE_BYTES 64

/* A line at a time: gcc makes one memset of both a string instruction, which takes longer to start than this.
 */
HOT void slab_clear(struct block *block)
{
    memset(block, 0, SLAB_LINE_BYTES);
    memset((char *)block + SLAB_LINE_BYTES, 0, sizeof *block - SLAB_LINE_BYTES);
}

HOT struct block *slab_take(struct block_slab *slab)
{
    struct block *block = slab->spare;

    if (UNLIKELY(block == NULL)) {
        return block_slab_take_fresh(slab);
    }
    slab->spare = block->next;
    slab->in_use++;
    slab_clear(block);
    return block;
}

HOT void slab_give(struct block_slab *slab, struct block *block)
{
    assert(slab->in_use > 0 && !block->is_free);
    block->next = slab->spare;
    slab->spare = block;
    slab->in_use--;
}

HOT int slab_reserve(struct block_slab *slab, uint64_t count)
{
    return LIKELY(slab->capacity - slab->in_use >= count) ? VARVE_OK : block_slab_reserve(slab, count);
}

/* ---- block_map.c ---- */

HOT uint64_t map_home(const struct block_map *map, uint64_t addr)
{
    return addr_mix(addr) >> (64 - map->bits);
}

HOT uint64_t map_mask(const struct block_map *map)
{
    return (UINT64_C(1) << map->bits) - 1;
}

HOT void map_fill(struct block_map *map, uint64_t addr, struct block *block)
{
    uint64_t mask = map_mask(map);
    uint64_t i = map_home(map, addr);

    while (UNLIKELY(map->slots[i].block != NULL)) {
        assert(map->slots[i].addr != addr);
        i = (i + 1) & mask;
    }
    map->slots[i].addr = addr;
    map->slots[i].block = block;
}

HOT void map_put(struct block_map *map, struct block *block)
{
    assert(map->count < map->limit);
    map_fill(map, block->addr, block);
    map->count++;
}

/// The slot of a block in use, NULL if nobody uses that address; good until the next put or clear.
HOT struct block_map_slot *map_find(const struct block_map *map, uint64_t addr)
{
    struct block_map_slot *slot;
    uint64_t i;

    if (UNLIKELY(map->slots == NULL)) {
        return NULL;
    }
    i = map_home(map, addr);
    slot = &map->slots[i];
    /* An empty slot has address 0 and no block, which is the answer for an absent address 0 as well. */
    while (UNLIKELY(slot->addr != addr) && slot->block != NULL) {
        i = (i + 1) & map_mask(map);
        slot = &map->slots[i];
    }
    return slot->block != NULL ? slot : NULL;
}

/* What comes behind in the run may have to move back: block_map_slot_close. */
HOT void map_clear(struct block_map *map, struct block_map_slot *slot)
{
    uint64_t next = ((uint64_t)(slot - map->slots) + 1) & map_mask(map);

    assert(map->count > 0 && slot->block != NULL);
    map->count--;
    if (UNLIKELY(map->slots[next].block != NULL)) {
        slot = block_map_slot_close(map, slot);
    }
    slot->addr = 0;
    slot->block = NULL;
}

/* ---- free_index.c ---- */

HOT void bin_mark(struct index_stream *home, unsigned bin)
{
    home->words[bin / 64] |= UINT64_C(1) << bin % 64;
    home->summary |= UINT64_C(1) << bin / 64;
}

HOT void bin_unmark(struct index_stream *home, unsigned bin)
{
    home->words[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    if (home->words[bin / 64] == 0) {
        home->summary &= ~(UINT64_C(1) << bin / 64);
    }
}

/* First bin with blocks that is not before `bin`; INDEX_BIN_COUNT if there is none. */
HOT unsigned bin_from(const struct index_stream *home, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits, words;

    if (UNLIKELY(word == INDEX_WORD_COUNT)) {
        return INDEX_BIN_COUNT;
    }
    bits = home->words[word] & (~UINT64_C(0) << bin % 64);
    if (bits == 0) {
        words = home->summary & (~UINT64_C(0) << (word + 1));
        if (words == 0) {
            return INDEX_BIN_COUNT;
        }
        word = (unsigned)__builtin_ctzll(words);
        bits = home->words[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

/* A root without children. */
HOT bool is_alone(const struct block *block)
{
    return block->up == NULL && block->left == NULL && block->right == NULL;
}

HOT void bin_insert(struct index_stream *home, unsigned bin, struct block *block)
{
    if (LIKELY(home->bins[bin] == NULL)) {
        block->up = block->left = block->right = NULL;
        home->bins[bin] = block;
        bin_mark(home, bin);
    } else {
        free_index_tree_insert(&home->bins[bin], block);
    }
}

/* Its links are NULL afterwards. */
HOT void bin_remove(struct index_stream *home, unsigned bin, struct block *block)
{
    if (LIKELY(is_alone(block))) {
        assert(home->bins[bin] == block);
        home->bins[bin] = NULL;
        bin_unmark(home, bin);
    } else {
        free_index_tree_remove(&home->bins[bin], block);
    }
}

HOT void index_insert(struct free_index *index, struct block *block)
{
    struct index_stream *home = block->home;

    assert(!block->is_free && block->size < FREE_INDEX_SIZE_LIMIT && home->index == index);
    bin_insert(home, index_bin_of(block->size), block);
    block->is_free = true;
    home->blocks++;
    index->blocks++;
}

HOT void index_remove(struct free_index *index, struct block *block)
{
    struct index_stream *home = block->home;

    assert(block->is_free && home->index == index);
    bin_remove(home, index_bin_of(block->size), block);
    block->is_free = false;
    home->blocks--;
    index->blocks--;
}

/* What splits and merges change most of the time is the rest of a large segment, which stays alone in its
 * wide bin. */
HOT void index_move(struct block *block, uint64_t addr, uint64_t size)
{
    struct index_stream *home = block->home;
    unsigned from = index_bin_of(block->size);
    unsigned to = index_bin_of(size);

    assert(block->is_free && size < FREE_INDEX_SIZE_LIMIT);
    if (from != to || UNLIKELY(!is_alone(block))) {
        bin_remove(home, from, block);
        block->addr = addr;
        block->size = size;
        bin_insert(home, to, block);
    } else {
        block->addr = addr;
        block->size = size;
    }
}

HOT void index_replace(struct block *old, struct block *block)
{
    struct index_stream *home = old->home;
    unsigned from = index_bin_of(old->size);
    unsigned to = index_bin_of(block->size);

    assert(old->is_free && !block->is_free && home == block->home);
    if (from != to || UNLIKELY(!is_alone(old))) {
        bin_remove(home, from, old);
        bin_insert(home, to, block);
    } else {
        home->bins[to] = block;
        block->up = block->left = block->right = NULL;
    }
    old->is_free = false;
    block->is_free = true;
}

/* The first block of that size or a larger one, the lowest among equals; any size is allowed. */
HOT struct block *index_best(const struct index_stream *home, uint64_t size)
{
    unsigned bin;

    if (UNLIKELY(size >= FREE_INDEX_SIZE_LIMIT)) {
        return NULL;
    }
    bin = index_bin_of(size);
    if (home->bins[bin] != NULL) {
        const struct block *block = home->bins[bin];

        if (LIKELY(is_alone(block)) && block->size >= size) {
            return home->bins[bin];
        }
        if (!is_alone(block)) {
            return free_index_lower_bound(home, size, 0);
        }
    }
    bin = bin_from(home, bin + 1);
    if (UNLIKELY(bin == INDEX_BIN_COUNT)) {
        return NULL;
    }
    return LIKELY(is_alone(home->bins[bin])) ? home->bins[bin] : free_index_bin_first(home, bin);
}

#endif
