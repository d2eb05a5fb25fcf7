/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block is a piece of a segment. Its neighbours by address are `prev` and `next`. It is in exactly one of:
 *   pool->index     free and mapped (`is_free`)
 *   pool->unmapped  address space of an expandable segment without memory (`!is_mapped`)
 *   in use          allocated, or freed and waiting for other streams
 * and, by address, in the allocator's block map if it is in use, or is free and was in use when it last had this
 * address: the next request for it then finds it there. Guarded by the allocator's lock.
 */
#ifndef VARVE_ALLOC_INDEX_BLOCK_H
#define VARVE_ALLOC_INDEX_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What every cached request and every free go through is inline (HOT): a pair passes some thirty functions, so
 * that calls, and not what they do, would be a third of its cost, and a compiler left alone does not inline
 * across files, and little within them.
 */

#define HOT static inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect((condition), 1)
#define UNLIKELY(condition) __builtin_expect((condition), 0)

struct expandable;
struct stream_bins;
struct stream_use;

/* The bits of a block's state, as one byte and by name. test_block_slab.c compares them. */
enum block_state {
    BLOCK_ALLOCATED = 1,
    BLOCK_MAPPED = 2,
    BLOCK_FREE = 4,
    BLOCK_HAS_USERS = 8,
    BLOCK_EXPANDABLE = 16,
    BLOCK_IN_MAP = 32,
};

/* Two cache lines. What a cached request, a free and the walks over neighbours touch is in the first. */
struct block {
    _Alignas(64) uint64_t addr;
    uint64_t size;
    struct block *prev, *next; /* neighbours by address in the segment */
    struct stream_bins *bins;  /* of its pool and stream: where it goes when it is free; fixed for its life */
    uint64_t requested;        /* what the last request asked for; stays when the block is freed */
    uint64_t id;               /* of the allocation, 1, 2, …; 0 if not in use */
    uint32_t segment_id;
    uint16_t bin; /* free_index.c's own: where it is, while it is free */
    union {
        uint8_t state; /* enum block_state */
        struct {
            bool is_allocated : 1;
            bool is_mapped : 1;
            bool is_free : 1;       /* in the free index: address, size and bins must not change then */
            bool has_users : 1;     /* other streams: `uses` or events that must complete first */
            bool is_expandable : 1; /* `expandable` is not NULL; fixed for its life */
            bool is_in_map : 1;     /* block_map.h's own: the map has it by its address */
        };
    };
    union {
        bool is_alone; /* free_index.c's own, while free: no other block is in its bin, and its links are NULL */
        bool has_user; /* while allocated: `user` is the program's */
    };
    /* Links: of the free index while free, of the unmapped list, of the deferred list while in use; else NULL. */
    struct block *up, *left, *right;
    union {
        uint64_t freed_at;     /* the pool's search count when it last became free */
        uint64_t backend_word; /* a backend's own, of its blocks; 0 at first */
    };
    union {
        struct stream_use *uses; /* other streams that it was recorded for */
        struct block *list_next; /* a backend's own, while free */
    };
    struct expandable *expandable; /* NULL: an ordinary segment */
    union {
        struct block *planned_next; /* while is_planned */
        struct block *list_prev;    /* a backend's own, while free */
        void *user;                 /* while allocated, with has_user */
    };
    uint32_t event_count;    /* events of other streams that must complete first */
    uint32_t priority : 31;  /* free_index.c's own: of a node of a treap */
    uint32_t is_planned : 1; /* core/cache_release.c: it is in a plan */
};

HOT bool block_is_split(const struct block *block)
{
    return block->prev != NULL || block->next != NULL;
}

/* Free, or unmapped: a neighbour in the same state may merge with it. */
HOT bool block_is_available(const struct block *block)
{
    return block != NULL && (block->state & (BLOCK_ALLOCATED | BLOCK_HAS_USERS)) == 0;
}

/* Of all blocks from this one to the end of its segment. */
static inline uint64_t block_bytes_onwards(const struct block *block)
{
    uint64_t bytes = 0;
    for (; block != NULL; block = block->next) {
        bytes += block->size;
    }
    return bytes;
}

/* After each change of `uses` and `event_count`. */
static inline void block_note_users(struct block *block)
{
    block->has_users = block->uses != NULL || block->event_count > 0;
}

/* The first of a contiguous range with memory: a segment, or a part of an expandable one. */
HOT bool block_begins_range(const struct block *block)
{
    return block->is_mapped && (block->prev == NULL || !block->prev->is_mapped);
}

HOT void block_link_before(struct block *block, struct block *front)
{
    front->prev = block->prev;
    if (front->prev != NULL) {
        front->prev->next = front;
    }
    front->next = block;
    block->prev = front;
}

HOT void block_link_after(struct block *block, struct block *back)
{
    back->next = block->next;
    if (back->next != NULL) {
        back->next->prev = back;
    }
    back->prev = block;
    block->next = back;
}

/* A hash of an address whose high bits are as good as random for addresses at any stride, which one
 * multiplication alone does not give: with it, some strides fill long runs of slots or grow lopsided trees. */
static inline uint64_t addr_mix(uint64_t addr)
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    wide product = (wide)addr * odd;
    return ((uint64_t)(product >> 64) ^ (uint64_t)product) * odd;
}

/* Memory from the kernel for the structures of this folder: the allocator may be called below `malloc`. */

/// Zeroed and page-aligned; NULL if there is none.
void *pages_map(uint64_t bytes);
void pages_unmap(void *pages, uint64_t bytes); /* NULL is allowed */

#endif
