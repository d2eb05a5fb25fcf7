/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an allocator holds, for a tracer whose trace begins in mid-run: every range with memory and its
 * blocks, by address, numbered as in the records. All of it is told with the lock held, so that no decision
 * falls between it and the records around it. Nothing is allocated meanwhile, since whatever the tracer's
 * thread asks for would show up in the trace: the blocks that begin a range are sorted as a list through
 * `planned_next`, which is free as no plan outlives its hold of the lock.
 */
#include "alloc/core/allocator.h"

#define RUNS 48 /* of 2^i blocks each: more than there can be */

/* Sorted lists, each twice as long as the one before; NULL where there is none. */
struct beginnings {
    struct block *runs[RUNS];
};

static bool begins_range(const struct block *block)
{
    return block->is_mapped && (block->prev == NULL || !block->prev->is_mapped);
}

static struct block *runs_join(struct block *a, struct block *b)
{
    struct block *first = NULL;
    struct block **link = &first;

    while (a != NULL && b != NULL) {
        struct block **lower = a->addr < b->addr ? &a : &b;

        *link = *lower;
        link = &(*lower)->planned_next;
        *lower = *link;
    }
    *link = a != NULL ? a : b;
    return first;
}

static void beginnings_add(struct beginnings *beginnings, struct block *block)
{
    struct block *run = block;
    size_t i = 0;

    if (!begins_range(block)) {
        return;
    }
    block->planned_next = NULL;
    for (; beginnings->runs[i] != NULL; i++) {
        run = runs_join(beginnings->runs[i], run);
        beginnings->runs[i] = NULL;
    }
    beginnings->runs[i] = run;
}

/* Every block is in use, and then in the map, or free, and then in an index. */
static struct block *ranges_sorted(struct varve_alloc *alloc)
{
    struct beginnings beginnings = {{NULL}};
    struct block *sorted = NULL;

    for (uint64_t i = 0; alloc->map.count > 0 && i < UINT64_C(1) << alloc->map.bits; i++) {
        if (alloc->map.slots[i].block != NULL) {
            beginnings_add(&beginnings, alloc->map.slots[i].block);
        }
    }
    for (struct pool *pool = pool_each(alloc, NULL); pool != NULL; pool = pool_each(alloc, pool)) {
        for (struct block *block = free_index_first(&pool->index); block != NULL;
             block = free_index_following(&pool->index, block)) {
            beginnings_add(&beginnings, block);
        }
    }
    for (size_t i = 0; i < RUNS; i++) {
        sorted = runs_join(beginnings.runs[i], sorted);
    }
    return sorted;
}

static enum varve_layout_state state_of(const struct block *block)
{
    if (block->is_allocated) {
        return VARVE_LAYOUT_USED;
    }
    return block->is_free ? VARVE_LAYOUT_FREE : VARVE_LAYOUT_PENDING;
}

static void tell_range(const struct varve_alloc *alloc, const struct block *first,
                       const struct varve_state_sink *sink)
{
    struct varve_mirror_segment range = {
        .addr = first->addr,
        .segment = first->segment_id,
        .stream = index_stream_number(first->home),
        .pool = block_pool(first)->number,
        .device = (uint8_t)alloc->device->index,
        .is_expandable = first->expandable != NULL,
    };

    for (const struct block *block = first; block != NULL && block->is_mapped; block = block->next) {
        range.size += block->size;
    }
    if (sink->segment != NULL) {
        sink->segment(&range);
    }
    for (const struct block *block = first; sink->block != NULL && block != NULL && block->is_mapped;
         block = block->next) {
        const struct varve_mirror_block told = {
            .id = block->id,
            .addr = block->addr,
            .size = block->size,
            .requested = block->requested,
            .segment = range.segment,
            .stream = range.stream,
            .pool = range.pool,
            .device = range.device,
            .state = (uint8_t)state_of(block),
        };
        sink->block(&told);
    }
}

static void dump(struct varve_state_source *source, const struct varve_state_sink *sink)
{
    struct varve_alloc *alloc =
        (struct varve_alloc *)((char *)source - offsetof(struct varve_alloc, state_source));
    struct block *next;

    alloc_lock(alloc);
    for (struct block *first = ranges_sorted(alloc); first != NULL; first = next) {
        next = first->planned_next;
        first->planned_next = NULL;
        tell_range(alloc, first, sink);
    }
    alloc_unlock(alloc);
}

void statedump_open(struct varve_alloc *alloc)
{
    if (alloc->recorder != NULL) {
        alloc->state_source.dump = dump;
        varve_state_source_add(&alloc->state_source);
    }
}

void statedump_close(struct varve_alloc *alloc)
{
    if (alloc->state_source.dump != NULL) {
        varve_state_source_remove(&alloc->state_source);
    }
}
