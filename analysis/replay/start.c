/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments and blocks at the end, with every event undone from the last to the first; then the blocks between
 * those in use, without gaps. The size of a block that is gone at the end is open: at least what its request rounds
 * to, and a large one may be up to 1 MiB larger, since that much is not split off. What was allocated right behind
 * it while it lived began where it ended; free memory behind it of 1 MiB or less is its own; else every size up to a
 * bound is possible, the least is assumed, and the replay may find it too small (hints.c).
 */
#include "analysis/replay/start.h"

#include "analysis/base/memory.h"
#include "analysis/replay/map.h"
#include "analysis/replay/ranges.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define UNSPLIT_MAX (UINT64_C(1) << 20) /* PyTorch splits a large block if more than that is left */
#define GRAIN 512
#define END_UNKNOWN UINT64_MAX
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define SMALL_MAX (UINT64_C(1) << 20)

struct rebuild {
    const struct history_device *trace;
    const struct replay_rounding *rounding;
    struct varve_segment_info *segments; /* by address */
    size_t segment_count;
    struct varve_block_info *blocks; /* in use; by address; bytes 0: unknown */
    size_t block_count;
};

/* The last block that does not begin behind an address; its number, or SIZE_MAX. */
static size_t block_before(const struct rebuild *rebuild, uint64_t addr)
{
    size_t low = 0;
    size_t high = rebuild->block_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (rebuild->blocks[middle].addr <= addr) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - 1;
}

/* Where a block of unknown size ended: what was first allocated in the free space behind it begins there. The
 * answer is kept in allocation_id. */
static void find_ends(const struct rebuild *rebuild)
{
    uint64_t *limits = memory_resize(NULL, (rebuild->block_count + 1) * sizeof(*limits)); /* of segments */
    size_t block = 0;

    for (size_t i = 0; i < rebuild->segment_count; i++) {
        uint64_t end = rebuild->segments[i].addr + rebuild->segments[i].bytes;

        while (block < rebuild->block_count && rebuild->blocks[block].addr < end) {
            limits[block++] = end;
        }
    }
    for (size_t i = 0; i < rebuild->trace->event_count; i++) {
        const struct history_event *event = &rebuild->trace->events[i];
        bool is_alloc = event->action == HISTORY_ALLOC;
        size_t before = is_alloc || event->action == HISTORY_FREE_COMPLETED
                            ? block_before(rebuild, event->addr)
                            : SIZE_MAX;
        struct varve_block_info *left;

        if (before >= block || event->addr >= limits[before]) {
            continue;
        }
        left = &rebuild->blocks[before];
        if (left->bytes == 0 && left->allocation_id == 0 && (is_alloc || event->addr == left->addr)) {
            left->allocation_id = is_alloc ? event->addr : END_UNKNOWN;
        }
    }
    free(limits);
}

/* Size of a block that had `room` up to the next one; allocation_id: the most that it can have been, if that
 * is not known. */
static int block_bytes(const struct rebuild *rebuild, const struct varve_segment_info *segment,
                       struct varve_block_info *block, uint64_t room)
{
    uint64_t end = block->allocation_id;
    uint64_t rounded;
    uint64_t rest;

    block->allocation_id = 0;
    if (block->bytes != 0) {
        return VARVE_OK;
    }
    rounded = replay_block_size(rebuild->rounding, block->requested);
    block->bytes = rounded;
    if (rounded == 0 || segment->is_small || segment->is_expandable || rounded > room) {
        return rounded == 0 ? VARVE_ERROR_INVALID : VARVE_OK;
    }
    if (end != END_UNKNOWN && end > block->addr && end - block->addr <= room) {
        room = end - block->addr;
    }
    rest = room - rounded;
    if (rest <= UNSPLIT_MAX || rounded >= rebuild->rounding->max_split) {
        block->bytes = room;
    } else if (end == END_UNKNOWN) {
        /* free blocks are larger than UNSPLIT_MAX, too */
        block->allocation_id =
            rounded + (rest - UNSPLIT_MAX - GRAIN < UNSPLIT_MAX ? rest - UNSPLIT_MAX - GRAIN : UNSPLIT_MAX);
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
static int fill_segment(const struct rebuild *rebuild, struct varve_alloc_snapshot *start,
                        struct varve_segment_info *segment, size_t *next)
{
    uint64_t end = segment->addr + segment->bytes;
    uint64_t addr = segment->addr;

    segment->first_block = start->block_count;
    segment->block_count = 0;
    while (addr < end) {
        bool has_block = *next < rebuild->block_count && rebuild->blocks[*next].addr < end;
        struct varve_block_info block = {.addr = addr, .bytes = end - addr};
        uint64_t limit = end;
        int result;

        if (has_block && rebuild->blocks[*next].addr != addr) {
            if (rebuild->blocks[*next].addr < addr) {
                return VARVE_ERROR_FORMAT;
            }
            block.bytes = rebuild->blocks[*next].addr - addr;
        } else if (has_block) {
            block = rebuild->blocks[(*next)++];
            if (*next < rebuild->block_count && rebuild->blocks[*next].addr < end) {
                limit = rebuild->blocks[*next].addr;
            }
            result = block_bytes(rebuild, segment, &block, limit - addr);
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

/* `start` owns the segments from now on, and gets its blocks. allocation_id of a block whose size is not sure is
 * the most that it can be; bytes is the least then. */
static int rebuild_blocks(const struct rebuild *rebuild, struct varve_alloc_snapshot *start,
                          struct varve_message *message)
{
    size_t next = 0;

    find_ends(rebuild);
    start->segments = rebuild->segments;
    start->segment_count = rebuild->segment_count;
    start->blocks =
        memory_resize(NULL, (2 * rebuild->block_count + rebuild->segment_count + 1) * sizeof(*start->blocks));
    for (size_t i = 0; i < start->segment_count; i++) {
        int result = fill_segment(rebuild, start, &start->segments[i], &next);

        if (result != VARVE_OK) {
            return varve_message_set(message, result,
                                     "undoing all events leaves blocks in the segment at 0x%" PRIx64
                                     " that overlap: history and segments do not belong together",
                                     start->segments[i].addr);
        }
    }
    if (next < rebuild->block_count) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "undoing all events leaves a block at 0x%" PRIx64 " outside of all segments",
                                 rebuild->blocks[next].addr);
    }
    return VARVE_OK;
}

struct state {
    const struct history *history;
    const struct history_device *trace;
    const struct replay_rounding *rounding;
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

/* The request of an alloc, or of a free, shows the class of the memory that it was served from. */
static void note_request(struct state *state, const struct history_event *event)
{
    uint64_t rounded;

    if (state->ranges.unknown_count > 0) {
        rounded = replay_block_size(state->rounding, event->size);
        if (rounded > 0) {
            replay_range_note(&state->ranges, event->addr, rounded <= SMALL_MAX);
        }
    }
}

/* The pool that the event names, the default one if it names none. */
static struct varve_pool_id named_pool(const struct state *state, const struct history_event *event)
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
    return replay_map_remove(&state->segment_at, event->addr, &number);
}

static bool undo_segment_free(struct state *state, const struct history_event *event)
{
    struct varve_segment_info *segment;

    if (replay_map_find(&state->segment_at, event->addr) != NULL) {
        return false;
    }
    segment = add_segment(state, event->addr, event->size);
    segment->stream = state->history->streams[event->stream];
    segment->pool = named_pool(state, event);
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
                                                .pool = named_pool(state, event),
                                            });
}

static bool undo(struct state *state, const struct history_event *event)
{
    uint64_t number;
    uint64_t *found;

    switch (event->action) {
    case HISTORY_ALLOC:
        note_request(state, event);
        return replay_map_remove(&state->block_at, event->addr, &number);
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
static void add_ranges(struct state *state)
{
    for (size_t i = 0; i < state->ranges.count; i++) {
        const struct replay_range *range = &state->ranges.items[i];
        struct varve_segment_info *segment = add_segment(state, range->addr, range->bytes);

        segment->stream = range->stream;
        segment->pool = range->pool;
        segment->is_expandable = true;
        segment->is_small = range->kind == REPLAY_RANGE_UNKNOWN
                                ? range->bytes % state->rounding->large_unit != 0
                                : range->kind == REPLAY_RANGE_SMALL;
    }
}

/* Drop what is gone, and sort. */
static void finish(struct state *state)
{
    size_t kept = 0;

    add_ranges(state);
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
    struct rebuild rebuild;

    finish(state);
    rebuild = (struct rebuild){
        .trace = state->trace,
        .rounding = state->rounding,
        .segments = state->segments,
        .segment_count = state->segment_count,
        .blocks = state->blocks,
        .block_count = state->block_count,
    };
    state->segments = NULL; /* the start's from here */
    return rebuild_blocks(&rebuild, start_out, message);
}

int replay_start_rebuild(const struct history *history, const struct history_device *trace,
                         const struct replay_rounding *rounding, struct varve_alloc_snapshot *start_out,
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
