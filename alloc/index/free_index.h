/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * The inside of the free index, for free_index.c and its walker free_index_check.c: how a stream keeps its
 * blocks, and the three functions of a block that everything rests on: bin, order and priority. The bin
 * follows from the size and grows with it, so bins in turn, each in order, are the order of the stream.
 */
#ifndef VARVE_ALLOC_INDEX_FREE_INDEX_H
#define VARVE_ALLOC_INDEX_FREE_INDEX_H

#include "alloc/index/block.h"

#define INDEX_UNIT_BITS 9U   /* sizes are multiples of 2^9, though nothing breaks if they are not */
#define INDEX_LINEAR_BITS 5U /* 2^5 bins per doubling */
#define INDEX_BIN_COUNT 1536U
#define INDEX_WORD_COUNT (INDEX_BIN_COUNT / 64)
#define INDEX_CHUNK_BYTES (UINT64_C(1) << 16)

struct index_stream {
    uint64_t handle;
    struct pool *pool;
    const struct free_index *index;
    uint64_t blocks;
    uint32_t position; /* in index->streams */
    uint16_t number;
    bool has_freed;
    uint64_t summary;                 /* bit w: words[w] is not 0 */
    uint64_t words[INDEX_WORD_COUNT]; /* bit b of word w: bins[64 w + b] is not NULL */
    struct block *bins[INDEX_BIN_COUNT];
};

struct index_chunk {
    struct index_chunk *next;
    uint64_t used; /* streams in it */
    struct index_stream streams[];
};

#define INDEX_CHUNK_STREAMS ((INDEX_CHUNK_BYTES - sizeof(struct index_chunk)) / sizeof(struct index_stream))
static_assert(INDEX_WORD_COUNT <= 64, "one word of summary");
static_assert(sizeof(struct index_chunk) + sizeof(struct index_stream) <= INDEX_CHUNK_BYTES,
              "a chunk has a stream");

/* Sizes below 64 units have a bin for each number of units; above, the five bits after the leading one choose
 * the bin. */
static inline unsigned index_bin_of(uint64_t size)
{
    uint64_t units = (size >> INDEX_UNIT_BITS) | (UINT64_C(1) << INDEX_LINEAR_BITS);
    unsigned shift = 63 - INDEX_LINEAR_BITS - (unsigned)__builtin_clzll(units);
    return (shift << INDEX_LINEAR_BITS) + (unsigned)((size >> INDEX_UNIT_BITS) >> shift);
}

/* free_index.c: bins with several blocks. After a removal the block's links are NULL. */
void free_index_tree_insert(struct block **root, struct block *block);
void free_index_tree_remove(struct block **root, struct block *block);
struct block *free_index_bin_first(const struct index_stream *home, unsigned bin);

static inline bool index_is_before(const struct block *block, uint64_t size, uint64_t addr)
{
    return block->size < size || (block->size == size && block->addr < addr);
}

static inline uint32_t index_priority_of(uint64_t addr)
{
    return (uint32_t)(addr_mix(addr) >> 32);
}

#endif
