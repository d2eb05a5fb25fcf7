/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The free blocks of a pool, ordered by (stream, size, address): for each stream size bins with a bitmap above
 * them, and a balanced tree in each bin. A bin follows from the size and grows with it, so bins in turn, each
 * in order, are the order of the stream. Called by policies' searches, by free and by the release of segments.
 */
#ifndef VARVE_ALLOC_INDEX_FREE_INDEX_H
#define VARVE_ALLOC_INDEX_FREE_INDEX_H

#include "alloc/index/block.h"
#include "base/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FREE_INDEX_SIZE_LIMIT (UINT64_C(1) << 61) /* sizes are smaller */
#define INDEX_UNIT_BITS 9U   /* sizes are multiples of 2^9, though nothing breaks if they are not */
#define INDEX_LINEAR_BITS 5U /* 2^5 bins per doubling */
#define INDEX_BIN_COUNT 1536U
#define INDEX_WORD_COUNT (INDEX_BIN_COUNT / 64)

struct pool;

/* The bins of a stream. */
struct stream_bins {
    uint64_t stream; /* its handle */
    struct pool *pool;
    const struct free_index *index;
    uint64_t blocks;
    uint64_t record_last;                 /* the last word of records, without call site and cause */
    uint32_t position;                    /* in index->streams */
    uint16_t number;                      /* of the stream, as records carry it */
    bool is_small;                        /* of the pool: statistics go by it */
    void *backend;                        /* what a backend keeps for the stream; its own */
    uint64_t summary;                     /* bit w: words[w] is not 0 */
    uint64_t words[INDEX_WORD_COUNT];     /* bit b of word w: roots[64 w + b] is not NULL */
    struct block *roots[INDEX_BIN_COUNT]; /* of the trees, by bin */
};

struct free_index {
    struct stream_bins **streams; /* ordered by stream as an unsigned number */
    uint32_t stream_count, stream_capacity;
    struct stream_bins *recent; /* the last one that was found */
    struct index_chunk *chunks; /* newest first */
};

/* Memory of bins, mapped at once. */
#define INDEX_CHUNK_BYTES (UINT64_C(1) << 16)

struct index_chunk {
    struct index_chunk *next;
    uint64_t used; /* bins in it */
    struct stream_bins streams[];
};

#define INDEX_CHUNK_STREAMS ((INDEX_CHUNK_BYTES - sizeof(struct index_chunk)) / sizeof(struct stream_bins))
static_assert(sizeof(struct index_chunk) + sizeof(struct stream_bins) <= INDEX_CHUNK_BYTES,
              "a chunk has room for the bins of a stream");
static_assert(INDEX_WORD_COUNT <= 64, "one word of summary");

/// The bins of a stream, NULL if it has none.
struct stream_bins *free_index_find_bins(struct free_index *index, uint64_t stream);
/// The same, made if they are new; NULL if there is no memory. They never move. `pool` is kept with new ones.
struct stream_bins *free_index_bins(struct free_index *index, struct pool *pool, uint64_t stream);
/// First block of that stream with (size, addr) >= the given ones; NULL if there is none. Any size is allowed.
struct block *free_index_lower_bound(const struct stream_bins *bins, uint64_t size, uint64_t addr);
/// Neighbours within the stream (NULL at its ends).
struct block *free_index_next(const struct block *block);
struct block *free_index_previous(const struct block *block);
/// Largest (last) block of the stream, NULL if it has none.
struct block *free_index_last(const struct stream_bins *bins);
/// Walk over all streams, in order of (stream, size, address).
struct block *free_index_first(const struct free_index *index);
struct block *free_index_following(const struct free_index *index, const struct block *block);
void free_index_close(struct free_index *index);
int free_index_check(const struct free_index *index, struct varve_message *message);

/* Bins with several blocks. After a removal the block's links are NULL. */
void free_index_tree_insert(struct block **root, struct block *block);
void free_index_tree_remove(struct block **root, struct block *block);
struct block *free_index_bin_first(const struct stream_bins *bins, unsigned bin);

/* Sizes below 64 units have a bin for each number of units; above, the five bits after the leading one choose
 * the bin. */
static inline unsigned index_bin_of(uint64_t size)
{
    uint64_t units = (size >> INDEX_UNIT_BITS) | (UINT64_C(1) << INDEX_LINEAR_BITS);
    unsigned shift = 63 - INDEX_LINEAR_BITS - (unsigned)__builtin_clzll(units);
    return (shift << INDEX_LINEAR_BITS) + (unsigned)((size >> INDEX_UNIT_BITS) >> shift);
}

static inline uint32_t index_priority_of(uint64_t addr)
{
    return (uint32_t)(addr_mix(addr) >> 33); /* 31 bits */
}

HOT void bin_mark(struct stream_bins *bins, unsigned bin)
{
    bins->words[bin / 64] |= UINT64_C(1) << bin % 64;
    bins->summary |= UINT64_C(1) << bin / 64;
}

HOT void bin_unmark(struct stream_bins *bins, unsigned bin)
{
    bins->words[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    if (bins->words[bin / 64] == 0) {
        bins->summary &= ~(UINT64_C(1) << bin / 64);
    }
}

/* A block that is alone in a bin goes to another one, which has none. */
HOT void bin_move(struct stream_bins *bins, unsigned from, unsigned to, struct block *block)
{
    bins->roots[from] = NULL;
    bins->roots[to] = block;
    block->bin = (uint16_t)to;
    if (LIKELY(from / 64 == to / 64)) {
        bins->words[to / 64] ^= UINT64_C(1) << from % 64 | UINT64_C(1) << to % 64;
    } else {
        bin_unmark(bins, from);
        bin_mark(bins, to);
    }
}

/* First bin with blocks that is not before `bin`; INDEX_BIN_COUNT if there is none. */
HOT unsigned bin_from(const struct stream_bins *bins, unsigned bin)
{
    unsigned word = bin / 64;
    uint64_t bits, words;

    if (UNLIKELY(word == INDEX_WORD_COUNT)) {
        return INDEX_BIN_COUNT;
    }
    bits = bins->words[word] & (~UINT64_C(0) << bin % 64);
    if (bits == 0) {
        words = bins->summary & (~UINT64_C(0) << (word + 1));
        if (words == 0) {
            return INDEX_BIN_COUNT;
        }
        word = (unsigned)__builtin_ctzll(words);
        bits = bins->words[word];
    }
    return word * 64 + (unsigned)__builtin_ctzll(bits);
}

HOT void bin_insert(struct stream_bins *bins, unsigned bin, struct block *block)
{
    block->bin = (uint16_t)bin;
    if (LIKELY(bins->roots[bin] == NULL)) {
        block->is_alone = true;
        bins->roots[bin] = block;
        bin_mark(bins, bin);
    } else {
        free_index_tree_insert(&bins->roots[bin], block);
    }
}

/* Its links are NULL afterwards. */
HOT void bin_remove(struct stream_bins *bins, struct block *block)
{
    unsigned bin = block->bin;

    if (LIKELY(block->is_alone)) {
        assert(bins->roots[bin] == block);
        bins->roots[bin] = NULL;
        bin_unmark(bins, bin);
    } else {
        free_index_tree_remove(&bins->roots[bin], block);
    }
}

/// At block->bins; sets is_free.
HOT void free_index_insert(struct free_index *index, struct block *block)
{
    struct stream_bins *bins = block->bins;

    (void)index; /* what the caller means, for the assertion */
    assert(!block->is_free && block->size < FREE_INDEX_SIZE_LIMIT && bins->index == index);
    bin_insert(bins, index_bin_of(block->size), block);
    block->is_free = true;
    bins->blocks++;
}

/// Clears is_free.
HOT void free_index_remove(struct free_index *index, struct block *block)
{
    struct stream_bins *bins = block->bins;

    (void)index;
    assert(block->is_free && bins->index == index);
    bin_remove(bins, block);
    block->is_free = false;
    bins->blocks--;
}

/// A free block begins at another address or has another size.
/* What splits and merges change most of the time is the rest of a large segment, which stays alone in its
 * wide bin. */
HOT void free_index_move(struct block *block, uint64_t addr, uint64_t size)
{
    struct stream_bins *bins = block->bins;
    unsigned to = index_bin_of(size);

    assert(block->is_free && size < FREE_INDEX_SIZE_LIMIT);
    if (block->bin != to || UNLIKELY(!block->is_alone)) {
        bin_remove(bins, block);
        block->addr = addr;
        block->size = size;
        bin_insert(bins, to, block);
    } else {
        block->addr = addr;
        block->size = size;
    }
}

/// `block`, of the same stream, comes into the index and `old` goes.
HOT void free_index_replace(struct block *old, struct block *block)
{
    struct stream_bins *bins = old->bins;
    unsigned to = index_bin_of(block->size);

    assert(old->is_free && !block->is_free && bins == block->bins);
    if (old->bin != to || UNLIKELY(!old->is_alone)) {
        bin_remove(bins, old);
        bin_insert(bins, to, block);
    } else {
        bins->roots[to] = block;
        block->bin = (uint16_t)to;
        block->is_alone = true;
    }
    old->is_free = false;
    block->is_free = true;
}

/* The first block of that size or a larger one, the lowest among equals; `bin` is that of the size. */
HOT struct block *free_index_best_from(const struct stream_bins *bins, unsigned bin, uint64_t size)
{
    struct block *block = bins->roots[bin];

    if (block != NULL) {
        if (LIKELY(block->is_alone) && block->size >= size) {
            return block;
        }
        if (!block->is_alone) {
            return free_index_lower_bound(bins, size, 0);
        }
    }
    bin = bin_from(bins, bin + 1);
    if (UNLIKELY(bin == INDEX_BIN_COUNT)) {
        return NULL;
    }
    block = bins->roots[bin];
    return LIKELY(block->is_alone) ? block : free_index_bin_first(bins, bin);
}

/* The same of any size. */
HOT struct block *free_index_best(const struct stream_bins *bins, uint64_t size)
{
    return LIKELY(size < FREE_INDEX_SIZE_LIMIT) ? free_index_best_from(bins, index_bin_of(size), size) : NULL;
}

/*
 * Blocks of one kind (small or large) of the default pool or of a private one: the free ones, and the address
 * space of expandable segments that has no memory.
 */

struct private_pool;

struct pool {
    struct free_index index;
    struct block *unmapped;     /* by (stream, address), linked by left and right */
    uint64_t search_count;      /* of searches while garbage collection is on: the clock of ages */
    struct private_pool *owner; /* NULL: the default pool */
    uint16_t number;            /* as records carry it: 2 × pool + (1 if small) */
    bool is_small;
    bool no_split; /* blocks are given out whole */
};

HOT struct pool *block_pool(const struct block *block)
{
    return block->bins->pool;
}

void pool_unmapped_insert(struct pool *pool, struct block *block);
void pool_unmapped_remove(struct pool *pool, struct block *block);

#endif
