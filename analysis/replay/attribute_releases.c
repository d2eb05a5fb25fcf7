/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the cursor there is a run C of completions, then a run R of releases, then the next event X.
 *
 *   X is no request          empty_cache did it
 *   the request would hit    empty_cache did it, since a hit releases nothing
 *   R is what the request's own chain would release (gc, release_available, release_cached)     the request
 *   R begins with what empty_cache would release                                                empty_cache
 *
 * C comes with the first step of a request (or of empty_cache). The exception is a request that releases all: it
 * waits for all streams in the middle, and does not search again. Both orders of C and R occur then, since gc and
 * release_available come before the wait. If several explanations fit, the request's own chain is preferred:
 * placement is the same, and only two counters differ.
 */
#include "analysis/replay/replay_session.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/infer_device.h"

#include <inttypes.h>

/* A run of completions and a run of releases (event numbers, end exclusive), and what comes then. */
struct run {
    size_t completed_begin, completed_end;
    size_t released_begin, released_end;
    size_t next;
    size_t completed, released; /* decisions in them */
};

/* Of the chain that a request without memory goes through. */
enum { GC, AVAILABLE, ALL, STAGES };

static const enum varve_alloc_stage stages[STAGES] = {
    VARVE_ALLOC_STAGE_GC,
    VARVE_ALLOC_STAGE_RELEASE_AVAILABLE,
    VARVE_ALLOC_STAGE_RELEASE_CACHED,
};

/* What the allocator would do with a request; replay.predicted holds what it would release meanwhile. */
struct prediction {
    bool is_hit;
    bool is_certain;       /* the limit decides how far the chain goes; else the device's fullness does */
    bool reaches_all;      /* the limit makes the request release everything */
    bool exceeds_capacity; /* the device cannot have room even after gc */
    size_t counts[STAGES]; /* of replay.predicted after each stage */
};

/* How many of the first `count` releases of `plan` are the events from `index` on, one by one. */
static size_t releases_equal(const struct replay *replay, size_t index, size_t end, const struct replay_releases *plan,
                             size_t count)
{
    const struct history_event *events = replay->trace->events;
    size_t equal = 0;
    for (; equal < count && index < end; equal++) {
        if (events[index].addr != plan->items[equal].addr || events[index].size != plan->items[equal].bytes) {
            break;
        }
        index = replay_decision(replay->trace, index + 1);
    }
    return equal;
}

/* ---- what a request, or empty_cache, would release now ---- */

/* Append what `stage` would release after the releases that the plan holds already. */
static int add_stage(struct replay *replay, struct replay_releases *plan, enum varve_alloc_stage stage, uint64_t bytes,
                     uint64_t stream, bool *success_out)
{
    size_t count = 0;
    int result;
    for (;;) {
        size_t room = plan->capacity - plan->count;
        result = varve_alloc_forecast_release(replay->alloc, stage, bytes, stream, plan->items, plan->count,
                                              plan->items == NULL ? NULL : plan->items + plan->count, room, &count,
                                              success_out);
        if (result != VARVE_OK || count <= room) {
            break;
        }
        plan->capacity = 2 * (plan->count + count);
        plan->items = memory_resize(plan->items, plan->capacity * sizeof(*plan->items));
    }
    plan->count += result == VARVE_OK ? count : 0;
    return result;
}

static uint64_t attribute_releases_bytes_of(const struct replay_releases *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->count; i++) {
        bytes += plan->items[i].bytes;
    }
    return bytes;
}

static int predict_in_pool(struct replay *replay, const struct replay_request *request, struct prediction *prediction)
{
    uint64_t stream = replay->history->streams[request->stream];
    uint64_t reserved = (uint64_t)varve_alloc_memory_reserved(replay->alloc);
    struct replay_releases *plan = &replay->predicted;
    struct varve_alloc_forecast forecast;
    int result = varve_alloc_forecast(replay->alloc, request->bytes, stream, &forecast);
    plan->count = 0;
    if (result != VARVE_OK) {
        return result;
    }
    *prediction = (struct prediction){
        .is_hit = forecast.is_hit,
        .is_certain = replay->limit > 0,
    };
    if (forecast.is_hit) {
        return VARVE_OK;
    }
    bool success = false;
    for (size_t i = 0; i < STAGES; i++) {
        prediction->reaches_all = i == ALL && replay->limit > 0;
        result = add_stage(replay, plan, stages[i], request->bytes, stream, &success);
        for (size_t j = i; j < STAGES; j++) {
            prediction->counts[j] = plan->count;
        }
        /* reserved, with the new segment */
        uint64_t left = reserved - attribute_releases_bytes_of(plan) + forecast.segment_bytes;
        prediction->exceeds_capacity |= i == GC && replay->options->capacity > 0 && left > replay->options->capacity;
        bool fits = replay->limit > 0 && left <= replay->limit && (i == GC || success);
        if (result != VARVE_OK || fits) {
            return result;
        }
    }
    return VARVE_OK;
}

/* Enters and leaves the request's pool; changes nothing else. */
static int predict(struct replay *replay, const struct replay_request *request, struct prediction *prediction_out)
{
    int result = replay_pool_enter(replay, request->pool);
    if (result != VARVE_OK) {
        return result;
    }
    result = predict_in_pool(replay, request, prediction_out);
    int left = replay_pool_leave(replay, request->pool);
    return result == VARVE_OK ? left : result;
}

/* What empty_cache would release, into replay->cached. */
static int predict_empty_cache(struct replay *replay)
{
    replay->cached.count = 0;
    bool success;
    return add_stage(replay, &replay->cached, VARVE_ALLOC_STAGE_RELEASE_CACHED, 0, 0, &success);
}

/* ---- whose releases they are ---- */

static struct run run_at(const struct replay *replay, size_t index)
{
    const struct history_device *trace = replay->trace;
    struct run run = {.completed_begin = index};
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
static int retire_pools(struct replay *replay, const struct run *run)
{
    const struct history_device *trace = replay->trace;
    if (replay->inferred->pools.of_event == NULL) {
        return VARVE_OK;
    }
    int result = VARVE_OK;
    for (size_t i = run->released_begin; i < run->released_end && result == VARVE_OK;
         i = replay_decision(trace, i + 1)) {
        uint16_t number = replay->inferred->pools.of_event[i];
        struct replay_pool_state *pool = &replay->pools[number];
        if (number != 0 && pool->is_made && !pool->is_freeable) {
            pool->is_freeable = true;
            result = varve_alloc_release_pool(replay->alloc, replay->inferred->pools.ids[number]);
        }
    }
    return result;
}

/* The other streams are done with the blocks of C: they become free. */
static int attribute_releases_complete(struct replay *replay, const struct run *run)
{
    if (run->completed == 0) {
        return VARVE_OK;
    }
    int result = VARVE_OK;
    for (size_t i = run->completed_begin; i < run->completed_end && result == VARVE_OK;
         i = replay_decision(replay->trace, i + 1)) {
        result = varve_sim_stream_complete(replay->device, replay_completion_stream(i));
    }
    VARVE_THEN(result, varve_alloc_process_events(replay->alloc));
    if (result == VARVE_OK && replay->cursor != run->completed_end) {
        replay_differs(replay, "nothing: that block is not waiting for another stream");
    }
    return result;
}

static int empty_cache(struct replay *replay, const struct run *run, size_t released)
{
    size_t end = run->released_begin;
    /* for replays under other rules, in which the releases come out otherwise */
    *MEMORY_ADD(replay->emptied, replay->emptied_count, replay->emptied_capacity) = run->released_begin;
    for (size_t i = 0; i < released; i++) {
        end = replay_decision(replay->trace, end + 1);
    }
    int result = varve_alloc_empty_cache(replay->alloc);
    if (result == VARVE_OK && replay->cursor != end) {
        replay_differs(replay, "nothing more from empty_cache");
    }
    return result;
}

/* What can be served behind a wait: a new segment, nothing at all, or (expandable) what became free at the
 * only address that is looked at. */
static bool can_follow_wait(const struct replay *replay, const struct run *run)
{
    const struct history_event *next = &replay->trace->events[run->next];
    switch (next->action) {
    case HISTORY_ALLOC:
        return replay->inferred->scan.has_maps;
    case HISTORY_OOM:
    case HISTORY_SEGMENT_MAP:
        return true;
    default:
        return run->released > 0;
    }
}

/* Blocks that wait for other streams. */
static int count_pending(struct replay *replay, size_t *count_out)
{
    struct varve_alloc_stats stats;
    int result = varve_alloc_get_device_stats(replay->alloc, &stats);
    *count_out = result == VARVE_OK ? (size_t)(stats.active[0].current - stats.allocation[0].current) : 0;
    return result;
}

/* Late completions: the request released everything, and they come with its wait, not before its search.
 * `is_held`: the first of them is of a block still in use. What does not come out is tried the other way. */
static int is_late(struct replay *replay, const struct run *run, const struct replay_request *request, bool is_held,
                   bool *answer_out)
{
    unsigned next = replay->trace->events[run->next].action;
    bool is_oom = replay->trace->events[request->event].action == HISTORY_OOM;
    *answer_out = false;
    if (run->completed == 0 || request->pool != 0 || !can_follow_wait(replay, run)) {
        return VARVE_OK;
    }
    size_t pending;
    int result = count_pending(replay, &pending);
    if (result != VARVE_OK || run->completed != pending + is_held) {
        return result; /* a wait completes all */
    }
    struct prediction prediction;
    result = predict(replay, request, &prediction);
    if (result != VARVE_OK || prediction.is_hit || prediction.counts[AVAILABLE] > 0 ||
        (prediction.is_certain ? !prediction.reaches_all : !is_oom)) {
        return result;
    }
    /* a free that looks immediate is that, unless the request failed all the same */
    *answer_out = replay_choose(replay, run->completed_begin, request->event,
                                next != HISTORY_ALLOC && (next != HISTORY_SEGMENT_MAP || run->released > 0) &&
                                    (!is_held || next == HISTORY_OOM));
    return VARVE_OK;
}

int replay_is_deferred(struct replay *replay, size_t completion, bool *answer_out)
{
    struct run run = run_at(replay, completion);
    *answer_out = false;
    struct replay_request request;
    if (!replay_request_at(replay, run.next, &request)) {
        return VARVE_OK;
    }
    return is_late(replay, &run, &request, true, answer_out);
}

/* gc or release_available, then the wait with its completions, then everything: R, C and R again. */
static int is_interrupted(struct replay *replay, const struct run *run, struct replay_request *request_out,
                          bool *answer_out)
{
    *answer_out = false;
    if (run->released == 0 || run->next >= replay->trace->event_count ||
        replay->trace->events[run->next].action != HISTORY_FREE_COMPLETED) {
        return VARVE_OK;
    }
    struct run rest = run_at(replay, run->next);
    if (!replay_request_at(replay, rest.next, request_out) || request_out->pool != 0) {
        return VARVE_OK;
    }
    struct prediction prediction;
    int result = predict(replay, request_out, &prediction);
    *answer_out = result == VARVE_OK && !prediction.is_hit && prediction.counts[AVAILABLE] == run->released &&
                  releases_equal(replay, run->released_begin, run->released_end, &replay->predicted, run->released) ==
                      run->released;
    return result;
}

/* Whether R is what the request itself would release. */
static bool attribute_releases_is_own(const struct replay *replay, const struct run *run,
                                      const struct replay_request *request, const struct prediction *prediction)
{
    if (prediction->is_hit) {
        return false;
    }
    size_t equal =
        releases_equal(replay, run->released_begin, run->released_end, &replay->predicted, prediction->counts[ALL]);
    if (equal != run->released) {
        return false;
    }
    if (prediction->is_certain || replay->trace->events[request->event].action == HISTORY_OOM) {
        return equal == prediction->counts[ALL];
    }
    return equal == prediction->counts[GC] || equal == prediction->counts[AVAILABLE] ||
           equal == prediction->counts[ALL];
}

/* Without a limit nothing distinguishes a full device from a call of empty_cache, if all was released. */
static bool prefers_empty_cache(const struct replay *replay, const struct replay_request *request,
                                const struct prediction *prediction)
{
    return !prediction->is_certain && !prediction->exceeds_capacity &&
           replay->trace->events[request->event].action != HISTORY_OOM && replay->cached.count > prediction->counts[GC];
}

static int attribute(struct replay *replay, const struct run *run, const struct replay_request *request)
{
    struct prediction prediction;
    int result = predict_empty_cache(replay);
    VARVE_THEN(result, predict(replay, request, &prediction));
    if (result != VARVE_OK) {
        return result;
    }
    bool is_all =
        replay->cached.count > 0 && releases_equal(replay, run->released_begin, run->released_end, &replay->cached,
                                                   replay->cached.count) == replay->cached.count;
    bool owns = attribute_releases_is_own(replay, run, request, &prediction);
    if (owns && !(is_all && prefers_empty_cache(replay, request, &prediction))) {
        return replay_malloc(replay, request);
    }
    if (is_all) {
        return empty_cache(replay, run, replay->cached.count);
    }
    size_t equal =
        releases_equal(replay, run->released_begin, run->released_end, &replay->cached, replay->cached.count);
    if (equal < replay->cached.count) {
        replay->landed = (struct replay_landing){.addr = replay->cached.items[equal].addr};
    }
    replay_differs(replay,
                   "neither the request nor empty_cache would release this: %zu segments are released here, "
                   "the request%s would release %zu, empty_cache %zu",
                   run->released, prediction.is_hit ? " (served by the cache)" : "", prediction.counts[ALL],
                   replay->cached.count);
    replay->limit_is_small = !prediction.is_hit && prediction.counts[ALL] > run->released;
    return VARVE_OK;
}

int replay_attribute_releases(struct replay *replay)
{
    struct run run = run_at(replay, replay->cursor);
    struct replay_request request;
    bool is_request = replay_request_at(replay, run.next, &request);
    bool answer = false;
    int result = retire_pools(replay, &run);
    if (result == VARVE_OK && is_request) {
        result = is_late(replay, &run, &request, false, &answer);
        if (result == VARVE_OK && answer) {
            return replay_malloc(replay, &request);
        }
    }
    VARVE_THEN(result, attribute_releases_complete(replay, &run));
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

int replay_retire_pools(struct replay *replay, size_t event, size_t *end_out)
{
    struct run run = run_at(replay, event);
    *end_out = run.released_end;
    return retire_pools(replay, &run);
}
