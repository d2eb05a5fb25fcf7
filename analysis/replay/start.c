/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state before a history that was switched on late: the segments and blocks at its end, with every event
 * undone from the last to the first. What an event does not tell (the sizes of blocks, the class of unmapped
 * memory) is worked out in rebuild_blocks.c and ranges.c. Called by replay.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define SMALL_MAX (UINT64_C(1) << 20)
#define LARGE_EXAMPLE (UINT64_C(5) << 20) /* a request that gets a segment of the least size there is */

struct state {
    const struct history *history;
    const struct history_device *trace;
    struct varve_alloc *rounding;
    struct varve_segment_info *segments;
    size_t segment_count, segment_capacity;
    struct varve_block_info *blocks; /* bytes 0: unknown */
    size_t block_count, block_capacity;
    struct replay_map segment_at, block_at; /* address → number; what is gone is not in there */
    struct replay_ranges ranges;            /* expandable segments */
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

static void take_segment(struct state *state, const struct history_segment *last)
{
    struct varve_pool_id pool = {last->pool_id[0], last->pool_id[1]};
    uint64_t stream = state->history->streams[last->stream];

    if (last->is_expandable) {
        replay_range_add(&state->ranges, (struct replay_range){
                                             .addr = last->addr,
                                             .bytes = last->size,
                                             .stream = stream,
                                             .pool = pool,
                                             .kind = last->is_small ? REPLAY_RANGE_SMALL : REPLAY_RANGE_LARGE,
                                         });
    } else {
        struct varve_segment_info *segment = add_segment(state, last->addr, last->size);

        segment->stream = stream;
        segment->pool = pool;
        segment->is_small = last->is_small;
    }
}

static void take_end(struct state *state)
{
    const struct history_device *trace = state->trace;

    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct history_segment *last = &trace->segments[i];

        take_segment(state, last);
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

/* The request of an alloc, or of a free, tells the class of the memory that it was served from. */
static void note_request(struct state *state, const struct history_event *event)
{
    struct varve_alloc_forecast forecast;

    if (state->ranges.unknown_count > 0 &&
        varve_alloc_forecast(state->rounding, event->size, 0, &forecast) == VARVE_OK) {
        replay_range_note(&state->ranges, event->addr, forecast.rounded <= SMALL_MAX);
    }
}

/* The pool that the event names, the default one if it does not. */
static struct varve_pool_id told_pool(const struct state *state, const struct history_event *event)
{
    const uint64_t *id = event->pool != 0 ? state->history->pool_ids[event->pool - 1] : NULL;

    return id != NULL ? (struct varve_pool_id){id[0], id[1]} : (struct varve_pool_id){0, 0};
}

static bool undo_segment_alloc(struct state *state, const struct history_event *event)
{
    const uint64_t *found = replay_map_find(&state->segment_at, event->addr);
    uint64_t number;

    assert(found == NULL || state->segments != NULL);
    if (found == NULL || state->segments[*found].bytes != event->size) {
        return false;
    }
    state->segments[*found].bytes = 0;
    return replay_map_take(&state->segment_at, event->addr, &number);
}

static bool undo_segment_free(struct state *state, const struct history_event *event)
{
    struct varve_segment_info *segment;

    if (replay_map_find(&state->segment_at, event->addr) != NULL) {
        return false;
    }
    segment = add_segment(state, event->addr, event->size);
    segment->stream = state->history->streams[event->stream];
    segment->pool = told_pool(state, event);
    segment->is_small = event->size == SMALL_SEGMENT;
    return true;
}

static bool undo_map(struct state *state, const struct history_event *event)
{
    const struct replay_range *range = replay_range_at(&state->ranges, event->addr);

    return range != NULL && range->stream == state->history->streams[event->stream] &&
           replay_range_remove(&state->ranges, event->addr, event->size);
}

static bool undo_unmap(struct state *state, const struct history_event *event)
{
    return replay_range_add(&state->ranges, (struct replay_range){
                                                .addr = event->addr,
                                                .bytes = event->size,
                                                .stream = state->history->streams[event->stream],
                                                .pool = told_pool(state, event),
                                            });
}

static bool undo(struct state *state, const struct history_event *event)
{
    uint64_t number;
    uint64_t *found;

    switch (event->action) {
    case HISTORY_ALLOC:
        note_request(state, event);
        return replay_map_take(&state->block_at, event->addr, &number);
    case HISTORY_FREE_COMPLETED:
        if (replay_map_find(&state->block_at, event->addr) != NULL) {
            return false;
        }
        note_request(state, event);
        add_block(state, event->addr, 0, event->size, VARVE_BLOCK_ACTIVE_PENDING_FREE);
        return true;
    case HISTORY_FREE_REQUESTED:
        found = replay_map_find(&state->block_at, event->addr);
        assert(found == NULL || state->blocks != NULL);
        if (found == NULL || state->blocks[*found].state != VARVE_BLOCK_ACTIVE_PENDING_FREE) {
            return false;
        }
        state->blocks[*found].state = VARVE_BLOCK_ACTIVE_ALLOCATED;
        return true;
    case HISTORY_SEGMENT_ALLOC:
        return undo_segment_alloc(state, event);
    case HISTORY_SEGMENT_FREE:
        return undo_segment_free(state, event);
    case HISTORY_SEGMENT_MAP:
        return undo_map(state, event);
    case HISTORY_SEGMENT_UNMAP:
        return undo_unmap(state, event);
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

/* Memory that no request was ever seen in: a large segment grows by its unit. */
static void settle_ranges(struct state *state)
{
    struct varve_alloc_forecast forecast = {.segment_bytes = SMALL_SEGMENT};

    if (state->ranges.count > 0) {
        varve_alloc_forecast(state->rounding, LARGE_EXAMPLE, 0, &forecast);
    }
    for (size_t i = 0; i < state->ranges.count; i++) {
        const struct replay_range *range = &state->ranges.items[i];
        struct varve_segment_info *segment = add_segment(state, range->addr, range->bytes);

        segment->stream = range->stream;
        segment->pool = range->pool;
        segment->is_expandable = true;
        segment->is_small = range->kind == REPLAY_RANGE_UNKNOWN ? range->bytes % forecast.segment_bytes != 0
                                                                : range->kind == REPLAY_RANGE_SMALL;
    }
}

/* Drop what is gone, and sort. */
static void settle(struct state *state)
{
    size_t kept = 0;

    settle_ranges(state);
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

static int fill(struct state *state, struct varve_alloc_snapshot *start_out, struct varve_message *message)
{
    struct varve_alloc_stats stats;
    struct replay_tiling tiling;
    int result = varve_alloc_get_device_stats(state->rounding, &stats);

    if (result != VARVE_OK) {
        return result;
    }
    settle(state);
    tiling = (struct replay_tiling){
        .trace = state->trace,
        .rounding = state->rounding,
        .max_split = stats.max_split_size < 0 ? UINT64_MAX : (uint64_t)stats.max_split_size,
        .segments = state->segments,
        .segment_count = state->segment_count,
        .blocks = state->blocks,
        .block_count = state->block_count,
    };
    state->segments = NULL; /* the start's from here */
    return replay_tile(&tiling, start_out, message);
}

int replay_start(const struct history *history, const struct history_device *trace,
                 struct varve_alloc *rounding, struct varve_alloc_snapshot *start_out,
                 struct varve_message *message)
{
    struct state state = {.history = history, .trace = trace, .rounding = rounding};
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
        result = fill(&state, start_out, message);
    }
    free(state.segments);
    free(state.blocks);
    replay_map_free(&state.segment_at);
    replay_map_free(&state.block_at);
    replay_ranges_free(&state.ranges);
    return result;
}
