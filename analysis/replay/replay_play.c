/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following: the plain cases (a request that the cache served, a free that was completed at once) are decided by one
 * look at the next event; everything with completions or releases in front of a request is attribute_releases.c's. A
 * free that other streams deferred uses one pseudo stream per block: its handle carries the number of the completing
 * event, so that the allocator, which visits its event queues by handle, completes blocks in the history's order.
 * Under other rules: allocs with size and stream, frees of the same allocations, and deferred completions, wherever
 * the blocks lie now. A request that failed in the history is made again; one that fails now is counted, and its free
 * is left out. empty_cache is called, and private pools end, where following has found that. In a history that does not
 * come out again empty_cache is called where releases are that no request follows; others cannot be distinguished from
 * those of the out-of-memory chain, which belong to the history's policy.
 */
#include "analysis/replay/replay_session.h"

#include "analysis/base/progress.h"
#include "analysis/base/key_map.h"
#include "analysis/history/infer_ranges.h"
#include "analysis/history/infer_device.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define PSEUDO_STREAM (UINT64_C(1) << 63)
#define PSEUDO_NEVER (UINT64_C(3) << 62)
#define PROGRESS_EVENTS 65536

uint64_t replay_completion_stream(size_t completion)
{
    return PSEUDO_STREAM + completion;
}

uint64_t replay_pseudo_stream(const struct replay *replay, size_t deferred)
{
    size_t completion = replay->inferred->scan.deferred[deferred].completion;
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
        .pool = replay->inferred->pools.of_event != NULL ? replay->inferred->pools.of_event[index] : 0,
    };
    return true;
}

/* A result that neither the history nor a decision explains. */
static int fail_call(struct replay *replay, const char *call, int error, const struct varve_message *message)
{
    if (!replay->mismatch.is_set) {
        replay_differs(replay, "%s: %s", call, message->text[0] != '\0' ? message->text : varve_strerror(error));
    }
    return VARVE_OK;
}

static bool takes_no_stream(void *context, uint64_t stream)
{
    (void)context;
    (void)stream;
    return false;
}

/* In the request's pool, or in the default one while others allocate to a private one. */
static int request_as_recorded(struct replay *replay, const struct replay_request *request,
                               const struct replay_failure *failure, struct varve_message *message)
{
    const struct varve_pool_id nameless = {UINT64_MAX, UINT64_MAX};
    bool is_captured = failure->way == REPLAY_FAILS_IN_CAPTURE;
    uint64_t addr = 0;
    replay->stream = request->stream;
    replay->pool = failure->way == REPLAY_FAILS_IN_POOL ? failure->pool : request->pool;
    int result = is_captured ? varve_alloc_begin_allocate_to_pool(replay->alloc, nameless, takes_no_stream, NULL)
                             : replay_pool_enter(replay, replay->pool);
    if (result != VARVE_OK) {
        return result;
    }
    result = varve_alloc_raw_alloc_with_stream(replay->alloc, request->bytes, replay->history->streams[request->stream],
                                               &addr, message);
    int left = is_captured ? varve_alloc_end_allocate_to_pool(replay->alloc, nameless)
                           : replay_pool_leave(replay, replay->pool);
    if (is_captured && left == VARVE_OK) {
        left = varve_alloc_release_pool(replay->alloc, nameless);
    }
    return result == VARVE_OK ? left : result;
}

int replay_malloc(struct replay *replay, const struct replay_request *request)
{
    struct varve_message message = {""};
    size_t begin = replay->cursor;
    struct replay_failure failure;
    if (replay_is_without_user(replay, request)) {
        replay_differs(replay, "no request: nobody uses that private pool any more, and it still has segments");
        return VARVE_OK;
    }
    int result = replay_find_failure(replay, request, &failure);
    if (result != VARVE_OK) {
        return result;
    }
    result = request_as_recorded(replay, request, &failure, &message);
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

/* The stream that defers a free, 0 if none does, and the event behind the free. */
static int deferring_stream(struct replay *replay, uint64_t *stream_out, size_t *end_out)
{
    const struct history_device *trace = replay->trace;
    size_t completion = replay_decision(trace, replay->cursor + 1);
    *end_out = completion;
    *stream_out = 0;
    if (!replay_is_immediate(trace, replay->cursor)) {
        assert(replay->inferred->scan.deferred[replay->deferred_next].request == replay->cursor);
        *stream_out = replay_pseudo_stream(replay, replay->deferred_next++);
        return VARVE_OK;
    }
    *end_out = replay_decision(trace, completion + 1);
    int result = VARVE_OK;
    bool is_deferred = false;
    if (*end_out < trace->event_count && may_follow_a_wait[trace->events[*end_out].action]) {
        result = replay_is_deferred(replay, completion, &is_deferred);
    }
    if (is_deferred) {
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
    int result = deferring_stream(replay, &stream, &end);
    if (result == VARVE_OK && stream != 0) {
        result = varve_alloc_record_stream(replay->alloc, event->addr, stream, &message);
    }
    VARVE_THEN(result, varve_alloc_raw_delete(replay->alloc, event->addr, &message));
    if (result != VARVE_OK) {
        return fail_call(replay, "free", result, &message);
    }
    if (replay->cursor != end && !replay->mismatch.is_set) {
        replay_differs(replay, "nothing more from the free of 0x%" PRIx64, event->addr);
    }
    return VARVE_OK;
}

/* Blocks that were waiting for other streams when the history began; some still do at its end. `addr_of`: where the
 * start's blocks are now; NULL: where the start says. */
static int make_pending(struct replay *replay, const uint64_t *addr_of, struct varve_message *message)
{
    const struct varve_alloc_snapshot *start = &replay->inferred->start;
    struct map completions = {0}; /* address → event */
    for (size_t i = 0; i < replay->inferred->scan.early_count; i++) {
        size_t completion = replay->inferred->scan.early[i];
        if (!map_try_put(&completions, replay->trace->events[completion].addr, completion)) {
            map_free(&completions);
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    int result = VARVE_OK;
    for (size_t i = 0; i < start->block_count && result == VARVE_OK; i++) {
        uint64_t addr = addr_of != NULL ? addr_of[i] : start->blocks[i].addr;
        if (start->blocks[i].state != VARVE_BLOCK_ACTIVE_PENDING_FREE || addr == 0) {
            continue;
        }
        uint64_t completion = map_find(&completions, start->blocks[i].addr);
        result =
            varve_alloc_record_stream(replay->alloc, addr,
                                      completion != MAP_NONE ? replay_completion_stream(completion)
                                                             : PSEUDO_NEVER + replay->inferred->scan.deferred_count + i,
                                      message);
        VARVE_THEN(result, varve_alloc_raw_delete(replay->alloc, addr, message));
    }
    map_free(&completions);
    return result;
}

int replay_make_start(struct replay *replay, struct varve_message *message)
{
    if (replay->inferred->start.segment_count == 0) {
        return VARVE_OK;
    }
    replay->is_starting = true;
    int result = varve_alloc_restore(replay->alloc, &replay->inferred->start, message);
    if (result == VARVE_ERROR_UNSUPPORTED && !replay->options->follow) {
        replay->is_starting = false;
        replay->requests_start = true; /* replay_whatif does it */
        return VARVE_OK;
    }
    VARVE_THEN(result, make_pending(replay, NULL, message));
    replay->is_starting = false;
    for (size_t i = 1; i < replay->inferred->pools.count; i++) {
        for (size_t j = 0; j < replay->inferred->start.segment_count; j++) {
            const struct varve_segment_info *segment = &replay->inferred->start.segments[j];
            if (replay_same_pool(segment->pool, replay->inferred->pools.ids[i])) {
                replay->pools[i].is_made = true;
                replay->pools[i].reserved += (int64_t)segment->bytes;
            }
        }
    }
    return result;
}

int replay_note_start(struct replay *replay)
{
    struct varve_alloc_stats stats;
    int result = varve_alloc_get_device_stats(replay->alloc, &stats);
    if (result == VARVE_OK) {
        replay->start = (struct replay_start){
            .reserved = stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].current,
            .allocated = stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].current,
            .requested = stats.requested_bytes[VARVE_ALLOC_STAT_ALL].current,
            .device_calls = stats.num_device_alloc + stats.num_device_free,
            .clock_ns = varve_sim_clock_ns(replay->device),
            .is_inherited = !replay->requests_start,
        };
    }
    return result;
}

int replay_follow(struct replay *replay)
{
    const struct history_device *trace = replay->trace;
    replay->cursor = replay_decision(trace, 0);
    size_t reported = 0;
    int result = replay_note_start(replay);
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
            result = replay_attribute_releases(replay);
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

/* ---- the requests under other rules ---- */

struct whatif {
    struct replay *replay;
    struct map live; /* address in the history → address here */
    size_t released; /* end of the run of releases that pools were retired by */
    struct replay_result *result;
    struct varve_message *message;
    size_t run_end; /* of the completions and releases at hand */
};

static int request(struct whatif *whatif, const struct history_event *event, size_t index)
{
    struct replay *replay = whatif->replay;
    uint16_t pool = replay->inferred->pools.of_event != NULL ? replay->inferred->pools.of_event[index] : 0;
    struct varve_message message = {""};
    if (replay->options->skip != NULL && replay->options->skip(replay->options->skip_context, event)) {
        return VARVE_OK;
    }
    replay->stream = event->stream;
    replay->pool = pool;
    int result = replay_pool_enter(replay, pool);
    if (result != VARVE_OK) {
        return result;
    }
    uint64_t addr;
    result = varve_alloc_raw_alloc_with_stream(replay->alloc, event->size, replay->history->streams[event->stream],
                                               &addr, &message);
    int left = replay_pool_leave(replay, pool);
    if (replay->options->observe != NULL) {
        replay->options->observe(replay->options->observe_context, replay->alloc, result != VARVE_OK);
    }
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
        return map_try_put(&whatif->live, event->addr, addr) ? left : VARVE_ERROR_NO_MEMORY;
    }
    /* nobody used what the program did not get */
    result = varve_alloc_raw_delete(replay->alloc, addr, whatif->message);
    return result == VARVE_OK ? left : result;
}

static int replay_play_give_back(struct whatif *whatif, const struct history_event *event, size_t index)
{
    struct replay *replay = whatif->replay;
    bool is_immediate = replay_is_immediate(replay->trace, index);
    size_t deferred = is_immediate ? 0 : replay->deferred_next++;
    uint64_t addr = map_remove(&whatif->live, event->addr);
    if (addr == MAP_NONE) {
        whatif->result->skipped++;
        return VARVE_OK;
    }
    if (!is_immediate) {
        int result =
            varve_alloc_record_stream(replay->alloc, addr, replay_pseudo_stream(replay, deferred), whatif->message);
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

/* Where the calls are not known: the last release of a run, with no request behind it. */
static bool ends_empty_cache(const struct replay *replay, size_t index)
{
    size_t next = replay_decision(replay->trace, index + 1);
    struct replay_request ignored;
    return next >= replay->trace->event_count ||
           (!is_release(&replay->trace->events[next]) && !replay_request_at(replay, next, &ignored) &&
            replay->trace->events[next].action != HISTORY_FREE_COMPLETED);
}

/* A release in the history: only calls of empty_cache and ends of private pools are the program's. */
static int replay_play_release(struct whatif *whatif, size_t index)
{
    struct replay *replay = whatif->replay;
    const struct replay_calls *calls = &replay->inferred->calls;
    if (!calls->are_known) {
        return ends_empty_cache(replay, index) ? varve_alloc_empty_cache(replay->alloc) : VARVE_OK;
    }
    int result = index >= whatif->released ? replay_retire_pools(replay, index, &whatif->released) : VARVE_OK;
    if (result != VARVE_OK || replay->emptied_next == calls->count ||
        calls->items[replay->emptied_next].event != index) {
        return result;
    }
    uint16_t pool = calls->items[replay->emptied_next++].pool;
    if (pool == 0) {
        return varve_alloc_empty_cache(replay->alloc);
    }
    result = varve_alloc_empty_pool(replay->alloc, replay->inferred->pools.ids[pool]);
    return result == VARVE_ERROR_NOT_FOUND ? VARVE_OK : result; /* under these rules it has gone before */
}

/* Completions and releases with nothing between them and a request that failed: they came with its wait for all
 * streams, after which the pool was not searched again. */
static bool is_before_oom(struct whatif *whatif, size_t index)
{
    const struct history_device *trace = whatif->replay->trace;
    if (index >= whatif->run_end) {
        whatif->run_end = index;
        while (whatif->run_end < trace->event_count &&
               (trace->events[whatif->run_end].action == HISTORY_FREE_COMPLETED ||
                is_release(&trace->events[whatif->run_end]))) {
            whatif->run_end++;
        }
    }
    return whatif->run_end < trace->event_count && trace->events[whatif->run_end].action == HISTORY_OOM;
}

static int play_failed(struct whatif *whatif, size_t index)
{
    struct replay *replay = whatif->replay;
    const struct history_event *events = replay->trace->events;
    int result = replay->options->served_only ? VARVE_OK : request(whatif, &events[index], index);
    for (size_t i = index;
         i > 0 && result == VARVE_OK && (events[i - 1].action == HISTORY_FREE_COMPLETED || is_release(&events[i - 1]));
         i--) {
        if (events[i - 1].action == HISTORY_FREE_COMPLETED) {
            result = varve_sim_stream_complete(replay->device, replay_completion_stream(i - 1));
        }
    }
    return result;
}

static int replay_play_event(struct whatif *whatif, size_t index)
{
    struct replay *replay = whatif->replay;
    const struct history_event *event = &replay->trace->events[index];
    switch (event->action) {
    case HISTORY_ALLOC:
        return request(whatif, event, index);
    case HISTORY_OOM:
        return play_failed(whatif, index);
    case HISTORY_FREE_REQUESTED:
        return replay_play_give_back(whatif, event, index);
    case HISTORY_FREE_COMPLETED:
        return is_before_oom(whatif, index)
                   ? VARVE_OK
                   : varve_sim_stream_complete(replay->device, replay_completion_stream(index));
    case HISTORY_SEGMENT_FREE:
    case HISTORY_SEGMENT_UNMAP:
        return replay_play_release(whatif, index);
    default:
        return VARVE_OK;
    }
}

/* Policies that cannot begin with given blocks are asked for them, segment by segment. What fails is not there. */
static int request_segment(struct whatif *whatif, const struct varve_segment_info *segment, uint64_t *addr_of)
{
    struct replay *replay = whatif->replay;
    const struct varve_alloc_snapshot *start = &replay->inferred->start;
    bool is_private = segment->pool.capture != 0 || segment->pool.user != 0;
    int result = is_private ? varve_alloc_begin_allocate_to_pool(replay->alloc, segment->pool, NULL, NULL) : VARVE_OK;
    for (size_t i = 0; i < segment->block_count && result == VARVE_OK; i++) {
        const struct varve_block_info *block = &start->blocks[segment->first_block + i];
        uint64_t *addr = &addr_of[segment->first_block + i];
        if (block->state == VARVE_BLOCK_INACTIVE) {
            continue;
        }
        result =
            varve_alloc_raw_alloc_with_stream(replay->alloc, block->requested, segment->stream, addr, whatif->message);
        if (result == VARVE_ERROR_NO_MEMORY) {
            whatif->result->ooms++;
            result = VARVE_OK;
        } else if (result == VARVE_OK && block->state == VARVE_BLOCK_ACTIVE_ALLOCATED &&
                   !map_try_put(&whatif->live, block->addr, *addr)) {
            result = VARVE_ERROR_NO_MEMORY;
        }
    }
    if (is_private && result == VARVE_OK) {
        result = varve_alloc_end_allocate_to_pool(replay->alloc, segment->pool);
    }
    return result;
}

static int request_start(struct whatif *whatif)
{
    const struct varve_alloc_snapshot *start = &whatif->replay->inferred->start;
    uint64_t *addr_of = calloc(start->block_count + 1, sizeof(*addr_of));
    int result = addr_of != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    for (size_t i = 0; i < start->segment_count && result == VARVE_OK; i++) {
        result = request_segment(whatif, &start->segments[i], addr_of);
    }
    VARVE_THEN(result, make_pending(whatif->replay, addr_of, whatif->message));
    free(addr_of);
    return result;
}

/* What was there before the history began has the address that the start state gave it. */
static int replay_play_add_start(struct whatif *whatif)
{
    const struct varve_alloc_snapshot *start = &whatif->replay->inferred->start;
    if (whatif->replay->requests_start) {
        return request_start(whatif);
    }

    for (size_t i = 0; i < start->block_count; i++) {
        if (start->blocks[i].state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
            if (!map_try_put(&whatif->live, start->blocks[i].addr, start->blocks[i].addr)) {
                return VARVE_ERROR_NO_MEMORY;
            }
        }
    }
    return VARVE_OK;
}

int replay_whatif(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    const struct history_device *trace = replay->trace;
    struct whatif whatif = {.replay = replay, .result = result, .message = message};
    uint64_t ooms_max = replay->options->stop_at_oom ? 0 : UINT64_MAX;
    int error = replay_play_add_start(&whatif);
    VARVE_THEN(error, replay_note_start(replay));
    for (size_t i = 0; i < trace->event_count && error == VARVE_OK && result->ooms <= ooms_max; i++) {
        if (i % PROGRESS_EVENTS == 0 && replay->options->progress != NULL) {
            progress_step(replay->options->progress, "replaying", i, trace->event_count);
        }
        replay->cursor = i;
        if (i == replay->options->empty_cache_before && i > 0) {
            error = varve_alloc_empty_cache(replay->alloc);
        }
        error = error == VARVE_OK ? replay_play_event(&whatif, i) : error;
    }
    map_free(&whatif.live);
    return error;
}
