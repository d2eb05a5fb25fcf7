/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to alloc/ */
/*
 * What the allocator's files share. All state belongs to one allocator and is touched with its lock held,
 * except where a comment says otherwise.
 *
 *   core/alloc.c (lock, entry points) ─► core/request.c (the chain) ─► policy_*.c (search, split, segment size)
 *        │                                └─► core/segment.c, core/expandable.c (device) ◄─ core/release.c (gc, empty_cache)
 *        └─► release of blocks: core/free.c ─► core/stream_use.c (events), core/stream_ordered.c (the device's own pool)
 *   free_index.c, block_slab.c, block_map.c: the structures; inspect/stats.c: figures; core/emit.c: records
 *
 * A block is a piece of a segment. Its neighbours by address are `prev` and `next`. It is in exactly one of:
 *   pool->index     free and mapped (`is_free`)
 *   pool->unmapped  address space of an expandable segment without memory (`!is_mapped`)
 *   in use          allocated, or freed and waiting for other streams
 * and in alloc->map, by address, iff it is in use.
 */
#ifndef VARVE_ALLOC_INDEX_BLOCK_H
#define VARVE_ALLOC_INDEX_BLOCK_H

#include "alloc/alloc.h"

#include <assert.h>

struct pool;
struct expandable;
struct index_stream;

/* A stream that a block was recorded for. */
struct stream_use {
    struct stream_use *next; /* by stream */
    uint64_t stream;
    bool in_capture; /* recorded while a capture was underway */
};

/* Two cache lines: what searches and the walk from block to block touch is in the first. */
struct block {
    _Alignas(64) uint64_t addr;
    uint64_t size;
    /* Links: of the free index while free, of the unmapped list, of the deferred list while in use. */
    struct block *up, *left, *right;
    struct index_stream *home; /* pool and stream: where it goes when it is free; fixed for its life */
    uint64_t gc_base;          /* the pool's search count when it last became free */
    uint32_t balance;          /* free_index.c's own */
    bool is_allocated;
    bool is_mapped;
    bool is_free;        /* in the free index: address, size and home must not change then */
    bool is_planned : 1; /* core/release.c: it is in a plan */
    bool is_ordered : 1; /* core/stream_ordered.c: of the device's pool, a segment of its own */
    bool
        is_joining : 1; /* core/stream_ordered.c: freed, and the device's own stream waits for its users already */
    struct block *prev, *next; /* neighbours by address in the segment */
    uint64_t requested;        /* what the last request asked for; stays when the block is freed */
    uint64_t id;               /* of the allocation, 1, 2, …; 0 if not in use */
    struct stream_use *uses;
    struct expandable *expandable; /* NULL: an ordinary segment */
    uint32_t segment_id;
    uint32_t event_count;       /* events of other streams that must complete first */
    struct block *planned_next; /* while is_planned */
};

/* A hash of an address whose high bits are as good as random for addresses at any stride, which one
 * multiplication alone does not give: with it, some strides fill long runs of slots or grow lopsided trees.
 */
static inline uint64_t addr_mix(uint64_t addr)
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    wide product = (wide)addr * odd;
    return ((uint64_t)(product >> 64) ^ (uint64_t)product) * odd;
}

/* ---- block_slab.c: descriptors, from mappings of our own; never malloc ---- */

/// Zeroed memory from the kernel, page-aligned; NULL if there is none. Also for other structures of alloc/.
void *pages_map(uint64_t bytes);
void pages_unmap(void *pages, uint64_t bytes); /* NULL is allowed */

struct region; /* a mapping: block_slab.c */

/* capacity = in_use + length of `spare` + (fresh_end - fresh) */
struct block_slab {
    struct block *spare;             /* given back; linked by `next` */
    struct block *fresh, *fresh_end; /* never used: the rest of the newest region */
    struct region *regions;          /* newest first */
    uint64_t region_bytes;           /* all of them */
    uint64_t capacity;               /* descriptors in all of them */
    uint64_t in_use;
};

/// A zeroed descriptor, NULL if the machine has no memory. A region holds thousands of them.
struct block *block_slab_take(struct block_slab *slab);
/// The same, of what was never used.
struct block *block_slab_take_fresh(struct block_slab *slab);
void block_slab_give(struct block_slab *slab, struct block *block);
/// At least `count` more takes cannot fail; VARVE_ERROR_NO_MEMORY.
int block_slab_reserve(struct block_slab *slab, uint64_t count);
void block_slab_close(struct block_slab *slab);
int block_slab_check(const struct block_slab *slab, struct varve_message *message);

/* ---- block_map.c: address → block in use, O(1), open addressing in a mapping of our own ---- */

struct block_map_slot {
    uint64_t addr;
    struct block *block; /* NULL: empty, and the address is 0 */
};

struct block_map {
    struct block_map_slot *slots;
    uint64_t count;
    uint64_t limit; /* entries that fit: half the slots */
    unsigned bits;  /* log2 of the number of slots; 0 before the first block */
    uint64_t mapped_bytes;
};

int block_map_reserve(struct block_map *map);                   /* room for one more; VARVE_ERROR_NO_MEMORY */
void block_map_put(struct block_map *map, struct block *block); /* after a reserve it cannot fail */
struct block *block_map_find(const struct block_map *map, uint64_t addr);
void block_map_remove(struct block_map *map, const struct block *block);
/// The run behind the slot, which is to be emptied, closes up; the slot that is to be emptied instead.
struct block_map_slot *block_map_slot_close(struct block_map *map, struct block_map_slot *slot);
void block_map_close(struct block_map *map);
int block_map_check(const struct block_map *map, struct varve_message *message);

/* ---- free_index.c: free blocks ordered by (stream, size, address) ---- */

#define FREE_INDEX_SIZE_LIMIT (UINT64_C(1) << 61) /* sizes are smaller */

struct index_chunk;

/* The free blocks of one stream, ordered by (size, address): size bins with a bitmap above them, a balanced
 * tree in each bin. Definition in free_index.c. */
struct free_index {
    struct index_stream **streams; /* ordered by stream as an unsigned number */
    uint32_t stream_count, stream_capacity;
    struct index_stream *recent; /* the last one asked for */
    struct index_chunk *chunks;  /* memory of the streams, newest first */
    uint64_t blocks;             /* free blocks in all */
    uint64_t mapped_bytes;
};

/// The place of a stream in the index, NULL if it has none.
struct index_stream *free_index_find_stream(struct free_index *index, uint64_t stream);
/// The same, made if it is new; NULL if there is no memory. Never moves. `pool` is kept with a new one.
struct index_stream *free_index_stream(struct free_index *index, struct pool *pool, uint64_t stream);
uint64_t index_stream_handle(const struct index_stream *home);
uint16_t index_stream_number(const struct index_stream *home); /* as records carry it */
void index_stream_set_number(struct index_stream *home, uint16_t number);
struct pool *index_stream_pool(const struct index_stream *home);
/// Has memory of the device's pool been freed on the stream since that pool was trimmed? core/stream_ordered.c's own.
bool index_stream_has_freed(const struct index_stream *home);
void index_stream_set_freed(struct index_stream *home, bool has_freed);

void free_index_insert(struct free_index *index, struct block *block); /* at block->home; sets is_free */
void free_index_remove(struct free_index *index, struct block *block); /* clears is_free */
/// A free block begins at another address or has another size.
void free_index_move(struct free_index *index, struct block *block, uint64_t addr, uint64_t size);
/// `block`, of the same stream, comes into the index and `old` goes.
void free_index_replace(struct free_index *index, struct block *old, struct block *block);
/// First block of that stream with (size, addr) >= the given ones; NULL if there is none. Any size is
/// allowed.
struct block *free_index_lower_bound(const struct index_stream *home, uint64_t size, uint64_t addr);
/// Neighbours within the stream (NULL at its ends).
struct block *free_index_next(const struct block *block);
struct block *free_index_previous(const struct block *block);
/// Largest (last) block of the stream, NULL if it has none.
struct block *free_index_last(const struct index_stream *home);
/// Walk over all streams, in order of (stream, size, address).
struct block *free_index_first(const struct free_index *index);
struct block *free_index_following(const struct free_index *index, const struct block *block);
void free_index_close(struct free_index *index);
int free_index_check(const struct free_index *index, struct varve_message *message);

#endif
