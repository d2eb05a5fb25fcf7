/* SPDX-License-Identifier: Apache-2.0 */
/* The views `hole` and `empty_segment` say the same of the end of a trace. */
#include "analysis/query/segment_query.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

#define POOLS_OWN 2 /* numbers of the allocator's own pools, large and small, are below */

static uint64_t cached_memory_free_bytes(const struct segment_item *item)
{
    return item->mapped > item->active ? item->mapped - item->active : 0;
}

static int cached_memory_compare(uint64_t a_size, uint64_t b_size, uint64_t a_addr, uint64_t b_addr)
{
    if (a_size != b_size) {
        return a_size > b_size ? -1 : 1;
    }
    return a_addr < b_addr ? -1 : a_addr > b_addr;
}

static int cached_memory_compare_segments(const void *a_untyped, const void *b_untyped)
{
    const struct segment_item *a = a_untyped;
    const struct segment_item *b = b_untyped;
    return cached_memory_compare(cached_memory_free_bytes(a), cached_memory_free_bytes(b), a->addr, b->addr);
}

static int compare_holes(const void *a_untyped, const void *b_untyped)
{
    const struct hole *a = a_untyped;
    const struct hole *b = b_untyped;
    return cached_memory_compare(a->size, b->size, a->addr, b->addr);
}

static void add_hole(struct cached *cached, const struct hole *hole)
{
    if (hole->segment.first.is_implied) {
        return; /* what is free there need not be reserved */
    }
    cached->holes = memory_grow(cached->holes, &cached->hole_capacity, cached->hole_count, sizeof(cached->holes[0]));
    cached->holes[cached->hole_count++] = *hole;
    cached->sums.holes++;
    cached->sums.in_holes += hole->size;
    cached->sums.largest_hole = hole->size > cached->sums.largest_hole ? hole->size : cached->sums.largest_hole;
}

/* Holes of a segment with blocks in use, and how many those are. */
static void cached_memory_take_blocks(struct cached *cached, const struct varve_layout *layout,
                                      const struct segment_item *item)
{
    struct varve_layout_block block;
    struct hole hole = {.segment = *item};
    struct varve_layout_block last = {0}; /* in use */
    for (uint64_t at = item->addr; at < item->end && varve_layout_block(layout, at, &block);
         at = block.addr + block.extent) {
        bool touches = hole.size > 0 && hole.addr + hole.size == block.addr;
        if (block.state == VARVE_LAYOUT_FREE && touches) {
            hole.size += block.extent;
            continue;
        }
        if (hole.size > 0) {
            hole.behind = touches ? block : (struct varve_layout_block){0};
            add_hole(cached, &hole);
            hole.size = 0;
        }
        if (block.state == VARVE_LAYOUT_FREE) {
            hole = (struct hole){.addr = block.addr, .size = block.extent, .segment = *item};
            hole.before =
                last.extent > 0 && last.addr + last.extent == block.addr ? last : (struct varve_layout_block){0};
        } else {
            last = block;
            cached->sums.used_blocks += block.state == VARVE_LAYOUT_USED;
            cached->sums.pending_blocks += block.state == VARVE_LAYOUT_PENDING;
        }
    }
    if (hole.size > 0) {
        add_hole(cached, &hole);
    }
}

static void cached_memory_add_item(struct segment_item **items, size_t *count, size_t *capacity,
                                   const struct segment_item *item)
{
    *items = memory_grow(*items, capacity, *count, sizeof(**items));
    (*items)[(*count)++] = *item;
}

static void cached_memory_take_segment(struct cached *cached, const struct varve_layout *layout,
                                       const struct segment_item *item)
{
    struct cached_sums *sums = &cached->sums;
    sums->used += item->allocated;
    sums->pending += item->active - item->allocated;
    if (item->first.is_implied) {
        uint64_t before = sums->used_blocks + sums->pending_blocks;
        cached_memory_take_blocks(cached, layout, item);
        sums->implied_bytes += item->active;
        sums->implied_blocks += sums->used_blocks + sums->pending_blocks - before;
        return;
    }
    sums->segments++;
    sums->reserved += item->mapped;
    if (item->active > 0) {
        cached_memory_add_item(&cached->used, &cached->used_count, &cached->used_capacity, item);
        cached_memory_take_blocks(cached, layout, item);
    } else if (item->first.pool >= POOLS_OWN) {
        cached_memory_add_item(&cached->kept, &cached->kept_count, &cached->kept_capacity, item);
        sums->kept_segments++;
        sums->in_kept += item->mapped;
    } else {
        cached_memory_add_item(&cached->empty, &cached->empty_count, &cached->empty_capacity, item);
        sums->empty_segments++;
        sums->in_empty += item->mapped;
        sums->largest_empty = item->mapped > sums->largest_empty ? item->mapped : sums->largest_empty;
    }
}

static void cached_memory_sort(void *items, size_t count, size_t item_bytes,
                               int (*compare_items)(const void *, const void *))
{
    if (count > 1) {
        qsort(items, count, item_bytes, compare_items);
    }
}

void cached_load(struct cached *cached, const struct varve_layout *layout)
{
    *cached = (struct cached){0};
    struct segment_item item;
    for (uint64_t from = 0; segment_next(layout, &from, true, &item);) {
        cached_memory_take_segment(cached, layout, &item);
    }
    cached_memory_sort(cached->holes, cached->hole_count, sizeof(cached->holes[0]), compare_holes);
    cached_memory_sort(cached->empty, cached->empty_count, sizeof(cached->empty[0]), cached_memory_compare_segments);
    cached_memory_sort(cached->kept, cached->kept_count, sizeof(cached->kept[0]), cached_memory_compare_segments);
    cached_memory_sort(cached->used, cached->used_count, sizeof(cached->used[0]), cached_memory_compare_segments);
}

void cached_free(struct cached *cached)
{
    free(cached->holes);
    free(cached->empty);
    free(cached->kept);
    free(cached->used);
    *cached = (struct cached){0};
}
