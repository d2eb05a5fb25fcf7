/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks are replayed by their addresses alone, and every alloc is compared with the free blocks that best fit
 * would have preferred to the one it got. Such a block was out of reach, so its segment is in another pool; if a
 * new segment was made for the request, that holds for every free block that would have fitted. Two proofs need no
 * blocks: a pool has one expandable segment at a time for each stream and class, and empty_cache releases in a
 * known order: the default pool's large ones, its small ones, then pool after pool, each by (stream, size, address).
 */
#include "analysis/replay/pool_proofs.h"

#include "analysis/base/memory.h"
#include "analysis/replay/map.h"
#include "analysis/replay/scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void set_different(struct replay_pool_proofs *proofs, size_t a, size_t b)
{
    proofs->differ[a * proofs->row_words + b / 64] |= UINT64_C(1) << (b % 64);
    proofs->differ[b * proofs->row_words + a / 64] |= UINT64_C(1) << (a % 64);
}

static uint32_t add_segment(struct replay_pool_proofs *proofs, uint64_t addr, uint64_t bytes, uint16_t stream,
                            bool is_small, size_t made_by)
{
    proofs->segments[proofs->count] = (struct replay_pool_segment){
        .addr = addr,
        .bytes = bytes,
        .stream = stream,
        .is_small = is_small,
        .made_by = made_by,
        .first_use = REPLAY_NONE,
        .last_use = REPLAY_NONE,
    };
    return (uint32_t)proofs->count++;
}

static void add_reservations(struct replay_pool_proofs *proofs,
                             const struct replay_reservations *reservations)
{
    proofs->first_reservation = (uint32_t)proofs->count;
    for (size_t i = 0; i < reservations->count; i++) {
        const struct replay_reservation *reservation = &reservations->items[i];
        uint32_t segment = add_segment(proofs, reservation->base, 0, reservation->stream,
                                       reservation->is_small, reservation->made_by);

        proofs->segments[segment].is_gone = reservation->gone_by != REPLAY_NONE;
        if (reservation->is_start) {
            proofs->segments[segment].first_use = 0;
            proofs->segments[segment].last_use = 0;
        }
        for (size_t j = 0; j < i; j++) {
            const struct replay_reservation *other = &reservations->items[j];

            if (other->stream == reservation->stream && other->is_small == reservation->is_small &&
                replay_reservations_coexist(reservations, i, j)) {
                set_different(proofs, proofs->first_reservation + j, segment);
            }
        }
    }
}

/* Given back in the order in which one pool gives back. */
static bool is_ordered(const struct replay_pool_segment *first, const struct replay_pool_segment *second)
{
    return first->bytes != second->bytes ? first->bytes < second->bytes : first->addr < second->addr;
}

static bool is_release(const struct history_event *event)
{
    return event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP;
}

/* The releases from `begin` on, without anything between them. */
static size_t prove_burst(const struct history_device *trace, struct replay_pool_proofs *proofs, size_t begin)
{
    bool has_small = false;
    size_t i = begin;

    for (; i < trace->event_count && is_release(&trace->events[i]); i = replay_decision(trace, i + 1)) {
        uint32_t number = proofs->of_event[i] - 1;
        struct replay_pool_segment *segment = &proofs->segments[number];

        if (proofs->of_event[i] == 0) {
            continue;
        }
        segment->is_private |= has_small && !segment->is_small;
        has_small |= segment->is_small;
        for (size_t j = begin; j < i; j = replay_decision(trace, j + 1)) {
            uint32_t before = proofs->of_event[j] - 1;
            const struct replay_pool_segment *other = &proofs->segments[before];

            /* expandable ones are ordered by free blocks, which are not known here */
            if (proofs->of_event[j] != 0 && other->bytes > 0 && segment->bytes > 0 &&
                other->stream == segment->stream && other->is_small == segment->is_small &&
                !is_ordered(other, segment)) {
                set_different(proofs, before, number);
                segment->is_private = true; /* the default pool's come first */
            }
        }
    }
    return i;
}

static void prove_order(const struct history_device *trace, struct replay_pool_proofs *proofs)
{
    size_t i = 0;

    while (i < trace->event_count) {
        i = is_release(&trace->events[i]) ? prove_burst(trace, proofs, i) : i + 1;
    }
}

#define SEGMENTS_MAX 32768
#define SMALL_MAX (UINT64_C(1) << 20)
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define NO_BLOCK UINT32_MAX

struct block {
    uint64_t addr, bytes;
    uint32_t prev, next; /* in the segment; NO_BLOCK */
    uint32_t segment;
    bool is_used;
};

/* Numbers of free blocks of one stream and class, by (bytes, addr). */
struct bin {
    uint32_t *blocks;
    size_t count, capacity;
};

struct structure {
    const struct history_device *trace;
    const struct replay_reservations *reservations;
    struct replay_pool_proofs *proofs;
    const struct replay_rounding *rounding;
    uint64_t max_split;
    struct block *blocks;
    size_t block_count, block_capacity;
    uint32_t spare;   /* blocks to be used again, linked by next */
    struct bin *bins; /* 2 * stream + is_small */
    size_t bin_count;
    struct replay_map at; /* address → block */
};

static uint32_t new_block(struct structure *structure, uint64_t addr, uint64_t bytes, uint32_t segment)
{
    uint32_t number = structure->spare;

    if (number != NO_BLOCK) {
        structure->spare = structure->blocks[number].next;
    } else {
        if (structure->block_count == structure->block_capacity) {
            structure->block_capacity = structure->block_capacity == 0 ? 256 : 2 * structure->block_capacity;
            structure->blocks =
                memory_resize(structure->blocks, structure->block_capacity * sizeof(*structure->blocks));
        }
        number = (uint32_t)structure->block_count++;
    }
    structure->blocks[number] =
        (struct block){.addr = addr, .bytes = bytes, .prev = NO_BLOCK, .next = NO_BLOCK, .segment = segment};
    replay_map_put(&structure->at, addr, number);
    return number;
}

static void drop_block(struct structure *structure, uint32_t number)
{
    uint64_t value;

    replay_map_remove(&structure->at, structure->blocks[number].addr, &value);
    structure->blocks[number].next = structure->spare;
    structure->spare = number;
}

static struct bin *bin_of(struct structure *structure, const struct block *block)
{
    const struct replay_pool_segment *segment = &structure->proofs->segments[block->segment];

    return &structure->bins[2 * (size_t)segment->stream + segment->is_small];
}

/* First position in the bin that is not below (bytes, addr). */
static size_t bin_position(const struct structure *structure, const struct bin *bin, uint64_t bytes,
                           uint64_t addr)
{
    size_t low = 0;
    size_t high = bin->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct block *block = &structure->blocks[bin->blocks[middle]];

        if (block->bytes < bytes || (block->bytes == bytes && block->addr < addr)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void bin_insert(struct structure *structure, uint32_t number)
{
    const struct block *block = &structure->blocks[number];
    struct bin *bin = bin_of(structure, block);
    size_t position;

    if (bin->count == bin->capacity) {
        bin->capacity = bin->capacity == 0 ? 64 : 2 * bin->capacity;
        bin->blocks = memory_resize(bin->blocks, bin->capacity * sizeof(*bin->blocks));
    }
    position = bin_position(structure, bin, block->bytes, block->addr);
    memmove(&bin->blocks[position + 1], &bin->blocks[position], (bin->count - position) * sizeof(uint32_t));
    bin->blocks[position] = number;
    bin->count++;
}

static void bin_remove(struct structure *structure, uint32_t number)
{
    const struct block *block = &structure->blocks[number];
    struct bin *bin = bin_of(structure, block);
    size_t position = bin_position(structure, bin, block->bytes, block->addr);

    bin->count--;
    memmove(&bin->blocks[position], &bin->blocks[position + 1], (bin->count - position) * sizeof(uint32_t));
}

/* What the choice of `chosen` for `rounded` bytes says about the other free blocks. */
static void prove(struct structure *structure, uint32_t chosen, uint64_t rounded, bool is_new)
{
    const struct block *block = &structure->blocks[chosen];
    const struct bin *bin = bin_of(structure, block);
    size_t position = bin_position(structure, bin, rounded, 0);
    size_t end = is_new ? bin->count : bin_position(structure, bin, block->bytes, block->addr);

    for (; position < end; position++) {
        const struct block *other = &structure->blocks[bin->blocks[position]];
        bool is_fitting = rounded >= structure->max_split || other->bytes < structure->max_split;

        if (other->segment != block->segment && is_fitting) {
            set_different(structure->proofs, other->segment, block->segment);
        }
    }
}

static bool is_cut(const struct structure *structure, const struct block *block, uint64_t rounded)
{
    uint64_t rest = block->bytes - rounded;

    return structure->proofs->segments[block->segment].is_small
               ? rest >= 512
               : rest > SMALL_MAX && rounded < structure->max_split;
}

static void note_use(struct structure *structure, uint32_t number, size_t index)
{
    struct replay_pool_segment *segment = &structure->proofs->segments[number];

    segment->first_use = segment->first_use == REPLAY_NONE ? index : segment->first_use;
    segment->last_use = index;
    structure->proofs->of_event[index] = number + 1;
}

/* Events within an expandable segment; its blocks prove nothing. */
static bool play_reservation(struct structure *structure, size_t index)
{
    uint32_t reservation = structure->reservations->of_event[index];

    if (reservation == 0) {
        return false;
    }
    if (structure->trace->events[index].action == HISTORY_ALLOC) {
        note_use(structure, structure->proofs->first_reservation + reservation - 1, index);
    } else {
        structure->proofs->of_event[index] = structure->proofs->first_reservation + reservation;
    }
    return true;
}

static bool play_alloc(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    uint64_t rounded = replay_block_size(structure->rounding, event->size);
    struct replay_pool_segment *segment;
    uint32_t number;

    if (found == NULL || rounded == 0) {
        return false;
    }
    number = (uint32_t)*found;
    assert(structure->blocks != NULL);
    segment = &structure->proofs->segments[structure->blocks[number].segment];
    if (structure->blocks[number].is_used || structure->blocks[number].bytes < rounded ||
        segment->stream != event->stream || segment->is_small != (rounded <= SMALL_MAX)) {
        return false;
    }
    prove(structure, number, rounded, segment->first_use == REPLAY_NONE);
    bin_remove(structure, number);
    if (is_cut(structure, &structure->blocks[number], rounded)) {
        uint32_t rest = new_block(structure, event->addr + rounded, structure->blocks[number].bytes - rounded,
                                  structure->blocks[number].segment);
        struct block *front = &structure->blocks[number];

        front->bytes = rounded;
        structure->blocks[rest].prev = number;
        structure->blocks[rest].next = front->next;
        if (front->next != NO_BLOCK) {
            structure->blocks[front->next].prev = rest;
        }
        front->next = rest;
        bin_insert(structure, rest);
    }
    structure->blocks[number].is_used = true;
    note_use(structure, structure->blocks[number].segment, index);
    return true;
}

/* `left` takes in `right`, its neighbour behind; neither is in a bin. */
static void join(struct structure *structure, uint32_t left, uint32_t right)
{
    uint32_t behind = structure->blocks[right].next;

    structure->blocks[left].bytes += structure->blocks[right].bytes;
    structure->blocks[left].next = behind;
    if (behind != NO_BLOCK) {
        structure->blocks[behind].prev = left;
    }
    drop_block(structure, right);
}

static bool play_free(struct structure *structure, const struct history_event *event)
{
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    uint32_t number;
    uint32_t neighbour;

    if (found == NULL) {
        return structure->reservations->count > 0;
    }
    assert(structure->blocks != NULL);
    if (!structure->blocks[*found].is_used) {
        return false;
    }
    number = (uint32_t)*found;
    structure->blocks[number].is_used = false;
    neighbour = structure->blocks[number].next;
    if (neighbour != NO_BLOCK && !structure->blocks[neighbour].is_used) {
        bin_remove(structure, neighbour);
        join(structure, number, neighbour);
    }
    neighbour = structure->blocks[number].prev;
    if (neighbour != NO_BLOCK && !structure->blocks[neighbour].is_used) {
        bin_remove(structure, neighbour);
        join(structure, neighbour, number);
        number = neighbour;
    }
    bin_insert(structure, number);
    return true;
}

static bool play_segment_alloc(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    uint32_t segment;

    if (replay_map_find(&structure->at, event->addr) != NULL) {
        return false;
    }
    segment = add_segment(structure->proofs, event->addr, event->size, event->stream,
                          event->size == SMALL_SEGMENT, index);
    bin_insert(structure, new_block(structure, event->addr, event->size, segment));
    structure->proofs->of_event[index] = segment + 1;
    return true;
}

static bool play_segment_free(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    const struct block *block;
    uint32_t number;

    if (found == NULL) {
        return false;
    }
    number = (uint32_t)*found;
    assert(structure->blocks != NULL);
    block = &structure->blocks[number];
    if (block->is_used || block->prev != NO_BLOCK || block->next != NO_BLOCK || block->bytes != event->size) {
        return false;
    }
    structure->proofs->segments[block->segment].is_gone = true;
    structure->proofs->of_event[index] = block->segment + 1;
    bin_remove(structure, number);
    drop_block(structure, number);
    return true;
}

static bool play(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];

    switch (event->action) {
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        return play_reservation(structure, index);
    case HISTORY_ALLOC:
        return structure->reservations->of_event[index] != 0 ? play_reservation(structure, index)
                                                             : play_alloc(structure, index);
    case HISTORY_FREE_COMPLETED:
        return play_free(structure, event);
    case HISTORY_SEGMENT_ALLOC:
        return play_segment_alloc(structure, index);
    case HISTORY_SEGMENT_FREE:
        return play_segment_free(structure, index);
    default:
        return true;
    }
}

static uint16_t stream_number(const struct history *history, uint64_t handle)
{
    for (size_t i = 0; i < history->stream_count; i++) {
        if (history->streams[i] == handle) {
            return (uint16_t)i;
        }
    }
    return 0;
}

static void take_start(struct structure *structure, const struct history *history,
                       const struct varve_alloc_snapshot *start)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        const struct varve_segment_info *info = &start->segments[i];
        uint32_t segment = add_segment(structure->proofs, info->addr, info->bytes,
                                       stream_number(history, info->stream), info->is_small, REPLAY_NONE);
        uint32_t before = NO_BLOCK;

        if (info->is_expandable) {
            structure->proofs->segments[segment].is_gone = true; /* its reservation stands for it */
            continue;
        }
        structure->proofs->segments[segment].first_use = 0;
        structure->proofs->segments[segment].last_use = 0;
        for (size_t j = 0; j < info->block_count; j++) {
            const struct varve_block_info *block = &start->blocks[info->first_block + j];
            uint32_t number = new_block(structure, block->addr, block->bytes, segment);

            structure->blocks[number].prev = before;
            if (before != NO_BLOCK) {
                structure->blocks[before].next = number;
            }
            before = number;
            structure->blocks[number].is_used = block->state != VARVE_BLOCK_INACTIVE;
            if (!structure->blocks[number].is_used) {
                bin_insert(structure, number);
            }
        }
    }
}

static int reserve(struct structure *structure, const struct history *history,
                   const struct varve_alloc_snapshot *start, struct varve_message *message)
{
    struct replay_pool_proofs *proofs = structure->proofs;

    proofs->capacity = start->segment_count + structure->reservations->count;
    for (size_t i = 0; i < structure->trace->event_count; i++) {
        proofs->capacity += structure->trace->events[i].action == HISTORY_SEGMENT_ALLOC ? 1 : 0;
    }
    if (proofs->capacity > SEGMENTS_MAX) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "the private pools of %zu segments cannot be told apart; %d is the most",
                                 proofs->capacity, SEGMENTS_MAX);
    }
    proofs->row_words = proofs->capacity / 64 + 1;
    proofs->segments = memory_resize(NULL, (proofs->capacity + 1) * sizeof(*proofs->segments));
    proofs->differ = memory_resize(NULL, (proofs->capacity + 1) * proofs->row_words * sizeof(uint64_t));
    memset(proofs->differ, 0, (proofs->capacity + 1) * proofs->row_words * sizeof(uint64_t));
    proofs->of_event = memory_resize(NULL, (structure->trace->event_count + 1) * sizeof(uint32_t));
    memset(proofs->of_event, 0, (structure->trace->event_count + 1) * sizeof(uint32_t));
    structure->bin_count = 2 * history->stream_count;
    structure->bins = memory_resize(NULL, structure->bin_count * sizeof(*structure->bins));
    memset(structure->bins, 0, structure->bin_count * sizeof(*structure->bins));
    return VARVE_OK;
}

int replay_pool_prove(const struct history_device *trace, const struct varve_alloc_snapshot *start,
                      const struct history *history, const struct replay_reservations *reservations,
                      const struct replay_rounding *rounding, struct replay_pool_proofs *proofs,
                      struct varve_message *message)
{
    struct structure structure = {
        .trace = trace,
        .reservations = reservations,
        .proofs = proofs,
        .rounding = rounding,
        .spare = NO_BLOCK,
        .max_split = rounding->max_split,
    };
    int result = reserve(&structure, history, start, message);

    if (result == VARVE_OK) {
        take_start(&structure, history, start);
        add_reservations(proofs, reservations);
    }
    for (size_t i = 0; i < trace->event_count && result == VARVE_OK; i++) {
        if (!play(&structure, i)) {
            result = varve_message_set(message, VARVE_ERROR_FORMAT,
                                       "event %zu (address 0x%" PRIx64 ", %" PRIu64
                                       " bytes) is not possible after the events before it",
                                       i, trace->events[i].addr, trace->events[i].size);
        }
    }
    if (result == VARVE_OK && proofs->has_plain_releases) {
        prove_order(trace, proofs);
    }
    for (size_t i = 0; i < structure.bin_count; i++) {
        free(structure.bins[i].blocks);
    }
    free(structure.bins);
    free(structure.blocks);
    replay_map_free(&structure.at);
    return result;
}

void replay_pool_proofs_free(struct replay_pool_proofs *proofs)
{
    free(proofs->segments);
    free(proofs->differ);
    free(proofs->of_event);
    *proofs = (struct replay_pool_proofs){0};
}
