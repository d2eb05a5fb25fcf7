/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block descriptors, from mappings of our own, never malloc. One is in use, on the spare list, or in the part
 * of the newest region that was never touched: capacity = in_use + length of `spare` + (fresh_end - fresh).
 * The second cache line of a spare one is as of a fresh one, but for `priority`, `is_planned` and `planned_next`.
 */
#ifndef VARVE_ALLOC_INDEX_BLOCK_SLAB_H
#define VARVE_ALLOC_INDEX_BLOCK_SLAB_H

#include "alloc/index/block.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>

#define SLAB_LINE_BYTES 64

struct region; /* a mapping: block_slab.c */

struct block_slab {
    struct block *spare;             /* released; linked by `next` */
    struct block *fresh, *fresh_end; /* never used: the rest of the newest region */
    struct region *regions;          /* newest first */
    uint64_t region_bytes;           /* all of them */
    uint64_t capacity;               /* descriptors in all of them */
    uint64_t in_use;
};

/// A zeroed descriptor of what was never used; NULL if the machine has no memory.
struct block *block_slab_acquire_fresh(struct block_slab *slab);
/// At least `count` more acquisitions cannot fail; VARVE_ERROR_NO_MEMORY.
int block_slab_reserve(struct block_slab *slab, uint64_t count);
void block_slab_close(struct block_slab *slab);
int block_slab_check(const struct block_slab *slab, struct varve_message *message);

/* With whatever it held before in its first cache line; NULL if the machine has no memory. */
HOT struct block *block_slab_acquire_used(struct block_slab *slab)
{
    struct block *block = slab->spare;

    if (UNLIKELY(block == NULL)) {
        return block_slab_acquire_fresh(slab);
    }
    slab->spare = block->next;
    slab->in_use++;
    return block;
}

/// A zeroed descriptor, NULL if the machine has no memory.
static inline struct block *block_slab_acquire(struct block_slab *slab)
{
    struct block *block = block_slab_acquire_used(slab);

    if (block != NULL) {
        *block = (struct block){0};
    }
    return block;
}

HOT void block_slab_release(struct block_slab *slab, struct block *block)
{
    assert(slab->in_use > 0 && !block->is_free);
    block->up = block->left = block->right = NULL;
    block->freed_at = 0;
    block->uses = NULL;
    block->expandable = NULL;
    block->event_count = 0;
    block->next = slab->spare;
    slab->spare = block;
    slab->in_use--;
}

/* A reserved descriptor of a part of the same segment, mapped or not as that is, not linked yet. */
HOT struct block *block_slab_part(struct block_slab *slab, const struct block *block, uint64_t addr, uint64_t bytes)
{
    struct block *part = block_slab_acquire_used(slab);

    part->addr = addr;
    part->size = bytes;
    part->bins = block->bins;
    part->requested = 0;
    part->id = 0;
    part->segment_id = block->segment_id;
    part->bin = 0;
    part->state = block->state & (BLOCK_MAPPED | BLOCK_EXPANDABLE);
    part->is_alone = false;
    if (UNLIKELY(block->is_expandable)) {
        part->expandable = block->expandable;
    }
    return part; /* its neighbours are the caller's, the rest is not looked at in this state */
}

/// The first `bytes` of `block` get a descriptor of their own, reserved before; the caller shrinks `block`.
HOT struct block *block_cut_front(struct block_slab *slab, struct block *block, uint64_t bytes)
{
    struct block *front = block_slab_part(slab, block, block->addr, bytes);

    block_link_before(block, front);
    return front;
}

/// The same of its last `bytes`.
HOT struct block *block_cut_back(struct block_slab *slab, struct block *block, uint64_t bytes)
{
    struct block *back = block_slab_part(slab, block, block->addr + block->size - bytes, bytes);

    block_link_after(block, back);
    return back;
}

#endif
