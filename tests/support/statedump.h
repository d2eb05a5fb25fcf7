/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Takes what a dump of all sources of state tells, for the tests of the dumps of allocators.
 */
#ifndef VARVE_TESTS_SUPPORT_STATEDUMP_H
#define VARVE_TESTS_SUPPORT_STATEDUMP_H

#include "alloc/alloc.h"
#include "trace/recorder/state_sources.h"

#define TOLD_MAX 32768U

static struct {
    struct varve_mirror_segment segments[TOLD_MAX];
    struct varve_mirror_block blocks[TOLD_MAX];
    size_t first_block[TOLD_MAX]; /* of each segment */
    size_t segment_count, block_count;
} told;

static inline void take_segment(const struct varve_mirror_segment *segment)
{
    if (told.segment_count < TOLD_MAX) {
        told.first_block[told.segment_count] = told.block_count;
        told.segments[told.segment_count++] = *segment;
    }
}

static inline void take_block(const struct varve_mirror_block *block)
{
    if (told.block_count < TOLD_MAX) {
        told.blocks[told.block_count++] = *block;
    }
}

static const struct varve_state_sink told_sink = {.segment = take_segment, .block = take_block};

static inline void ask(void)
{
    told.segment_count = 0;
    told.block_count = 0;
    state_sources_dump(&told_sink);
}

static inline size_t blocks_end(size_t segment)
{
    return segment + 1 < told.segment_count ? told.first_block[segment + 1] : told.block_count;
}

/* Blocks fill their segment without a gap, and are of it. */
static inline bool is_whole(size_t number)
{
    const struct varve_mirror_segment *segment = &told.segments[number];
    uint64_t addr = segment->addr;

    for (size_t i = told.first_block[number]; i < blocks_end(number); i++) {
        const struct varve_mirror_block *block = &told.blocks[i];
        if (block->addr != addr || block->size == 0 || block->segment != segment->segment ||
            block->device != segment->device || block->pool != segment->pool ||
            block->stream != segment->stream || (block->id == 0) != (block->state == VARVE_LAYOUT_FREE)) {
            return false;
        }
        addr += block->size;
    }
    return addr == segment->addr + segment->size && addr > segment->addr;
}

#endif
