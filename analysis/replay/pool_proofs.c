/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which segments of a history cannot lie in one pool, though they have the same stream and size class: blocks
 * are replayed by their addresses alone, and every alloc is held against the free blocks that best fit would
 * have preferred to the one it got. Such a block was out of reach, so its segment is in another pool; if a
 * new segment was made for the request, that holds for every free block that would have fitted.
 *
 * The hard part is only the bookkeeping: pieces of segments with their neighbours, and per stream and class
 * the free ones in order of (size, address). Called by pools.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENTS_MAX 32768
#define SMALL_MAX (UINT64_C(1) << 20)
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define NO_PIECE UINT32_MAX

struct piece {
    uint64_t addr, bytes;
    uint32_t prev, next; /* in the segment; NO_PIECE */
    uint32_t segment;
    bool is_used;
};

/* Numbers of free pieces of one stream and class, by (bytes, addr). */
struct shelf {
    uint32_t *pieces;
    size_t count, capacity;
};

struct structure {
    const struct history_device *trace;
    const struct replay_places *places;
    struct replay_pool_proofs *proofs;
    struct varve_alloc *rounding;
    uint64_t max_split;
    struct piece *pieces;
    size_t piece_count, piece_capacity;
    uint32_t spare;        /* pieces to be used again, linked by next */
    struct shelf *shelves; /* 2 * stream + is_small */
    size_t shelf_count;
    struct replay_map at; /* address → piece */
};

static uint32_t new_piece(struct structure *structure, uint64_t addr, uint64_t bytes, uint32_t segment)
{
    uint32_t number = structure->spare;

    if (number != NO_PIECE) {
        structure->spare = structure->pieces[number].next;
    } else {
        if (structure->piece_count == structure->piece_capacity) {
            structure->piece_capacity = structure->piece_capacity == 0 ? 256 : 2 * structure->piece_capacity;
            structure->pieces =
                memory_resize(structure->pieces, structure->piece_capacity * sizeof(*structure->pieces));
        }
        number = (uint32_t)structure->piece_count++;
    }
    structure->pieces[number] =
        (struct piece){.addr = addr, .bytes = bytes, .prev = NO_PIECE, .next = NO_PIECE, .segment = segment};
    replay_map_put(&structure->at, addr, number);
    return number;
}

static void drop_piece(struct structure *structure, uint32_t number)
{
    uint64_t value;

    replay_map_take(&structure->at, structure->pieces[number].addr, &value);
    structure->pieces[number].next = structure->spare;
    structure->spare = number;
}

static struct shelf *shelf_of(struct structure *structure, const struct piece *piece)
{
    const struct replay_pool_segment *segment = &structure->proofs->segments[piece->segment];

    return &structure->shelves[2 * (size_t)segment->stream + segment->is_small];
}

/* First place on the shelf that is not below (bytes, addr). */
static size_t shelf_place(const struct structure *structure, const struct shelf *shelf, uint64_t bytes,
                          uint64_t addr)
{
    size_t low = 0;
    size_t high = shelf->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct piece *piece = &structure->pieces[shelf->pieces[middle]];

        if (piece->bytes < bytes || (piece->bytes == bytes && piece->addr < addr)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void shelve(struct structure *structure, uint32_t number)
{
    const struct piece *piece = &structure->pieces[number];
    struct shelf *shelf = shelf_of(structure, piece);
    size_t place;

    if (shelf->count == shelf->capacity) {
        shelf->capacity = shelf->capacity == 0 ? 64 : 2 * shelf->capacity;
        shelf->pieces = memory_resize(shelf->pieces, shelf->capacity * sizeof(*shelf->pieces));
    }
    place = shelf_place(structure, shelf, piece->bytes, piece->addr);
    memmove(&shelf->pieces[place + 1], &shelf->pieces[place], (shelf->count - place) * sizeof(uint32_t));
    shelf->pieces[place] = number;
    shelf->count++;
}

static void unshelve(struct structure *structure, uint32_t number)
{
    const struct piece *piece = &structure->pieces[number];
    struct shelf *shelf = shelf_of(structure, piece);
    size_t place = shelf_place(structure, shelf, piece->bytes, piece->addr);

    shelf->count--;
    memmove(&shelf->pieces[place], &shelf->pieces[place + 1], (shelf->count - place) * sizeof(uint32_t));
}

/* What the choice of `chosen` for `rounded` bytes says about the other free pieces. */
static void prove(struct structure *structure, uint32_t chosen, uint64_t rounded, bool is_new)
{
    const struct piece *piece = &structure->pieces[chosen];
    const struct shelf *shelf = shelf_of(structure, piece);
    size_t place = shelf_place(structure, shelf, rounded, 0);
    size_t end = is_new ? shelf->count : shelf_place(structure, shelf, piece->bytes, piece->addr);

    for (; place < end; place++) {
        const struct piece *other = &structure->pieces[shelf->pieces[place]];
        bool is_fitting = rounded >= structure->max_split || other->bytes < structure->max_split;

        if (other->segment != piece->segment && is_fitting) {
            replay_pool_set_different(structure->proofs, other->segment, piece->segment);
        }
    }
}

static bool is_cut(const struct structure *structure, const struct piece *piece, uint64_t rounded)
{
    uint64_t rest = piece->bytes - rounded;

    return structure->proofs->segments[piece->segment].is_small
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

/* Events within an expandable segment; its pieces prove nothing. */
static bool play_place(struct structure *structure, size_t index)
{
    uint32_t place = structure->places->of_event[index];

    if (place == 0) {
        return false;
    }
    if (structure->trace->events[index].action == HISTORY_ALLOC) {
        note_use(structure, structure->proofs->first_place + place - 1, index);
    } else {
        structure->proofs->of_event[index] = structure->proofs->first_place + place;
    }
    return true;
}

static bool play_alloc(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    struct varve_alloc_forecast forecast;
    struct replay_pool_segment *segment;
    uint32_t number;

    if (found == NULL || varve_alloc_forecast(structure->rounding, event->size, 0, &forecast) != VARVE_OK) {
        return false;
    }
    number = (uint32_t)*found;
    assert(structure->pieces != NULL);
    segment = &structure->proofs->segments[structure->pieces[number].segment];
    if (structure->pieces[number].is_used || structure->pieces[number].bytes < forecast.rounded ||
        segment->stream != event->stream || segment->is_small != (forecast.rounded <= SMALL_MAX)) {
        return false;
    }
    prove(structure, number, forecast.rounded, segment->first_use == REPLAY_NONE);
    unshelve(structure, number);
    if (is_cut(structure, &structure->pieces[number], forecast.rounded)) {
        uint32_t rest =
            new_piece(structure, event->addr + forecast.rounded,
                      structure->pieces[number].bytes - forecast.rounded, structure->pieces[number].segment);
        struct piece *front = &structure->pieces[number];

        front->bytes = forecast.rounded;
        structure->pieces[rest].prev = number;
        structure->pieces[rest].next = front->next;
        if (front->next != NO_PIECE) {
            structure->pieces[front->next].prev = rest;
        }
        front->next = rest;
        shelve(structure, rest);
    }
    structure->pieces[number].is_used = true;
    note_use(structure, structure->pieces[number].segment, index);
    return true;
}

/* `left` takes in `right`, its neighbour behind; neither is on a shelf. */
static void join(struct structure *structure, uint32_t left, uint32_t right)
{
    uint32_t behind = structure->pieces[right].next;

    structure->pieces[left].bytes += structure->pieces[right].bytes;
    structure->pieces[left].next = behind;
    if (behind != NO_PIECE) {
        structure->pieces[behind].prev = left;
    }
    drop_piece(structure, right);
}

static bool play_free(struct structure *structure, const struct history_event *event)
{
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    uint32_t number;
    uint32_t neighbour;

    if (found == NULL) {
        return structure->places->count > 0;
    }
    assert(structure->pieces != NULL);
    if (!structure->pieces[*found].is_used) {
        return false;
    }
    number = (uint32_t)*found;
    structure->pieces[number].is_used = false;
    neighbour = structure->pieces[number].next;
    if (neighbour != NO_PIECE && !structure->pieces[neighbour].is_used) {
        unshelve(structure, neighbour);
        join(structure, number, neighbour);
    }
    neighbour = structure->pieces[number].prev;
    if (neighbour != NO_PIECE && !structure->pieces[neighbour].is_used) {
        unshelve(structure, neighbour);
        join(structure, neighbour, number);
        number = neighbour;
    }
    shelve(structure, number);
    return true;
}

static bool play_segment_alloc(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    uint32_t segment;

    if (replay_map_find(&structure->at, event->addr) != NULL) {
        return false;
    }
    segment = replay_pool_add(structure->proofs, event->addr, event->size, event->stream,
                              event->size == SMALL_SEGMENT, index);
    shelve(structure, new_piece(structure, event->addr, event->size, segment));
    structure->proofs->of_event[index] = segment + 1;
    return true;
}

static bool play_segment_free(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];
    const uint64_t *found = replay_map_find(&structure->at, event->addr);
    const struct piece *piece;
    uint32_t number;

    if (found == NULL) {
        return false;
    }
    number = (uint32_t)*found;
    assert(structure->pieces != NULL);
    piece = &structure->pieces[number];
    if (piece->is_used || piece->prev != NO_PIECE || piece->next != NO_PIECE || piece->bytes != event->size) {
        return false;
    }
    structure->proofs->segments[piece->segment].is_gone = true;
    structure->proofs->of_event[index] = piece->segment + 1;
    unshelve(structure, number);
    drop_piece(structure, number);
    return true;
}

static bool play(struct structure *structure, size_t index)
{
    const struct history_event *event = &structure->trace->events[index];

    switch (event->action) {
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        return play_place(structure, index);
    case HISTORY_ALLOC:
        return structure->places->of_event[index] != 0 ? play_place(structure, index)
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
        uint32_t segment = replay_pool_add(structure->proofs, info->addr, info->bytes,
                                           stream_number(history, info->stream), info->is_small, REPLAY_NONE);
        uint32_t before = NO_PIECE;

        if (info->is_expandable) {
            structure->proofs->segments[segment].is_gone = true; /* its place stands for it */
            continue;
        }
        structure->proofs->segments[segment].first_use = 0;
        structure->proofs->segments[segment].last_use = 0;
        for (size_t j = 0; j < info->block_count; j++) {
            const struct varve_block_info *block = &start->blocks[info->first_block + j];
            uint32_t number = new_piece(structure, block->addr, block->bytes, segment);

            structure->pieces[number].prev = before;
            if (before != NO_PIECE) {
                structure->pieces[before].next = number;
            }
            before = number;
            structure->pieces[number].is_used = block->state != VARVE_BLOCK_INACTIVE;
            if (!structure->pieces[number].is_used) {
                shelve(structure, number);
            }
        }
    }
}

static int reserve(struct structure *structure, const struct history *history,
                   const struct varve_alloc_snapshot *start, struct varve_message *message)
{
    struct replay_pool_proofs *proofs = structure->proofs;

    proofs->capacity = start->segment_count + structure->places->count;
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
    structure->shelf_count = 2 * history->stream_count;
    structure->shelves = memory_resize(NULL, structure->shelf_count * sizeof(*structure->shelves));
    memset(structure->shelves, 0, structure->shelf_count * sizeof(*structure->shelves));
    return VARVE_OK;
}

int replay_pool_prove(const struct history_device *trace, const struct varve_alloc_snapshot *start,
                      const struct history *history, const struct replay_places *places,
                      struct varve_alloc *rounding, struct replay_pool_proofs *proofs,
                      struct varve_message *message)
{
    struct structure structure = {
        .trace = trace,
        .places = places,
        .proofs = proofs,
        .rounding = rounding,
        .spare = NO_PIECE,
        .max_split = UINT64_MAX,
    };
    struct varve_alloc_stats stats;
    int result = reserve(&structure, history, start, message);

    if (result == VARVE_OK) {
        result = varve_alloc_get_device_stats(rounding, &stats);
    }
    if (result == VARVE_OK) {
        structure.max_split = stats.max_split_size < 0 ? UINT64_MAX : (uint64_t)stats.max_split_size;
        take_start(&structure, history, start);
        replay_pool_add_places(proofs, places);
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
        replay_pool_prove_order(trace, proofs);
    }
    for (size_t i = 0; i < structure.shelf_count; i++) {
        free(structure.shelves[i].pieces);
    }
    free(structure.shelves);
    free(structure.pieces);
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
