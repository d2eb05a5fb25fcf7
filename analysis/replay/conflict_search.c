/* SPDX-License-Identifier: Apache-2.0 */
/* What was learned of names and limits only grows, and the manner goes through each of its four states once, so that
 * the search ends; ATTEMPTS_MAX is for what is not foreseen. */
#include "analysis/replay/replay_session.h"

#include "analysis/base/memory_or_exit.h"

#define ATTEMPTS_MAX 1000
#define GRAIN 512

bool replay_choose(struct replay *replay, size_t completion, size_t request, bool likely)
{
    uint64_t known = map_find(&replay->inferred->hints.choices, completion);
    bool answer = known != MAP_NONE ? known != 0 : likely;
    if (known == MAP_NONE) {
        replay->choice =
            (struct replay_choice){.is_open = true, .completion = completion, .request = request, .answer = answer};
    }
    return answer;
}

/* The request got free memory that the history passed over: it must have been too small, hence the block in
 * front of it larger. */
static bool learn_size(const struct replay *replay, struct replay_hints *hints)
{
    const struct varve_alloc_snapshot *start = &replay->inferred->start;
    const struct replay_landing *landed = &replay->landed;
    struct varve_alloc_forecast forecast;
    if (landed->found == 0 || landed->found == VARVE_ALLOC_FOUND_MAX ||
        varve_alloc_forecast(replay->alloc, landed->requested, 0, &forecast) != VARVE_OK) {
        return false;
    }
    for (size_t i = 0; i < start->block_count; i++) {
        const struct varve_block_info *block = &start->blocks[i];
        if (block->allocation_id != 0 && block->addr + block->bytes == landed->addr) {
            uint64_t found = landed->found * VARVE_ALLOC_FOUND_UNIT;
            uint64_t bytes = block->bytes + (found - forecast.rounded) + GRAIN;
            if (bytes > block->allocation_id) {
                return false;
            }
            map_put(&hints->sizes, block->addr, bytes);
            return true;
        }
    }
    return false;
}

static bool learn_choice(const struct replay *replay, struct replay_hints *hints)
{
    const struct replay_choice *choice = &replay->choice;
    if (!choice->is_open || replay->mismatch.event < choice->completion || replay->mismatch.event > choice->request) {
        return false;
    }
    map_put(&hints->choices, choice->completion, !choice->answer);
    return true;
}

static bool holds(const struct replay *replay, size_t number, uint64_t addr)
{
    const struct replay_pool_segment *segment = &replay->inferred->pools.segments[number];
    size_t first_reservation = replay->inferred->pools.segment_count - replay->inferred->reservations.count;
    if (segment->made_by != REPLAY_NONE && segment->made_by > replay->mismatch.event) {
        return false;
    }
    if (segment->bytes > 0) {
        return addr >= segment->addr && addr - segment->addr < segment->bytes;
    }
    return number >= first_reservation && addr >= segment->addr &&
           addr < replay->inferred->reservations.items[number - first_reservation].high;
}

/* Out of the pool that it was thought to be in; false if that was tried, or nothing is known of it. */
static bool learn_pool_of(const struct replay *replay, uint64_t addr, struct replay_hints *hints)
{
    const struct replay_pools *pools = &replay->inferred->pools;
    for (size_t i = pools->segment_count; i > 0; i--) {
        const struct replay_pool_segment *segment = &pools->segments[i - 1];
        uint64_t key = replay_pool_key(segment);
        uint64_t hint = map_find(&hints->pools, key);
        if (holds(replay, i - 1, addr)) {
            if (hint == 2) {
                return false;
            }
            map_put(&hints->pools, key, segment->pool == 0 && hint == MAP_NONE ? 1 : 2);
            return true;
        }
    }
    return false;
}

/* The request was served from a free block that the history passed over: it was in another pool. */
static bool learn_apart(const struct replay *replay, struct replay_hints *hints)
{
    const struct replay_pools *pools = &replay->inferred->pools;
    struct replay_request request;
    struct replay_apart apart = {0, 0};
    if (pools->segment_count == 0 || replay->landed.found == 0 ||
        !replay_request_at(replay, replay->mismatch.event, &request) || pools->segment_of[request.event] == 0) {
        return false;
    }
    apart.a = pools->segment_of[request.event] - 1;
    for (size_t i = pools->segment_count; i > 0 && apart.b == 0; i--) {
        apart.b = holds(replay, i - 1, replay->landed.addr) ? (uint32_t)i : 0;
    }
    if (apart.b == 0 || --apart.b == apart.a) {
        return false;
    }
    for (size_t i = 0; i < hints->apart_count; i++) {
        if ((hints->apart[i].a == apart.a && hints->apart[i].b == apart.b)) {
            return false; /* that was known, and of no use */
        }
    }
    hints->apart = memory_resize(hints->apart, (hints->apart_count + 1) * sizeof(apart));
    hints->apart[hints->apart_count++] = apart;
    return true;
}

/* Something was given back, and the history kept it, or gave something else back first: one of the two was in another
 * pool. That a pool ended by itself shows in what the history gave back. */
static bool learn_pool(const struct replay *replay, struct replay_hints *hints)
{
    const struct history_event *event = &replay->trace->events[replay->mismatch.event];
    if (replay->inferred->pools.segment_count == 0 || replay->landed.found != 0) {
        return false;
    }
    bool is_released = replay->mismatch.event < replay->trace->event_count &&
                       (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP);
    if (hints->pools_end && is_released && learn_pool_of(replay, event->addr, hints)) {
        return true;
    }
    return learn_pool_of(replay, replay->landed.addr, hints) ||
           (is_released && learn_pool_of(replay, event->addr, hints));
}

/* The first request may have begun before the history: it is left out, since nobody knows its first half. */
static bool learn_beginning(const struct replay *replay, struct replay_hints *hints)
{
    if (replay->inferred->start.segment_count == 0 || hints->first != 0) {
        return false;
    }
    struct replay_request request;
    size_t index = 0;
    while (index <= replay->mismatch.event && !replay_request_at(replay, index, &request)) {
        index++;
    }
    if (index > replay->mismatch.event || request.event < replay->mismatch.event) {
        return false;
    }
    for (size_t i = 0; i < request.event; i++) {
        if (replay->trace->events[i].action == HISTORY_FREE_REQUESTED) {
            return false; /* a call of its own: the request began behind it */
        }
    }
    hints->first = request.event + 1;
    return true;
}

/* Not each pool in a period of its own, as captures are, but request by request, as with torch.cuda.MemPool; and not
 * all gone with a call of empty_cache. */
static bool learn_manner(const struct replay *replay, struct replay_hints *hints)
{
    if (replay->inferred->pools.segment_count == 0 || (hints->pools_take_turns && hints->pools_end)) {
        return false;
    }
    hints->pools_end |= hints->pools_take_turns;
    hints->pools_take_turns = !hints->pools_take_turns;
    map_free(&hints->pools);
    hints->apart_count = 0;
    return true;
}

bool replay_hints_learn(const struct replay *replay, struct replay_hints *hints)
{
    if (!replay->mismatch.is_set || hints->attempts >= ATTEMPTS_MAX) {
        return false;
    }
    hints->attempts++;
    return learn_size(replay, hints) || learn_choice(replay, hints) || learn_apart(replay, hints) ||
           learn_pool(replay, hints) || learn_beginning(replay, hints) || learn_manner(replay, hints);
}
