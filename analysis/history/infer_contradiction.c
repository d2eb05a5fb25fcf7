/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks by address and segments by range, event after event. Where a history began late, the first event of an
 * address may refer to what was before.
 */
#include "analysis/history/infer_device.h"

#include "analysis/base/key_map.h"
#include "analysis/history/infer_ranges.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

/* What an address is after the events so far, in the low two bits of what the map holds; the number of the
 * event that made it so is above. */
enum block_state {
    BLOCK_FREE,
    BLOCK_USED,
    BLOCK_REQUESTED,
};

struct search {
    const struct history_device *trace;
    bool is_late;
    struct map blocks;
    struct replay_ranges segments;
    struct map gone; /* address of a segment → event that gave it back */
    struct varve_message *message;
};

static bool found(const struct search *search, size_t index, const char *action, const char *reason, size_t since)
{
    const struct history_event *event = &search->trace->events[index];
    char when[64] = "";
    if (since != REPLAY_NONE) {
        snprintf(when, sizeof(when), " since event %zu", since);
    }
    varve_message_set(search->message, VARVE_ERROR_FORMAT,
                      "event %zu cannot be: %s at 0x%" PRIx64 " of %" PRIu64 " bytes, %s%s", index, action, event->addr,
                      event->size, reason, when);
    return true;
}

static bool is_outside(struct search *search, uint64_t addr)
{
    return !search->is_late && replay_range_at(&search->segments, addr) == NULL;
}

static bool infer_contradiction_check_block(struct search *search, size_t index)
{
    const struct history_event *event = &search->trace->events[index];
    uint64_t known = map_find(&search->blocks, event->addr);
    enum block_state state = known != MAP_NONE ? (enum block_state)(known & 3) : BLOCK_FREE;
    size_t since = known != MAP_NONE ? (size_t)(known >> 2) : REPLAY_NONE;
    bool is_unknown = known == MAP_NONE && search->is_late;
    switch (event->action) {
    case HISTORY_ALLOC:
        if (state != BLOCK_FREE) {
            return found(search, index, "alloc",
                         state == BLOCK_USED ? "but that block is in use; its free was expected first"
                                             : "but the block's free is not complete",
                         since);
        }
        if (is_outside(search, event->addr)) {
            return found(search, index, "alloc", "but no segment is there", REPLAY_NONE);
        }
        map_put(&search->blocks, event->addr, (uint64_t)index << 2 | BLOCK_USED);
        return false;
    case HISTORY_FREE_REQUESTED:
        if (state != BLOCK_USED && !is_unknown) {
            return found(search, index, "free_requested",
                         known == MAP_NONE     ? "but nothing was allocated there"
                         : state == BLOCK_FREE ? "but that block is free"
                                               : "but that block's free is requested",
                         since);
        }
        map_put(&search->blocks, event->addr, (uint64_t)index << 2 | BLOCK_REQUESTED);
        return false;
    default:
        if (state != BLOCK_REQUESTED && !is_unknown) {
            return found(search, index, "free_completed",
                         known == MAP_NONE     ? "but nothing was allocated there"
                         : state == BLOCK_FREE ? "but that block is free"
                                               : "but no free_requested came for that block, in use",
                         since);
        }
        map_put(&search->blocks, event->addr, (uint64_t)index << 2 | BLOCK_FREE);
        return false;
    }
}

/* One unmap may take what several maps brought, and what was there before a late history. */
static void forget_mapped(struct search *search, uint64_t addr, uint64_t end)
{
    size_t i = 0;
    while (i < search->segments.count) {
        struct replay_range range = search->segments.items[i++];
        uint64_t first = range.addr > addr ? range.addr : addr;
        uint64_t last = range.addr + range.bytes < end ? range.addr + range.bytes : end;
        if (first < last) {
            replay_range_remove(&search->segments, first, last - first);
            i--; /* the next one is there now, or the rest of this one */
        }
    }
}

static bool infer_contradiction_check_segment(struct search *search, size_t index)
{
    const struct history_event *event = &search->trace->events[index];
    /* no two grow together: each is its own stream here, by its number */
    struct replay_range range = {.addr = event->addr, .bytes = event->size, .stream = index};
    const struct replay_range *there = replay_range_at(&search->segments, event->addr);
    uint64_t gone;
    switch (event->action) {
    case HISTORY_SEGMENT_ALLOC:
    case HISTORY_SEGMENT_MAP:
        if (there != NULL) {
            return found(search, index, "a new segment", "but there is one", (size_t)there->stream);
        }
        if (!replay_range_add(&search->segments, range)) {
            return found(search, index, "a new segment", "but another one begins within it", REPLAY_NONE);
        }
        return false;
    case HISTORY_SEGMENT_FREE:
        gone = map_find(&search->gone, event->addr);
        if (there == NULL && gone != MAP_NONE) {
            return found(search, index, "segment_free", "but that segment is gone", (size_t)gone);
        }
        if (there == NULL && !search->is_late) {
            return found(search, index, "segment_free", "but no segment is there", REPLAY_NONE);
        }
        map_put(&search->gone, event->addr, index);
        if (there != NULL && (there->addr != event->addr || there->bytes != event->size)) {
            return found(search, index, "segment_free", "but the segment there is another", (size_t)there->stream);
        }
        replay_range_remove(&search->segments, event->addr, event->size);
        return false;
    default:
        if (there == NULL && !search->is_late) {
            return found(search, index, "segment_unmap", "but nothing is mapped there", REPLAY_NONE);
        }
        forget_mapped(search, event->addr, event->addr + event->size);
        return false;
    }
}

static bool infer_contradiction_check(struct search *search, size_t index)
{
    switch (search->trace->events[index].action) {
    case HISTORY_ALLOC:
    case HISTORY_FREE_REQUESTED:
    case HISTORY_FREE_COMPLETED:
        return infer_contradiction_check_block(search, index);
    case HISTORY_SEGMENT_ALLOC:
    case HISTORY_SEGMENT_FREE:
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        return infer_contradiction_check_segment(search, index);
    default:
        return false;
    }
}

bool replay_contradiction(const struct history_device *trace, bool is_late, struct varve_message *message)
{
    struct search search = {.trace = trace, .is_late = is_late, .message = message};
    bool is_found = false;
    for (size_t i = 0; i < trace->event_count && !is_found; i++) {
        is_found = infer_contradiction_check(&search, i);
    }
    map_free(&search.blocks);
    map_free(&search.gone);
    replay_ranges_free(&search.segments);
    return is_found;
}
