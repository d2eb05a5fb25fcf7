/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of a layout, grouped into segments as PyTorch's snapshots list them (one entry for each range of
 * an expandable segment that is mapped without a gap), or whole, and the line of characters that shows what a
 * segment's memory is used for. segments_print.c calls it.
 */
#include "analysis/query/segments.h"

#include "trace/trace.h"

#include <string.h>

static void item_take(struct segment_item *item, const struct varve_layout_block *block)
{
    item->end = block->addr + block->extent;
    item->mapped += block->extent;
    item->block_count++;
    if (block->state == VARVE_LAYOUT_FREE) {
        item->largest_free = block->extent > item->largest_free ? block->extent : item->largest_free;
        return;
    }
    item->active += block->size;
    item->requested += block->requested;
    item->allocated += block->state == VARVE_LAYOUT_USED ? block->size : 0;
}

bool segment_next(const struct varve_layout *layout, uint64_t *from, bool whole,
                  struct segment_item *item_out)
{
    struct varve_layout_block block;

    if (!varve_layout_block(layout, *from, &block)) {
        return false;
    }
    *item_out = (struct segment_item){.first = block, .addr = block.addr};
    do {
        item_take(item_out, &block);
    } while (varve_layout_block(layout, item_out->end, &block) && block.segment == item_out->first.segment &&
             (whole || block.addr == item_out->end));
    *from = item_out->end;
    return true;
}

/* Bytes of [addr, addr + extent) that lie in [start, end). */
static uint64_t overlap(uint64_t addr, uint64_t extent, uint64_t start, uint64_t end)
{
    uint64_t low = addr > start ? addr : start;
    uint64_t high = addr + extent < end ? addr + extent : end;

    return high > low ? high - low : 0;
}

static char cell_of(const struct varve_layout *layout, uint64_t start, uint64_t end)
{
    static const char letters[] = {'.', '#', 'p', ' '};
    static const int order[] = {VARVE_LAYOUT_USED, VARVE_LAYOUT_PENDING, VARVE_LAYOUT_FREE, 3};
    uint64_t bytes[4] = {0, 0, 0, end - start};
    struct varve_layout_block block;
    int most = 3;

    for (uint64_t at = start; at < end && varve_layout_block(layout, at, &block);
         at = block.addr + block.extent) {
        uint64_t share = overlap(block.addr, block.extent, start, end);

        bytes[block.state] += share;
        bytes[3] -= share;
    }
    /* of equal shares, the one that is used more */
    for (size_t i = sizeof(order) / sizeof(order[0]); i-- > 0;) {
        most = bytes[order[i]] >= bytes[most] && bytes[order[i]] > 0 ? order[i] : most;
    }
    return letters[most];
}

void segment_map(const struct varve_layout *layout, const struct segment_item *item, char *line,
                 size_t columns)
{
    uint64_t bytes = item->end - item->addr;
    size_t count = bytes / 512 < columns ? (size_t)(bytes / 512) : columns;

    count = count > 0 ? count : 1;
    for (size_t i = 0; i < count; i++) {
        /* in doubles, as bytes times columns may exceed 64 bits */
        uint64_t start = item->addr + (uint64_t)((double)bytes * (double)i / (double)count);
        uint64_t end = item->addr + (uint64_t)((double)bytes * (double)(i + 1) / (double)count);

        line[i] = cell_of(layout, start, end > start ? end : start + 1);
    }
    line[count] = '\0';
}
