/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which call the program made next: the history tells what the allocator did, not what it was asked. The
 * plain cases (a request that the cache served, a free that was completed at once) are decided here by one
 * look at the next event; everything with completions or releases in front of a request is attribute_releases.c's.
 *
 * A free that other streams held back uses one pseudo stream per block: its handle carries the number of the
 * completing event, so that the allocator, which visits its event queues by handle, completes blocks in the
 * history's order. The rules are those of PyTorch's trace; what each call did is compared in
 * compare.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/progress.h"

#include <assert.h>
#include <inttypes.h>

#define PSEUDO_STREAM (UINT64_C(1) << 63)
#define PSEUDO_NEVER (UINT64_C(3) << 62)
#define PROGRESS_EVENTS 65536

uint64_t replay_completion_stream(size_t completion)
{
    return PSEUDO_STREAM + completion;
}

uint64_t replay_pseudo_stream(const struct replay *replay, size_t deferred)
{
    size_t completion = replay->scan.deferred[deferred].completion;

    return completion == REPLAY_NONE ? PSEUDO_NEVER + deferred : replay_completion_stream(completion);
}

bool replay_request_at(const struct replay *replay, size_t index, struct replay_request *request_out)
{
    const struct history_event *events = replay->trace->events;
    size_t count = replay->trace->event_count;

    if (index >= count ||
        (events[index].action != HISTORY_ALLOC && events[index].action != HISTORY_OOM &&
         events[index].action != HISTORY_SEGMENT_ALLOC && events[index].action != HISTORY_SEGMENT_MAP)) {
        return false;
    }
    while (index < count && events[index].action != HISTORY_ALLOC && events[index].action != HISTORY_OOM) {
        index++;
    }
    if (index == count) {
        return false;
    }
    *request_out = (struct replay_request){
        .event = index,
        .bytes = events[index].size,
        .stream = events[index].stream,
        .pool = replay->pools.of_event != NULL ? replay->pools.of_event[index] : 0,
    };
    return true;
}

int replay_pool_enter(struct replay *replay, uint16_t pool)
{
    if (pool == 0) {
        return VARVE_OK;
    }
    return varve_alloc_begin_allocate_to_pool(replay->alloc, replay->pools.pools[pool].id, NULL, NULL);
}

int replay_pool_leave(struct replay *replay, uint16_t pool)
{
    struct replay_pool *left;
    int result;

    if (pool == 0) {
        return VARVE_OK;
    }
    left = &replay->pools.pools[pool];
    result = varve_alloc_end_allocate_to_pool(replay->alloc, left->id);
    if (result != VARVE_OK || !left->is_made || left->is_freeable) {
        left->is_made = true;
        left->is_freeable = false; /* the reference of this visit keeps it */
        return result;
    }
    return varve_alloc_release_pool(replay->alloc, left->id);
}

/* A result that neither the history nor a decision explains. */
static int fail_call(struct replay *replay, const char *call, int error, const struct varve_message *message)
{
    if (!replay->mismatch.is_set) {
        replay_differs(replay, "%s: %s", call,
                       message->text[0] != '\0' ? message->text : varve_strerror(error));
    }
    return VARVE_OK;
}

int replay_malloc(struct replay *replay, const struct replay_request *request)
{
    uint64_t stream = replay->history->streams[request->stream];
    struct varve_message message = {""};
    size_t begin = replay->cursor;
    uint64_t addr = 0;
    int result = VARVE_OK;

    replay->stream = request->stream;
    replay->pool = request->pool;
    if (request->pool != 0) {
        result = replay_pool_enter(replay, request->pool);
    }
    if (result == VARVE_OK) {
        result = varve_alloc_raw_alloc_with_stream(replay->alloc, request->bytes, stream, &addr, &message);
        if (request->pool != 0) {
            int left = replay_pool_leave(replay, request->pool);

            result = result == VARVE_OK ? left : result;
        }
    }
    replay->allocations += result == VARVE_OK ? 1 : 0;
    if (result != VARVE_OK && result != VARVE_ERROR_NO_MEMORY) {
        return fail_call(replay, "alloc", result, &message);
    }
    if (replay->cursor <= request->event && !replay->mismatch.is_set) {
        /* some of it came, and the rest did not */
        replay_differs(replay, "nothing more, after event %zu, from an alloc of %" PRIu64 " bytes", begin,
                       request->bytes);
    }
    return VARVE_OK;
}

/* What comes behind a completion within a request. */
static const bool may_follow_a_wait[HISTORY_ACTION_LIMIT] = {
    [HISTORY_FREE_COMPLETED] = true,
    [HISTORY_SEGMENT_FREE] = true,
    [HISTORY_SEGMENT_UNMAP] = true,
    [HISTORY_OOM] = true,

};

/* The stream that holds a freed block back, 0 if none does, and the event behind the free. */
static int holding_stream(struct replay *replay, uint64_t *stream_out, size_t *end_out)
{
    const struct history_device *trace = replay->trace;
    size_t completion = replay_decision(trace, replay->cursor + 1);
    bool is_held = false;
    int result = VARVE_OK;

    *end_out = completion;
    *stream_out = 0;
    if (!replay_is_immediate(trace, replay->cursor)) {
        assert(replay->scan.deferred[replay->deferred_next].request == replay->cursor);
        *stream_out = replay_pseudo_stream(replay, replay->deferred_next++);
        return VARVE_OK;
    }
    *end_out = replay_decision(trace, completion + 1);
    if (*end_out < trace->event_count && may_follow_a_wait[trace->events[*end_out].action]) {
        result = replay_is_held(replay, completion, &is_held);
    }
    if (is_held) {
        *stream_out = replay_completion_stream(completion);
        *end_out = completion;
    }
    return result;
}

static int follow_free(struct replay *replay, const struct history_event *event)
{
    struct varve_message message = {""};
    uint64_t stream;
    size_t end;
    int result = holding_stream(replay, &stream, &end);

    if (result == VARVE_OK && stream != 0) {
        result = varve_alloc_record_stream(replay->alloc, event->addr, stream, &message);
    }
    if (result == VARVE_OK) {
        result = varve_alloc_raw_delete(replay->alloc, event->addr, &message);
    }
    if (result != VARVE_OK) {
        return fail_call(replay, "free", result, &message);
    }
    if (replay->cursor != end && !replay->mismatch.is_set) {
        replay_differs(replay, "nothing more from the free of 0x%" PRIx64, event->addr);
    }
    return VARVE_OK;
}

/* Blocks that were waiting for other streams when the history began; some still do at its end. */
static int make_pending(struct replay *replay, struct varve_message *message)
{
    const struct varve_alloc_snapshot *start = &replay->start;
    struct replay_map completions = {0}; /* address → event */
    int result = VARVE_OK;

    for (size_t i = 0; i < replay->scan.early_count; i++) {
        size_t completion = replay->scan.early[i];

        replay_map_put(&completions, replay->trace->events[completion].addr, completion);
    }
    for (size_t i = 0; i < start->block_count && result == VARVE_OK; i++) {
        const uint64_t *completion;

        if (start->blocks[i].state != VARVE_BLOCK_ACTIVE_PENDING_FREE) {
            continue;
        }
        completion = replay_map_find(&completions, start->blocks[i].addr);
        result =
            varve_alloc_record_stream(replay->alloc, start->blocks[i].addr,
                                      completion != NULL ? replay_completion_stream(*completion)
                                                         : PSEUDO_NEVER + replay->scan.deferred_count + i,
                                      message);
        if (result == VARVE_OK) {
            result = varve_alloc_raw_delete(replay->alloc, start->blocks[i].addr, message);
        }
    }
    replay_map_free(&completions);
    return result;
}

int replay_make_start(struct replay *replay, struct varve_message *message)
{
    int result;

    if (replay->start.segment_count == 0) {
        return VARVE_OK;
    }
    replay->is_starting = true;
    result = varve_alloc_restore(replay->alloc, &replay->start, message);
    if (result == VARVE_OK) {
        result = make_pending(replay, message);
    }
    replay->is_starting = false;
    for (size_t i = 1; i < replay->pools.count; i++) {
        for (size_t j = 0; j < replay->start.segment_count; j++) {
            const struct varve_pool_id *id = &replay->start.segments[j].pool;

            replay->pools.pools[i].is_made |= id->capture == replay->pools.pools[i].id.capture &&
                                              id->user == replay->pools.pools[i].id.user;
        }
    }
    return result;
}

int replay_follow(struct replay *replay, struct varve_message *message)
{
    const struct history_device *trace = replay->trace;
    size_t reported = 0;
    int result = VARVE_OK;

    (void)message;
    replay->cursor = replay_decision(trace, 0);
    while (result == VARVE_OK && replay->cursor < trace->event_count && !replay->mismatch.is_set) {
        const struct history_event *event = &trace->events[replay->cursor];

        if (replay->cursor - reported >= PROGRESS_EVENTS && replay->options->progress != NULL) {
            reported = replay->cursor;
            progress_step(replay->options->progress, "replaying", reported, trace->event_count);
        }
        if (event->action == HISTORY_FREE_REQUESTED) {
            result = follow_free(replay, event);
        } else if (event->action == HISTORY_FREE_COMPLETED || event->action == HISTORY_SEGMENT_FREE ||
                   event->action == HISTORY_SEGMENT_UNMAP) {
            result = replay_burst(replay);
        } else {
            struct replay_request request;

            if (replay_request_at(replay, replay->cursor, &request)) {
                result = replay_malloc(replay, &request);
            } else {
                replay_differs(replay, "the history ends within a request");
            }
        }
    }
    return result;
}
