/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segments and blocks at the end, with every event undone from the last to the first; then the blocks between
 * those in use, without gaps. The size of a block that is gone at the end is open: at least what its request rounds
 * to, and a large one may be up to 1 MiB larger, since that much is not split off. What was allocated right behind
 * it while it lived began where it ended; free memory behind it of 1 MiB or less is its own; else every size up to a
 * bound is possible, the least is assumed, and the replay may find it too small (conflict_search.c).
 */
#include "analysis/history/infer_device.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/key_map.h"
#include "analysis/history/infer_ranges.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define UNSPLIT_MAX (UINT64_C(1) << 20) /* PyTorch splits a large block if more than that is left */
#define GRAIN 512
#define END_UNKNOWN UINT64_MAX
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define SMALL_MAX (UINT64_C(1) << 20)

struct rebuild {
    const struct history *history;
    const struct history_device *trace;
    const struct varve_alloc_config *config;
    struct varve_segment_info *segments; /* bytes 0: gone */
    size_t segment_count, segment_capacity;
    struct varve_block_info *blocks; /* in use; bytes 0: unknown */
    size_t block_count, block_capacity;
    struct map segment_at, block_at; /* address → number; what is gone is not in there */
    struct replay_ranges ranges;     /* expandable segments */
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
        size_t before =
            is_alloc || event->action == HISTORY_FREE_COMPLETED ? block_before(rebuild, event->addr) : SIZE_MAX;
        if (before >= block || event->addr >= limits[before]) {
            continue;
        }
        struct varve_block_info *left = &rebuild->blocks[before];
        if (left->bytes == 0 && left->allocation_id == 0 && (is_alloc || event->addr == left->addr)) {
            left->allocation_id = is_alloc ? event->addr : END_UNKNOWN;
        }
    }
    free(limits);
}

/* Size of a block that had `room` up to the next one; allocation_id: the most that it can have been, if that
 * is not known. */
static int infer_start_block_bytes(const struct rebuild *rebuild, const struct varve_segment_info *segment,
                                   struct varve_block_info *block, uint64_t room)
{
    uint64_t end = block->allocation_id;
    block->allocation_id = 0;
    if (block->bytes != 0) {
        return VARVE_OK;
    }
    uint64_t rounded = varve_alloc_block_size(NULL, rebuild->config, block->requested);
    block->bytes = rounded;
    if (rounded == 0 || segment->is_small || segment->is_expandable || rounded > room) {
        return rounded == 0 ? VARVE_ERROR_INVALID : VARVE_OK;
    }
    if (end != END_UNKNOWN && end > block->addr && end - block->addr <= room) {
        room = end - block->addr;
    }
    uint64_t rest = room - rounded;
    if (rest <= UNSPLIT_MAX || rounded >= rebuild->config->max_split_size) {
        block->bytes = room;
    } else if (end == END_UNKNOWN) {
        /* free blocks are larger than UNSPLIT_MAX, too */
        block->allocation_id =
            rounded + (rest - UNSPLIT_MAX - GRAIN < UNSPLIT_MAX ? rest - UNSPLIT_MAX - GRAIN : UNSPLIT_MAX);
    }
    return VARVE_OK;
}

static void infer_start_put_block(struct varve_alloc_snapshot *start, struct varve_segment_info *segment,
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
            int result = infer_start_block_bytes(rebuild, segment, &block, limit - addr);
            if (result != VARVE_OK) {
                return result;
            }
        }
        if (block.bytes == 0 || block.bytes > limit - addr) {
            return VARVE_ERROR_FORMAT;
        }
        infer_start_put_block(start, segment, block);
        addr += block.bytes;
    }
    return VARVE_OK;
}

/* `start` owns the segments from now on, and gets its blocks. allocation_id of a block whose size is not sure is
 * the most that it can be; bytes is the least then. */
static int rebuild_blocks(const struct rebuild *rebuild, struct varve_alloc_snapshot *start,
                          struct varve_message *message)
{
    find_ends(rebuild);
    start->segments = rebuild->segments;
    start->segment_count = rebuild->segment_count;
    start->blocks =
        memory_resize(NULL, (2 * rebuild->block_count + rebuild->segment_count + 1) * sizeof(*start->blocks));
    size_t next = 0;
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

static struct varve_segment_info *infer_start_add_segment(struct rebuild *rebuild, uint64_t addr, uint64_t bytes)
{
    map_put(&rebuild->segment_at, addr, rebuild->segment_count);
    struct varve_segment_info *segment =
        MEMORY_ADD(rebuild->segments, rebuild->segment_count, rebuild->segment_capacity);
    *segment = (struct varve_segment_info){.addr = addr, .bytes = bytes};
    return segment;
}

static void add_block(struct rebuild *rebuild, uint64_t addr, uint64_t bytes, uint64_t requested,
                      enum varve_block_state block_state)
{
    map_put(&rebuild->block_at, addr, rebuild->block_count);
    *MEMORY_ADD(rebuild->blocks, rebuild->block_count, rebuild->block_capacity) =
        (struct varve_block_info){.addr = addr, .bytes = bytes, .requested = requested, .state = block_state};
}

static void infer_start_take_segment(struct rebuild *rebuild, const struct history_segment *last)
{
    struct varve_pool_id pool = {last->pool_id[0], last->pool_id[1]};
    uint64_t stream = rebuild->history->streams[last->stream];
    if (last->is_expandable) {
        replay_range_add(&rebuild->ranges, (struct replay_range){
                                               .addr = last->addr,
                                               .bytes = last->size,
                                               .stream = stream,
                                               .pool = pool,
                                               .kind = last->is_small ? REPLAY_RANGE_SMALL : REPLAY_RANGE_LARGE,
                                           });
    } else {
        struct varve_segment_info *segment = infer_start_add_segment(rebuild, last->addr, last->size);
        segment->stream = stream;
        segment->pool = pool;
        segment->is_small = last->is_small;
    }
}

static void infer_start_take_end(struct rebuild *rebuild)
{
    const struct history_device *trace = rebuild->trace;
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct history_segment *last = &trace->segments[i];
        infer_start_take_segment(rebuild, last);
        for (size_t j = 0; j < last->block_count; j++) {
            const struct history_block *block = &trace->blocks[last->first_block + j];
            if (block->state != HISTORY_INACTIVE) {
                add_block(rebuild, block->addr, block->size, block->requested,
                          block->state == HISTORY_ACTIVE_ALLOCATED ? VARVE_BLOCK_ACTIVE_ALLOCATED
                                                                   : VARVE_BLOCK_ACTIVE_PENDING_FREE);
            }
        }
    }
}

/* The request of an alloc, or of a free, shows the class of the memory that it was served from. */
static void infer_start_note_request(struct rebuild *rebuild, const struct history_event *event)
{
    if (rebuild->ranges.unknown_count > 0) {
        uint64_t rounded = varve_alloc_block_size(NULL, rebuild->config, event->size);
        if (rounded > 0) {
            replay_range_note(&rebuild->ranges, event->addr, rounded <= SMALL_MAX);
        }
    }
}

static bool undo_segment_alloc(struct rebuild *rebuild, const struct history_event *event)
{
    uint64_t found = map_find(&rebuild->segment_at, event->addr);
    assert(found == MAP_NONE || rebuild->segments != NULL);
    if (found == MAP_NONE || rebuild->segments[found].bytes != event->size) {
        return false;
    }
    rebuild->segments[found].bytes = 0;
    return map_remove(&rebuild->segment_at, event->addr) != MAP_NONE;
}

static bool undo_segment_free(struct rebuild *rebuild, const struct history_event *event)
{
    if (map_find(&rebuild->segment_at, event->addr) != MAP_NONE) {
        return false;
    }
    struct varve_segment_info *segment = infer_start_add_segment(rebuild, event->addr, event->size);
    segment->stream = rebuild->history->streams[event->stream];
    segment->pool = replay_named_pool(rebuild->history, event);
    segment->is_small = event->size == SMALL_SEGMENT;
    return true;
}

static bool undo_map(struct rebuild *rebuild, const struct history_event *event)
{
    const struct replay_range *range = replay_range_at(&rebuild->ranges, event->addr);
    return range != NULL && range->stream == rebuild->history->streams[event->stream] &&
           replay_range_remove(&rebuild->ranges, event->addr, event->size);
}

static bool undo_unmap(struct rebuild *rebuild, const struct history_event *event)
{
    return replay_range_add(&rebuild->ranges, (struct replay_range){
                                                  .addr = event->addr,
                                                  .bytes = event->size,
                                                  .stream = rebuild->history->streams[event->stream],
                                                  .pool = replay_named_pool(rebuild->history, event),
                                              });
}

static bool undo(struct rebuild *rebuild, const struct history_event *event)
{
    uint64_t found;
    switch (event->action) {
    case HISTORY_ALLOC:
        infer_start_note_request(rebuild, event);
        return map_remove(&rebuild->block_at, event->addr) != MAP_NONE;
    case HISTORY_FREE_COMPLETED:
        if (map_find(&rebuild->block_at, event->addr) != MAP_NONE) {
            return false;
        }
        infer_start_note_request(rebuild, event);
        add_block(rebuild, event->addr, 0, event->size, VARVE_BLOCK_ACTIVE_PENDING_FREE);
        return true;
    case HISTORY_FREE_REQUESTED:
        found = map_find(&rebuild->block_at, event->addr);
        assert(found == MAP_NONE || rebuild->blocks != NULL);
        if (found == MAP_NONE || rebuild->blocks[found].state != VARVE_BLOCK_ACTIVE_PENDING_FREE) {
            return false;
        }
        rebuild->blocks[found].state = VARVE_BLOCK_ACTIVE_ALLOCATED;
        rebuild->blocks[found].requested = event->size; /* blocks of old versions do not say it */
        return true;
    case HISTORY_SEGMENT_ALLOC:
        return undo_segment_alloc(rebuild, event);
    case HISTORY_SEGMENT_FREE:
        return undo_segment_free(rebuild, event);
    case HISTORY_SEGMENT_MAP:
        return undo_map(rebuild, event);
    case HISTORY_SEGMENT_UNMAP:
        return undo_unmap(rebuild, event);
    default:
        return true;
    }
}

/* Of segments and of blocks: both begin with it. */
static int compare_addr(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;
    return *a < *b ? -1 : *a > *b;
}

_Static_assert(offsetof(struct varve_segment_info, addr) == 0 && offsetof(struct varve_block_info, addr) == 0,
               "compare_addr");

/* Memory that no request was ever seen in: a large segment grows by its unit. */
static void infer_start_add_ranges(struct rebuild *rebuild)
{
    for (size_t i = 0; i < rebuild->ranges.count; i++) {
        const struct replay_range *range = &rebuild->ranges.items[i];
        struct varve_segment_info *segment = infer_start_add_segment(rebuild, range->addr, range->bytes);
        segment->stream = range->stream;
        segment->pool = range->pool;
        segment->is_expandable = true;
        segment->is_small = range->kind == REPLAY_RANGE_UNKNOWN
                                ? range->bytes % rebuild->config->large_segment_size != 0
                                : range->kind == REPLAY_RANGE_SMALL;
    }
}

/* Drop what is gone, and sort. */
static void infer_start_finish(struct rebuild *rebuild)
{
    infer_start_add_ranges(rebuild);
    size_t kept = 0;
    for (size_t i = 0; i < rebuild->segment_count; i++) {
        if (rebuild->segments[i].bytes > 0) {
            rebuild->segments[kept++] = rebuild->segments[i];
        }
    }
    rebuild->segment_count = kept;
    if (kept > 0) {
        qsort(rebuild->segments, kept, sizeof(*rebuild->segments), compare_addr);
    }
    kept = 0;
    for (size_t i = 0; i < rebuild->block_count; i++) {
        uint64_t found = map_find(&rebuild->block_at, rebuild->blocks[i].addr);
        if (found == i) {
            rebuild->blocks[kept++] = rebuild->blocks[i];
        }
    }
    rebuild->block_count = kept;
    if (kept > 0) {
        qsort(rebuild->blocks, kept, sizeof(*rebuild->blocks), compare_addr);
    }
}

int replay_start_rebuild(const struct history *history, const struct history_device *trace,
                         const struct varve_alloc_config *config, struct varve_alloc_snapshot *start_out,
                         struct varve_message *message)
{
    struct rebuild rebuild = {.history = history, .trace = trace, .config = config};
    *start_out = (struct varve_alloc_snapshot){0};
    infer_start_take_end(&rebuild);
    int result = VARVE_OK;
    for (size_t i = trace->event_count; i > 0 && result == VARVE_OK; i--) {
        if (!undo(&rebuild, &trace->events[i - 1])) {
            result = varve_message_set(message, VARVE_ERROR_FORMAT,
                                       "event %zu (address 0x%" PRIx64
                                       ") cannot have led to what comes behind it and to the segments at the "
                                       "end: they do not belong together",
                                       i - 1, trace->events[i - 1].addr);
        }
    }
    if (result == VARVE_OK) {
        infer_start_finish(&rebuild);
        result = rebuild_blocks(&rebuild, start_out, message);
        rebuild.segments = NULL; /* the start's from here */
    }
    free(rebuild.segments);
    free(rebuild.blocks);
    map_free(&rebuild.segment_at);
    map_free(&rebuild.block_at);
    replay_ranges_free(&rebuild.ranges);
    return result;
}
