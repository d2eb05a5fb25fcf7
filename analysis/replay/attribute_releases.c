/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who completed blocks and gave segments back: a history shows free_completed and segment_free events, and
 * not whether empty_cache was called, or whether a request did it on its way through the out-of-memory chain.
 * From the cursor there is a run C of completions, then a run R of releases, then the next event X.
 *
 *   X is no request          empty_cache did it
 *   the request would hit    empty_cache did it, since a hit releases nothing
 *   R is what the request's own chain would release (gc, release_available, release_cached)     the request
 *   R begins with what empty_cache would release                                                empty_cache
 *
 * C comes with the first step of a request (or of empty_cache). The exception is a request that releases all:
 * it waits for all streams in the middle, and does not search again. Both orders of C and R occur then, since
 * gc and release_available come before the wait. If several explanations fit, the request's own chain is
 * preferred: placement is the same, and only two counters would tell.
 */
#include "analysis/replay/replay.h"

#include <inttypes.h>

static struct replay_run run_at(const struct replay *replay, size_t index)
{
    const struct history_device *trace = replay->trace;
    struct replay_run run = {.completed_begin = index};

    while (index < trace->event_count && trace->events[index].action == HISTORY_FREE_COMPLETED) {
        index = replay_decision(trace, index + 1);
        run.completed++;
    }
    run.completed_end = index;
    run.released_begin = index;
    while (index < trace->event_count && (trace->events[index].action == HISTORY_SEGMENT_FREE ||
                                          trace->events[index].action == HISTORY_SEGMENT_UNMAP)) {
        index = replay_decision(trace, index + 1);
        run.released++;
    }
    run.released_end = index;
    run.next = index;
    return run;
}

/* Private pools whose segments are given back have no user any more; the history's order of pools counts. */
static int retire_pools(struct replay *replay, const struct replay_run *run)
{
    const struct history_device *trace = replay->trace;
    int result = VARVE_OK;

    if (replay->pools.of_event == NULL) {
        return VARVE_OK;
    }
    for (size_t i = run->released_begin; i < run->released_end && result == VARVE_OK;
         i = replay_decision(trace, i + 1)) {
        struct replay_pool *pool = &replay->pools.pools[replay->pools.of_event[i]];

        if (pool != replay->pools.pools && pool->is_made && !pool->is_freeable) {
            pool->is_freeable = true;
            result = varve_alloc_release_pool(replay->alloc, pool->id);
        }
    }
    return result;
}

/* The other streams are done with the blocks of C: they become free. */
static int complete(struct replay *replay, const struct replay_run *run)
{
    int result = VARVE_OK;

    if (run->completed == 0) {
        return VARVE_OK;
    }
    for (size_t i = run->completed_begin; i < run->completed_end && result == VARVE_OK;
         i = replay_decision(replay->trace, i + 1)) {
        result = varve_sim_stream_complete(replay->device, replay_completion_stream(i));
    }
    if (result == VARVE_OK) {
        result = varve_alloc_process_events(replay->alloc);
    }
    if (result == VARVE_OK && replay->cursor != run->completed_end) {
        replay_differs(replay, "nothing: that block is not waiting for another stream");
    }
    return result;
}

static int empty_cache(struct replay *replay, const struct replay_run *run, size_t released)
{
    size_t end = run->released_begin;
    int result;

    for (size_t i = 0; i < released; i++) {
        end = replay_decision(replay->trace, end + 1);
    }
    result = varve_alloc_empty_cache(replay->alloc);
    if (result == VARVE_OK && replay->cursor != end) {
        replay_differs(replay, "nothing more from empty_cache");
    }
    return result;
}

/* What can be served behind a wait: a new segment, nothing at all, or (expandable) what became free at the
 * only place that is looked at. */
static bool can_follow_wait(const struct replay *replay, const struct replay_run *run)
{
    const struct history_event *next = &replay->trace->events[run->next];

    switch (next->action) {
    case HISTORY_ALLOC:
        return replay->scan.has_maps;
    case HISTORY_OOM:
    case HISTORY_SEGMENT_MAP:
        return true;
    default:
        return run->released > 0;
    }
}

/* The request releases everything, and the completions come with its wait, not before its search.
 * `held_addr`: a block still in use that is to be one of them; 0: none. */
static int is_late(struct replay *replay, const struct replay_run *run, const struct replay_request *request,
                   uint64_t held_addr, bool *answer_out)
{
    const struct history_event *events = replay->trace->events;
    struct replay_held held = {.addr = held_addr, .stream = replay->history->streams[request->stream]};
    struct replay_prediction prediction;
    struct replay_completion completion;
    bool likely;
    int result;

    *answer_out = false;
    if (run->completed == 0 || request->pool != 0 || !can_follow_wait(replay, run)) {
        return VARVE_OK;
    }
    result = replay_predict(replay, request, &prediction);
    if (result != VARVE_OK || prediction.is_hit || prediction.available_count > 0 ||
        (prediction.is_certain ? !prediction.reaches_all : events[request->event].action != HISTORY_OOM)) {
        return result;
    }
    held.is_small = prediction.is_small;
    result = replay_after_completion(replay, run, &held, &completion);
    if (result != VARVE_OK || !completion.is_all) {
        return result;
    }
    if (events[run->next].action == HISTORY_ALLOC ||
        (events[run->next].action == HISTORY_SEGMENT_MAP && run->released == 0)) {
        likely = false;
    } else {
        /* a free that looks immediate is that, unless the request would have found the block */
        likely = held_addr == 0 || events[run->next].action == HISTORY_OOM ||
                 completion.largest_left >= prediction.rounded;
    }
    *answer_out = replay_choose(replay, run->completed_begin, request->event, likely);
    return VARVE_OK;
}

int replay_is_held(struct replay *replay, size_t completion, bool *answer_out)
{
    struct replay_run run = run_at(replay, completion);
    struct replay_request request;

    *answer_out = false;
    if (!replay_request_at(replay, run.next, &request)) {
        return VARVE_OK;
    }
    return is_late(replay, &run, &request, replay->trace->events[completion].addr, answer_out);
}

/* gc or release_available, then the wait with its completions, then everything: R, C and R again. */
static int is_interrupted(struct replay *replay, const struct replay_run *run,
                          struct replay_request *request_out, bool *answer_out)
{
    struct replay_prediction prediction;
    struct replay_run rest;
    int result;

    *answer_out = false;
    if (run->released == 0 || run->next >= replay->trace->event_count ||
        replay->trace->events[run->next].action != HISTORY_FREE_COMPLETED) {
        return VARVE_OK;
    }
    rest = run_at(replay, run->next);
    if (!replay_request_at(replay, rest.next, request_out) || request_out->pool != 0) {
        return VARVE_OK;
    }
    result = replay_predict(replay, request_out, &prediction);
    *answer_out = result == VARVE_OK && !prediction.is_hit && prediction.available_count == run->released &&
                  replay_releases_equal(replay, run->released_begin, run->released_end, &replay->predicted,
                                        run->released) == run->released;
    return result;
}

/* Whether R is what the request itself would release. */
static bool is_own(const struct replay *replay, const struct replay_run *run,
                   const struct replay_request *request, const struct replay_prediction *prediction)
{
    size_t equal;

    if (prediction->is_hit) {
        return false;
    }
    equal = replay_releases_equal(replay, run->released_begin, run->released_end, &replay->predicted,
                                  prediction->all_count);
    if (equal != run->released) {
        return false;
    }
    if (prediction->is_certain || replay->trace->events[request->event].action == HISTORY_OOM) {
        return equal == prediction->all_count;
    }
    return equal == prediction->gc_count || equal == prediction->available_count ||
           equal == prediction->all_count;
}

/* Without a limit nothing tells a full device from a call of empty_cache, if all was released. */
static bool prefers_empty_cache(const struct replay *replay, const struct replay_request *request,
                                const struct replay_prediction *prediction)
{
    return !prediction->is_certain && !prediction->exceeds_capacity &&
           replay->trace->events[request->event].action != HISTORY_OOM &&
           replay->cached.count > prediction->gc_count;
}

static int attribute(struct replay *replay, const struct replay_run *run,
                     const struct replay_request *request)
{
    struct replay_prediction prediction;
    size_t equal;
    bool is_all;
    bool owns;
    int result = replay_predict_empty_cache(replay);

    if (result == VARVE_OK) {
        result = replay_predict(replay, request, &prediction);
    }
    if (result != VARVE_OK) {
        return result;
    }
    is_all = replay->cached.count > 0 &&
             replay_releases_equal(replay, run->released_begin, run->released_end, &replay->cached,
                                   replay->cached.count) == replay->cached.count;
    owns = is_own(replay, run, request, &prediction);
    if (owns && !(is_all && prefers_empty_cache(replay, request, &prediction))) {
        return replay_malloc(replay, request);
    }
    if (is_all) {
        return empty_cache(replay, run, replay->cached.count);
    }
    equal = replay_releases_equal(replay, run->released_begin, run->released_end, &replay->cached,
                                  replay->cached.count);
    if (equal < replay->cached.count) {
        replay->landed = (struct replay_landing){.addr = replay->cached.items[equal].addr};
    }
    replay_differs(replay,
                   "neither the request nor empty_cache would release this: %zu segments are released here, "
                   "the request%s would release %zu, empty_cache %zu",
                   run->released, prediction.is_hit ? " (served by the cache)" : "", prediction.all_count,
                   replay->cached.count);
    return VARVE_OK;
}

int replay_burst(struct replay *replay)
{
    struct replay_run run = run_at(replay, replay->cursor);
    struct replay_request request;
    bool is_request = replay_request_at(replay, run.next, &request);
    bool answer = false;
    int result = retire_pools(replay, &run);

    if (result == VARVE_OK && is_request) {
        result = is_late(replay, &run, &request, 0, &answer);
        if (result == VARVE_OK && answer) {
            return replay_malloc(replay, &request);
        }
    }
    if (result == VARVE_OK) {
        result = complete(replay, &run);
    }
    if (result != VARVE_OK || replay->mismatch.is_set) {
        return result;
    }
    if (is_request) {
        return run.released == 0 ? replay_malloc(replay, &request) : attribute(replay, &run, &request);
    }
    if (run.released == 0 && run.completed_begin == replay_decision(replay->trace, 0)) {
        return VARVE_OK; /* a ring that was overwritten begins in the middle of a free */
    }
    result = is_interrupted(replay, &run, &request, &answer);
    if (result == VARVE_OK && answer) {
        return replay_malloc(replay, &request);
    }
    return result == VARVE_OK ? empty_cache(replay, &run, run.released) : result;
}
