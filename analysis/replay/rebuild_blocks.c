/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocks of a start state, without gaps, from those that were in use. The hard part is the size of a
 * block that is gone at the end: it is at least what its request rounds to, and a large one may be up to
 * 1 MiB larger, since that much is not split off. Three things tell: what was allocated right behind it while
 * it lived began where it ended; free memory behind it of 1 MiB or less is its own, since a large pool never
 * has a free block that small; and if neither does, every size up to a bound is possible, the least is taken,
 * and the replay may find it too small (attempt.c). Called by start.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <inttypes.h>
#include <stdlib.h>

#define UNSPLIT_MAX (UINT64_C(1) << 20) /* PyTorch splits a large block if more than that is left */
#define GRAIN 512
#define END_UNKNOWN UINT64_MAX

/* The last block that does not begin behind an address; its number, or SIZE_MAX. */
static size_t block_before(const struct replay_tiling *tiling, uint64_t addr)
{
    size_t low = 0;
    size_t high = tiling->block_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (tiling->blocks[middle].addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

/* Where a block of unknown size ended: what was first allocated in the free space behind it begins there. The
 * answer is kept in allocation_id. */
static void find_ends(const struct replay_tiling *tiling)
{
    uint64_t *limits = memory_resize(NULL, (tiling->block_count + 1) * sizeof(*limits)); /* of segments */
    size_t block = 0;

    for (size_t i = 0; i < tiling->segment_count; i++) {
        uint64_t end = tiling->segments[i].addr + tiling->segments[i].bytes;

        while (block < tiling->block_count && tiling->blocks[block].addr < end) {
            limits[block++] = end;
        }
    }
    for (size_t i = 0; i < tiling->trace->event_count; i++) {
        const struct history_event *event = &tiling->trace->events[i];
        bool is_alloc = event->action == HISTORY_ALLOC;
        size_t before = is_alloc || event->action == HISTORY_FREE_COMPLETED
                            ? block_before(tiling, event->addr)
                            : SIZE_MAX;
        struct varve_block_info *left;

        if (before >= block || event->addr >= limits[before]) {
            continue;
        }
        left = &tiling->blocks[before];
        if (left->bytes == 0 && left->allocation_id == 0 && (is_alloc || event->addr == left->addr)) {
            left->allocation_id = is_alloc ? event->addr : END_UNKNOWN;
        }
    }
    free(limits);
}

/* Size of a block that had `room` up to the next one; allocation_id: the most that it can have been, if that
 * is not known. */
static int block_bytes(const struct replay_tiling *tiling, const struct varve_segment_info *segment,
                       struct varve_block_info *block, uint64_t room)
{
    struct varve_alloc_forecast forecast;
    uint64_t end = block->allocation_id;
    uint64_t rest;
    int result;

    block->allocation_id = 0;
    if (block->bytes != 0) {
        return VARVE_OK;
    }
    result = varve_alloc_forecast(tiling->rounding, block->requested, 0, &forecast);
    block->bytes = forecast.rounded;
    if (result != VARVE_OK || segment->is_small || segment->is_expandable || forecast.rounded > room) {
        return result;
    }
    if (end != END_UNKNOWN && end > block->addr && end - block->addr <= room) {
        room = end - block->addr;
    }
    rest = room - forecast.rounded;
    if (rest <= UNSPLIT_MAX || forecast.rounded >= tiling->max_split) {
        block->bytes = room;
    } else if (end == END_UNKNOWN) {
        /* free blocks are larger than UNSPLIT_MAX, too */
        block->allocation_id =
            forecast.rounded +
            (rest - UNSPLIT_MAX - GRAIN < UNSPLIT_MAX ? rest - UNSPLIT_MAX - GRAIN : UNSPLIT_MAX);
    }
    return VARVE_OK;
}

static void put_block(struct varve_alloc_snapshot *start, struct varve_segment_info *segment,
                      struct varve_block_info block)
{
    start->blocks[start->block_count++] = block;
    segment->block_count++;
    if (block.state != VARVE_BLOCK_INACTIVE) {
        segment->allocated_bytes += block.bytes;
        segment->active_bytes += block.bytes;
        segment->requested_bytes += block.requested;
    }
}

/* Blocks of one segment without gaps; `*next` is the first block that is not below it. */
static int tile(const struct replay_tiling *tiling, struct varve_alloc_snapshot *start,
                struct varve_segment_info *segment, size_t *next)
{
    uint64_t end = segment->addr + segment->bytes;
    uint64_t addr = segment->addr;

    segment->first_block = start->block_count;
    segment->block_count = 0;
    while (addr < end) {
        bool has_block = *next < tiling->block_count && tiling->blocks[*next].addr < end;
        struct varve_block_info block = {.addr = addr, .bytes = end - addr};
        uint64_t limit = end;
        int result;

        if (has_block && tiling->blocks[*next].addr != addr) {
            if (tiling->blocks[*next].addr < addr) {
                return VARVE_ERROR_FORMAT;
            }
            block.bytes = tiling->blocks[*next].addr - addr;
        } else if (has_block) {
            block = tiling->blocks[(*next)++];
            if (*next < tiling->block_count && tiling->blocks[*next].addr < end) {
                limit = tiling->blocks[*next].addr;
            }
            result = block_bytes(tiling, segment, &block, limit - addr);
            if (result != VARVE_OK) {
                return result;
            }
        }
        if (block.bytes == 0 || block.bytes > limit - addr) {
            return VARVE_ERROR_FORMAT;
        }
        put_block(start, segment, block);
        addr += block.bytes;
    }
    return VARVE_OK;
}

int replay_tile(const struct replay_tiling *tiling, struct varve_alloc_snapshot *start,
                struct varve_message *message)
{
    size_t next = 0;

    find_ends(tiling);
    start->segments = tiling->segments;
    start->segment_count = tiling->segment_count;
    start->blocks =
        memory_resize(NULL, (2 * tiling->block_count + tiling->segment_count + 1) * sizeof(*start->blocks));
    for (size_t i = 0; i < start->segment_count; i++) {
        int result = tile(tiling, start, &start->segments[i], &next);

        if (result != VARVE_OK) {
            return varve_message_set(message, result,
                                     "undoing all events leaves blocks in the segment at 0x%" PRIx64
                                     " that overlap: history and segments do not belong together",
                                     start->segments[i].addr);
        }
    }
    if (next < tiling->block_count) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "undoing all events leaves a block at 0x%" PRIx64 " outside of all segments",
                                 tiling->blocks[next].addr);
    }
    return VARVE_OK;
}
