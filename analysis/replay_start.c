/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state before a history that was switched on late: the segments and blocks at its end, with every event
 * undone from the last to the first. The hard part is the size of a block that was there at the beginning and
 * is gone at the end: it is at least what its request rounds to, and a large block may be up to 1 MiB larger,
 * since that much is not split off. What was allocated right behind such a block while it lived tells where
 * it ended. Called by replay.c.
 */
#include "analysis/replay_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define UNSPLIT_MAX (UINT64_C(1) << 20) /* PyTorch splits a large block if more than that is left */
#define END_UNKNOWN UINT64_MAX

struct state {
    const struct history *history;
    const struct history_device *trace;
    struct varve_segment_info *segments;
    size_t segment_count, segment_capacity;
    struct varve_block_info *blocks; /* bytes 0: unknown */
    size_t block_count, block_capacity;
    struct replay_map segment_at, block_at; /* address → number; what is gone is not in there */
};

static struct varve_segment_info *add_segment(struct state *state, uint64_t addr, uint64_t bytes)
{
    struct varve_segment_info *segment;

    if (state->segment_count == state->segment_capacity) {
        state->segment_capacity = state->segment_capacity == 0 ? 64 : 2 * state->segment_capacity;
        state->segments = memory_resize(state->segments, state->segment_capacity * sizeof(*state->segments));
    }
    replay_map_put(&state->segment_at, addr, state->segment_count);
    segment = &state->segments[state->segment_count++];
    *segment = (struct varve_segment_info){.addr = addr, .bytes = bytes};
    return segment;
}

static void add_block(struct state *state, uint64_t addr, uint64_t bytes, uint64_t requested,
                      enum varve_block_state block_state)
{
    if (state->block_count == state->block_capacity) {
        state->block_capacity = state->block_capacity == 0 ? 256 : 2 * state->block_capacity;
        state->blocks = memory_resize(state->blocks, state->block_capacity * sizeof(*state->blocks));
    }
    replay_map_put(&state->block_at, addr, state->block_count);
    state->blocks[state->block_count++] =
        (struct varve_block_info){.addr = addr, .bytes = bytes, .requested = requested, .state = block_state};
}

static void take_end(struct state *state)
{
    const struct history_device *trace = state->trace;

    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct history_segment *last = &trace->segments[i];
        struct varve_segment_info *segment = add_segment(state, last->addr, last->size);

        segment->stream = state->history->streams[last->stream];
        segment->pool = (struct varve_pool_id){last->pool_id[0], last->pool_id[1]};
        segment->is_small = last->is_small;
        segment->is_expandable = last->is_expandable;
        for (size_t j = 0; j < last->block_count; j++) {
            const struct history_block *block = &trace->blocks[last->first_block + j];

            if (block->state != HISTORY_INACTIVE) {
                add_block(state, block->addr, block->size, block->requested,
                          block->state == HISTORY_ACTIVE_ALLOCATED ? VARVE_BLOCK_ACTIVE_ALLOCATED
                                                                   : VARVE_BLOCK_ACTIVE_PENDING_FREE);
            }
        }
    }
}

/* The expandable range that holds all of [addr, addr + bytes). */
static struct varve_segment_info *find_range(struct state *state, uint64_t addr, uint64_t bytes)
{
    for (size_t i = 0; i < state->segment_count; i++) {
        struct varve_segment_info *range = &state->segments[i];

        if (range->is_expandable && range->bytes >= bytes && addr - range->addr <= range->bytes - bytes) {
            return range;
        }
    }
    return NULL;
}

static bool undo_map(struct state *state, uint64_t addr, uint64_t bytes)
{
    struct varve_segment_info *range = find_range(state, addr, bytes);
    struct varve_segment_info whole;
    uint64_t front;
    uint64_t back;

    if (range == NULL) {
        return false;
    }
    whole = *range;
    front = addr - whole.addr;
    back = whole.bytes - front - bytes;
    range->bytes = front;
    if (back > 0) {
        struct varve_segment_info *rest = add_segment(state, addr + bytes, back);

        whole.addr = rest->addr;
        whole.bytes = rest->bytes;
        *rest = whole;
    }
    return true;
}

static void undo_unmap(struct state *state, const struct history_event *event)
{
    struct varve_segment_info *range = add_segment(state, event->addr, event->size);

    range->stream = state->history->streams[event->stream];
    range->is_expandable = true;
    range->is_small = event->size % (10 * SMALL_SEGMENT) != 0; /* a large one grows by 20 MiB */
}

static bool undo(struct state *state, const struct history_event *event)
{
    struct varve_segment_info *segment;
    uint64_t number;
    uint64_t *found;

    switch (event->action) {
    case HISTORY_ALLOC:
        return replay_map_take(&state->block_at, event->addr, &number);
    case HISTORY_FREE_COMPLETED:
        if (replay_map_find(&state->block_at, event->addr) != NULL) {
            return false;
        }
        add_block(state, event->addr, 0, event->size, VARVE_BLOCK_ACTIVE_PENDING_FREE);
        return true;
    case HISTORY_FREE_REQUESTED:
        found = replay_map_find(&state->block_at, event->addr);
        if (found == NULL || state->blocks[*found].state != VARVE_BLOCK_ACTIVE_PENDING_FREE) {
            return false;
        }
        state->blocks[*found].state = VARVE_BLOCK_ACTIVE_ALLOCATED;
        return true;
    case HISTORY_SEGMENT_ALLOC:
        found = replay_map_find(&state->segment_at, event->addr);
        if (found == NULL || state->segments[*found].bytes != event->size) {
            return false;
        }
        state->segments[*found].bytes = 0;
        return replay_map_take(&state->segment_at, event->addr, &number);
    case HISTORY_SEGMENT_FREE:
        if (replay_map_find(&state->segment_at, event->addr) != NULL) {
            return false;
        }
        segment = add_segment(state, event->addr, event->size);
        segment->stream = state->history->streams[event->stream];
        segment->is_small = event->size == SMALL_SEGMENT;
        return true;
    case HISTORY_SEGMENT_MAP:
        return undo_map(state, event->addr, event->size);
    case HISTORY_SEGMENT_UNMAP:
        undo_unmap(state, event);
        return true;
    default:
        return true;
    }
}

static int compare_segments(const void *left, const void *right)
{
    const struct varve_segment_info *a = left;
    const struct varve_segment_info *b = right;

    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

static int compare_blocks(const void *left, const void *right)
{
    const struct varve_block_info *a = left;
    const struct varve_block_info *b = right;

    return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* Drop what is gone, and sort. */
static void settle(struct state *state)
{
    size_t kept = 0;

    for (size_t i = 0; i < state->segment_count; i++) {
        if (state->segments[i].bytes > 0) {
            state->segments[kept++] = state->segments[i];
        }
    }
    state->segment_count = kept;
    if (kept > 0) {
        qsort(state->segments, kept, sizeof(*state->segments), compare_segments);
    }
    kept = 0;
    for (size_t i = 0; i < state->block_count; i++) {
        const uint64_t *found = replay_map_find(&state->block_at, state->blocks[i].addr);

        if (found != NULL && *found == i) {
            state->blocks[kept++] = state->blocks[i];
        }
    }
    state->block_count = kept;
    if (kept > 0) {
        qsort(state->blocks, kept, sizeof(*state->blocks), compare_blocks);
    }
}

/* The last block that does not begin behind an address; its number in state->blocks, or SIZE_MAX. */
static size_t block_before(const struct state *state, uint64_t addr)
{
    size_t low = 0;
    size_t high = state->block_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (state->blocks[middle].addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

/* Where a block of unknown size ended: what was first allocated in the free space behind it begins there. The
 * answer is kept in allocation_id, which a start state does not use. */
static void find_ends(struct state *state)
{
    uint64_t *limits = memory_resize(NULL, (state->block_count + 1) * sizeof(*limits)); /* of segments */
    size_t block = 0;

    for (size_t i = 0; i < state->segment_count; i++) {
        uint64_t end = state->segments[i].addr + state->segments[i].bytes;

        while (block < state->block_count && state->blocks[block].addr < end) {
            limits[block++] = end;
        }
    }
    for (size_t i = 0; i < state->trace->event_count; i++) {
        const struct history_event *event = &state->trace->events[i];
        bool is_alloc = event->action == HISTORY_ALLOC;
        size_t before =
            is_alloc || event->action == HISTORY_FREE_COMPLETED ? block_before(state, event->addr) : SIZE_MAX;
        struct varve_block_info *left;

        if (before >= block || event->addr >= limits[before]) {
            continue;
        }
        left = &state->blocks[before];
        if (left->bytes == 0 && left->allocation_id == 0 && (is_alloc || event->addr == left->addr)) {
            left->allocation_id = is_alloc ? event->addr : END_UNKNOWN;
        }
    }
    free(limits);
}

/* Size of a block that had `room` up to the next one. */
static int block_bytes(struct varve_alloc *rounding, const struct varve_segment_info *segment,
                       struct varve_block_info *block, uint64_t room)
{
    struct varve_alloc_forecast forecast;
    struct varve_alloc_stats stats;
    uint64_t end = block->allocation_id;
    int result;

    block->allocation_id = 0;
    if (block->bytes != 0) {
        return VARVE_OK;
    }
    result = varve_alloc_forecast(rounding, block->requested, 0, &forecast);
    if (result != VARVE_OK) {
        return result;
    }
    result = varve_alloc_get_device_stats(rounding, &stats);
    block->bytes = forecast.rounded;
    if (segment->is_small || segment->is_expandable || forecast.rounded > room) {
        return result;
    }
    if (end != END_UNKNOWN && end > block->addr && end - block->addr <= room) {
        room = end - block->addr;
    }
    if (room - forecast.rounded <= UNSPLIT_MAX ||
        (stats.max_split_size >= 0 && forecast.rounded >= (uint64_t)stats.max_split_size)) {
        block->bytes = room;
    }
    return result;
}

static void put_block(struct varve_alloc_snapshot *start, struct varve_segment_info *segment,
                      struct varve_block_info block)
{
    /* a pending block is allocated and freed again once it is there: replay_follow.c */
    if (block.state == VARVE_BLOCK_ACTIVE_PENDING_FREE) {
        block.state = VARVE_BLOCK_ACTIVE_ALLOCATED;
    }
    start->blocks[start->block_count++] = block;
    segment->block_count++;
    if (block.state != VARVE_BLOCK_INACTIVE) {
        segment->allocated_bytes += block.bytes;
        segment->active_bytes += block.bytes;
        segment->requested_bytes += block.requested;
    }
}

/* Blocks of one segment without gaps; `*next` is the first block that is not below it. */
static int tile(const struct state *state, struct varve_alloc *rounding, struct varve_alloc_snapshot *start,
                struct varve_segment_info *segment, size_t *next)
{
    uint64_t end = segment->addr + segment->bytes;
    uint64_t addr = segment->addr;

    segment->first_block = start->block_count;
    segment->block_count = 0;
    while (addr < end) {
        bool has_block = *next < state->block_count && state->blocks[*next].addr < end;
        struct varve_block_info block = {.addr = addr, .bytes = end - addr};
        uint64_t limit = end;
        int result;

        if (has_block && state->blocks[*next].addr != addr) {
            if (state->blocks[*next].addr < addr) {
                return VARVE_ERROR_FORMAT;
            }
            block.bytes = state->blocks[*next].addr - addr;
        } else if (has_block) {
            block = state->blocks[(*next)++];
            if (*next < state->block_count && state->blocks[*next].addr < end) {
                limit = state->blocks[*next].addr;
            }
            result = block_bytes(rounding, segment, &block, limit - addr);
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

static int tile_all(struct state *state, struct varve_alloc *rounding, struct varve_alloc_snapshot *start,
                    struct varve_message *message)
{
    size_t next = 0;

    start->segments = state->segments;
    start->segment_count = state->segment_count;
    start->blocks =
        memory_resize(NULL, (2 * state->block_count + state->segment_count + 1) * sizeof(*start->blocks));
    for (size_t i = 0; i < start->segment_count; i++) {
        int result = tile(state, rounding, start, &start->segments[i], &next);

        if (result != VARVE_OK) {
            return varve_message_set(message, result,
                                     "undoing all events leaves blocks in the segment at 0x%" PRIx64
                                     " that overlap: history and segments do not belong together",
                                     start->segments[i].addr);
        }
    }
    if (next < state->block_count) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "undoing all events leaves a block at 0x%" PRIx64 " outside of all segments",
                                 state->blocks[next].addr);
    }
    return VARVE_OK;
}

int replay_start(const struct history *history, const struct history_device *trace,
                 struct varve_alloc *rounding, struct varve_alloc_snapshot *start_out,
                 struct varve_message *message)
{
    struct state state = {.history = history, .trace = trace};
    int result = VARVE_OK;

    *start_out = (struct varve_alloc_snapshot){0};
    take_end(&state);
    for (size_t i = trace->event_count; i > 0 && result == VARVE_OK; i--) {
        if (!undo(&state, &trace->events[i - 1])) {
            result = varve_message_set(message, VARVE_ERROR_FORMAT,
                                       "event %zu (address 0x%" PRIx64
                                       ") cannot have led to what comes behind it and to the segments at the "
                                       "end: they do not belong together",
                                       i - 1, trace->events[i - 1].addr);
        }
    }
    if (result == VARVE_OK) {
        settle(&state);
        find_ends(&state);
        result = tile_all(&state, rounding, start_out, message);
    } else {
        free(state.segments);
    }
    free(state.blocks);
    replay_map_free(&state.segment_at);
    replay_map_free(&state.block_at);
    return result;
}
