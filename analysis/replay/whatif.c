/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a history under another policy or other settings: allocs with size and stream, frees of the
 * same allocations, and completions of frees that other streams held back, wherever the blocks lie now. A
 * request that failed in the history is made again; one that fails now is counted, and its free is left out.
 * empty_cache is called where the history shows releases that no request follows; others cannot be told from
 * those of the out-of-memory chain, which belong to the history's policy. Called by replay.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/progress.h"

#define PROGRESS_EVENTS 65536

struct whatif {
    struct replay *replay;
    struct replay_map live; /* address in the history → address here */
    struct replay_result *result;
    struct varve_message *message;
};

static int request(struct whatif *whatif, const struct history_event *event, size_t index)
{
    struct replay *replay = whatif->replay;
    uint16_t pool = replay->pools.of_event != NULL ? replay->pools.of_event[index] : 0;
    struct varve_message message = {""};
    uint64_t addr;
    int left;
    int result;

    replay->stream = event->stream;
    replay->pool = pool;
    result = replay_pool_enter(replay, pool);
    if (result != VARVE_OK) {
        return result;
    }
    result = varve_alloc_raw_alloc_with_stream(replay->alloc, event->size,
                                               replay->history->streams[event->stream], &addr, &message);
    left = replay_pool_leave(replay, pool);
    if (result == VARVE_ERROR_NO_MEMORY) {
        whatif->result->ooms++;
        return left;
    }
    if (result != VARVE_OK) {
        return varve_message_set(whatif->message, result, "event %zu: %s", index,
                                 message.text[0] != '\0' ? message.text : varve_strerror(result));
    }
    replay->allocations++;
    if (event->action == HISTORY_ALLOC) {
        replay_map_put(&whatif->live, event->addr, addr);
        return left;
    }
    /* nobody used what the program did not get */
    result = varve_alloc_raw_delete(replay->alloc, addr, whatif->message);
    return result == VARVE_OK ? left : result;
}

static int give_back(struct whatif *whatif, const struct history_event *event, size_t index)
{
    struct replay *replay = whatif->replay;
    bool is_immediate = replay_is_immediate(replay->trace, index);
    size_t deferred = is_immediate ? 0 : replay->deferred_next++;
    uint64_t addr;
    int result;

    if (!replay_map_take(&whatif->live, event->addr, &addr)) {
        whatif->result->skipped++;
        return VARVE_OK;
    }
    if (!is_immediate) {
        result = varve_alloc_record_stream(replay->alloc, addr, replay_pseudo_stream(replay, deferred),
                                           whatif->message);
        if (result != VARVE_OK) {
            return result;
        }
    }
    return varve_alloc_raw_delete(replay->alloc, addr, whatif->message);
}

static bool is_release(const struct history_event *event)
{
    return event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP;
}

/* The last release of a run, with no request behind it. */
static bool ends_empty_cache(const struct replay *replay, size_t index)
{
    size_t next = replay_decision(replay->trace, index + 1);
    struct replay_request ignored;

    return next >= replay->trace->event_count ||
           (!is_release(&replay->trace->events[next]) && !replay_request_at(replay, next, &ignored) &&
            replay->trace->events[next].action != HISTORY_FREE_COMPLETED);
}

static int play(struct whatif *whatif, size_t index)
{
    struct replay *replay = whatif->replay;
    const struct history_event *event = &replay->trace->events[index];

    switch (event->action) {
    case HISTORY_ALLOC:
    case HISTORY_OOM:
        return request(whatif, event, index);
    case HISTORY_FREE_REQUESTED:
        return give_back(whatif, event, index);
    case HISTORY_FREE_COMPLETED:
        return varve_sim_stream_complete(replay->device, replay_completion_stream(index));
    case HISTORY_SEGMENT_FREE:
    case HISTORY_SEGMENT_UNMAP:
        return ends_empty_cache(replay, index) ? varve_alloc_empty_cache(replay->alloc) : VARVE_OK;
    default:
        return VARVE_OK;
    }
}

/* What was there before the history began has the address that the start state gave it. */
static void take_start(struct whatif *whatif)
{
    const struct varve_alloc_snapshot *start = &whatif->replay->start;

    for (size_t i = 0; i < start->block_count; i++) {
        if (start->blocks[i].state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
            replay_map_put(&whatif->live, start->blocks[i].addr, start->blocks[i].addr);
        }
    }
}

int replay_whatif(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    const struct history_device *trace = replay->trace;
    struct whatif whatif = {.replay = replay, .result = result, .message = message};
    int error = VARVE_OK;

    take_start(&whatif);
    for (size_t i = 0; i < trace->event_count && error == VARVE_OK; i++) {
        if (i % PROGRESS_EVENTS == 0 && replay->options->progress != NULL) {
            progress_step(replay->options->progress, "replaying", i, trace->event_count);
        }
        replay->cursor = i;
        error = play(&whatif, i);
    }
    replay_map_free(&whatif.live);
    return error;
}
