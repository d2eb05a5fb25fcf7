/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * Random histories of caching allocators, with the truth beside them: plain lists of segments and blocks that
 * are searched from end to end. Each step changes the lists and emits it as events; with `is_silent` without
 * splits and merges, as PyTorch's traces do. For unit/trace/model/test_derived_tables.c and
 * unit/analysis/cli/test_command_segments.c.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_BLOCKS_MODEL_H
#define VARVE_TESTS_SUPPORT_DERIVE_BLOCKS_MODEL_H

#include "trace/record.h"
#include "trace/layout.h"
#include "trace/record_fold.h"
#include "support/random.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_BLOCKS 4096
#define MODEL_SEGMENTS 64
#define MODEL_UNIT 512U
#define MODEL_PIECE (64U * MODEL_UNIT) /* what expandable segments grow by */

struct model_block {
    uint64_t addr, size, requested;
    int segment; /* index */
    int state;   /* enum varve_layout_state; -1: unmapped */
};

struct model_segment {
    uint64_t addr, end;
    bool is_used, is_expandable;
    uint32_t number;
    uint16_t stream, pool;
};

struct model_device {
    struct model_block blocks[MODEL_BLOCKS]; /* by address */
    int block_count;
    struct model_segment segments[MODEL_SEGMENTS];
    uint32_t numbers; /* segments given so far */
    uint64_t next_addr, dev_seq;
    unsigned index;
    bool is_silent; /* no splits and merges, no segment numbers */
    uint64_t *random;
    void (*emit)(void *context, const struct varve_record *record);
    void *context;
};

static inline uint64_t model_random(struct model_device *device, uint64_t limit)
{
    return random_below(device->random, limit);
}

static inline void model_emit(struct model_device *device, enum varve_kind kind, enum varve_cause cause,
                              const struct model_segment *segment, uint64_t addr, uint64_t size, uint64_t requested,
                              uint64_t arg)
{
    struct varve_record record = {
        .addr = addr,
        .size = size,
        .requested = requested,
        .arg = arg,
        .id_stream = segment != NULL ? (uint64_t)segment->stream << 48 : 0,
        .dev_seq_kind_flags = varve_record_tag(device->is_silent ? 0 : ++device->dev_seq, kind, 0),
        .pool = segment != NULL ? segment->pool : 0,
        .device = (uint8_t)device->index,
        .cause = (uint8_t)cause,
        .callsite = kind == VARVE_KIND_ALLOC ? (uint32_t)model_random(device, 6) : 0,
    };
    bool is_reported = kind == VARVE_KIND_SPLIT || kind == VARVE_KIND_MERGE;
    if (!device->is_silent || !is_reported) {
        device->emit(device->context, &record);
    }
}

static inline uint64_t model_number(const struct model_device *device, const struct model_segment *segment)
{
    return device->is_silent ? 0 : segment->number;
}

static inline void model_insert(struct model_device *device, int at, struct model_block block)
{
    assert(device->block_count < MODEL_BLOCKS);
    memmove(&device->blocks[at + 1], &device->blocks[at], (size_t)(device->block_count - at) * sizeof(block));
    device->blocks[at] = block;
    device->block_count++;
}

static inline void model_delete(struct model_device *device, int at)
{
    device->block_count--;
    memmove(&device->blocks[at], &device->blocks[at + 1],
            (size_t)(device->block_count - at) * sizeof(device->blocks[0]));
}

static inline bool model_may_merge(const struct model_device *device, int at, int with)
{
    return with >= 0 && with < device->block_count && device->blocks[with].state == device->blocks[at].state &&
           device->blocks[with].segment == device->blocks[at].segment;
}

/* The block absorbs its neighbours before and after it; returns where it is then. */
static inline int model_merge(struct model_device *device, int at)
{
    for (int side = 0; side < 2; side++) {
        int with = side == 0 ? at - 1 : at + 1;
        if (!model_may_merge(device, at, with)) {
            continue;
        }
        struct model_block *block = &device->blocks[at];
        const struct model_block absorbed = device->blocks[with];
        block->addr = side == 0 ? absorbed.addr : block->addr;
        block->size += absorbed.size;
        if (block->state == VARVE_LAYOUT_FREE) {
            model_emit(device, VARVE_KIND_MERGE, side == 0 ? VARVE_CAUSE_PREVIOUS : VARVE_CAUSE_NEXT,
                       &device->segments[block->segment], block->addr, block->size, absorbed.size, absorbed.addr);
        }
        model_delete(device, with);
        at -= side == 0;
    }
    return at;
}

/* A segment, or address space for an expandable one, behind all others. */
static inline int model_segment_new(struct model_device *device, uint64_t size, bool is_expandable)
{
    int index = 0;
    while (index < MODEL_SEGMENTS && device->segments[index].is_used) {
        index++;
    }
    if (index == MODEL_SEGMENTS) {
        return -1;
    }
    struct model_segment *segment = &device->segments[index];
    *segment = (struct model_segment){.addr = device->next_addr,
                                      .end = device->next_addr + size,
                                      .is_used = true,
                                      .is_expandable = is_expandable,
                                      .number = ++device->numbers,
                                      .stream = (uint16_t)model_random(device, 3),
                                      .pool = (uint16_t)model_random(device, 4)};
    device->next_addr += size + MODEL_PIECE;
    model_insert(
        device, device->block_count,
        (struct model_block){
            .addr = segment->addr, .size = size, .segment = index, .state = is_expandable ? -1 : VARVE_LAYOUT_FREE});
    if (!is_expandable) {
        model_emit(device, VARVE_KIND_SEGMENT_ALLOC, VARVE_CAUSE_NONE, segment, segment->addr, size, size,
                   model_number(device, segment));
    }
    return index;
}

/* Grow an expandable segment at the front of one of its unmapped blocks. */
static inline void model_map(struct model_device *device, int at)
{
    struct model_block *block = &device->blocks[at];
    struct model_segment *segment = &device->segments[block->segment];
    uint64_t size = MODEL_PIECE * (1 + model_random(device, 2));
    size = size < block->size ? size : block->size;
    uint64_t addr = block->addr;
    if (size < block->size) {
        model_insert(device, at + 1,
                     (struct model_block){
                         .addr = addr + size, .size = block->size - size, .segment = block->segment, .state = -1});
    }
    block->size = size;
    block->state = VARVE_LAYOUT_FREE;
    model_merge(device, at);
    model_emit(device, VARVE_KIND_SEGMENT_MAP, VARVE_CAUSE_NONE, segment, addr, size, 0, model_number(device, segment));
}

/* Unmap the whole pieces inside a free block. */
static inline void model_unmap(struct model_device *device, int at)
{
    struct model_block block = device->blocks[at];
    struct model_segment *segment = &device->segments[block.segment];
    uint64_t start = segment->addr + (block.addr - segment->addr + MODEL_PIECE - 1) / MODEL_PIECE * MODEL_PIECE;
    uint64_t end = segment->addr + (block.addr + block.size - segment->addr) / MODEL_PIECE * MODEL_PIECE;
    if (start >= end) {
        return;
    }
    model_delete(device, at);
    if (block.addr + block.size > end) {
        model_insert(
            device, at,
            (struct model_block){.addr = end, .size = block.addr + block.size - end, .segment = block.segment});
    }
    model_insert(
        device, at,
        (struct model_block){
            .addr = start, .size = end - start, .requested = block.requested, .segment = block.segment, .state = -1});
    int middle = at;
    if (block.addr < start) {
        model_insert(device, at,
                     (struct model_block){.addr = block.addr, .size = start - block.addr, .segment = block.segment});
        middle = at + 1;
    }
    middle = model_merge(device, middle);
    model_emit(device, VARVE_KIND_SEGMENT_UNMAP, VARVE_CAUSE_EMPTY_CACHE, segment, start, end - start, 0,
               model_number(device, segment));
    if (device->blocks[middle].size == segment->end - segment->addr) {
        model_delete(device, middle);
        segment->is_used = false;
    }
}

static inline void model_alloc(struct model_device *device, int at)
{
    struct model_block *block = &device->blocks[at];
    struct model_segment *segment = &device->segments[block->segment];
    uint64_t units = 1 + model_random(device, block->size / MODEL_UNIT);
    uint64_t size = MODEL_UNIT * (model_random(device, 3) == 0 ? units : 1 + units / 4);
    uint64_t requested = device->is_silent ? size : size - model_random(device, MODEL_UNIT);
    uint64_t from = block->size;
    if (size < block->size) {
        model_emit(device, VARVE_KIND_SPLIT, VARVE_CAUSE_NONE, segment, block->addr, size, block->size - size,
                   model_number(device, segment));
        block->addr += size; /* the old object is the remainder */
        block->size -= size;
        model_insert(device, at,
                     (struct model_block){.addr = block->addr - size, .size = size, .segment = block->segment});
        block = &device->blocks[at];
    }
    block->state = VARVE_LAYOUT_USED;
    block->requested = requested;
    model_emit(device, VARVE_KIND_ALLOC, VARVE_CAUSE_CACHE, segment, block->addr, size, requested,
               device->is_silent ? 0 : segment->number | (from / MODEL_UNIT) << 32);
}

static inline void model_free(struct model_device *device, int at)
{
    struct model_block *block = &device->blocks[at];
    struct model_segment *segment = &device->segments[block->segment];
    uint64_t number = model_number(device, segment);
    bool was_used = block->state == VARVE_LAYOUT_USED;
    if (was_used) {
        block->state = VARVE_LAYOUT_PENDING;
        model_emit(device, VARVE_KIND_FREE_REQUESTED, VARVE_CAUSE_NONE, segment, block->addr, block->size,
                   block->requested, number);
    }
    if (!was_used || model_random(device, 4) != 0) {
        block->state = VARVE_LAYOUT_FREE;
        model_emit(device, VARVE_KIND_FREE_COMPLETED, VARVE_CAUSE_NONE, segment, block->addr, block->size,
                   block->requested, number);
        model_merge(device, at);
    }
}

static inline void model_release(struct model_device *device, int at)
{
    const struct model_block block = device->blocks[at];
    struct model_segment *segment = &device->segments[block.segment];
    if (segment->is_expandable) {
        model_unmap(device, at);
    } else if (block.size == segment->end - segment->addr) {
        model_emit(device, VARVE_KIND_SEGMENT_FREE, VARVE_CAUSE_GC, segment, block.addr, block.size, 0,
                   model_number(device, segment));
        model_delete(device, at);
        segment->is_used = false;
    }
}

static inline void model_init(struct model_device *device, unsigned index, bool is_silent, uint64_t *random,
                              void (*emit)(void *context, const struct varve_record *record), void *context)
{
    *device = (struct model_device){.index = index,
                                    .is_silent = is_silent,
                                    .next_addr = UINT64_C(0x7f0000000000) + ((uint64_t)index << 36),
                                    .random = random,
                                    .emit = emit,
                                    .context = context};
}

/* One decision at random; `limit`: blocks that it may grow to. */
static inline void model_step(struct model_device *device, int limit)
{
    bool is_full = device->block_count > limit;
    if (device->block_count == 0 || (!is_full && model_random(device, 60) == 0)) {
        bool is_expandable = model_random(device, 3) == 0;
        model_segment_new(device, MODEL_PIECE * (is_expandable ? 24 : 1 + model_random(device, 8)), is_expandable);
        return;
    }
    int at = (int)model_random(device, (uint64_t)device->block_count);
    switch (device->blocks[at].state) {
    case -1:
        if (!is_full) {
            model_map(device, at);
        }
        break;
    case VARVE_LAYOUT_FREE:
        if (is_full || model_random(device, 30) == 0) {
            model_release(device, at);
        } else {
            model_alloc(device, at);
        }
        break;
    default:
        if (is_full || model_random(device, 8) < 5) {
            model_free(device, at);
        }
        break;
    }
}

#endif
