/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the cursor there is a run C of completions, then a run R of releases, then the next event X.
 *
 *   R is what the request's own chain would release (gc, release_available, release_cached)     the request
 *   R begins with what empty_cache would release                                                empty_cache
 *   R begins with segments of a private pool                     the end of that pool, which empties it alone
 *
 * A request that would hit releases nothing. What is left of R is looked at again.
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
    for (size_t i = 0; i < (request->pool == 0 ? STAGES : ALL); i++) { /* no wait while a private pool is in use */
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

/* The pool has no user any more, and is released behind all others that have none. */
static int retire_pool(struct replay *replay, uint16_t number)
{
    struct replay_pool_state *pool = &replay->pools[number];
    struct varve_pool_id id = replay->inferred->pools.ids[number];
    int result = pool->is_freeable ? varve_alloc_create_or_incref_pool(replay->alloc, id) : VARVE_OK;
    VARVE_THEN(result, varve_alloc_release_pool(replay->alloc, id));
    pool->is_freeable |= result == VARVE_OK;
    return result;
}

/* Enters and leaves the request's pool; changes nothing else but the order of pools without a user. */
static int predict(struct replay *replay, const struct replay_request *request, struct prediction *prediction_out)
{
    bool was_freeable = replay->pools[request->pool].is_freeable;
    int result = replay_pool_enter(replay, request->pool);
    if (result != VARVE_OK) {
        return result;
    }
    result = predict_in_pool(replay, request, prediction_out);
    int left = replay_pool_leave(replay, request->pool);
    if (was_freeable && left == VARVE_OK) {
        left = retire_pool(replay, request->pool);
    }
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

/* Private pools whose segments are given back have no user any more. They are released in the history's order: PyTorch
 * has them in a hash map, whose order is anyone's. */
static int retire_pools(struct replay *replay, const struct run *run)
{
    uint16_t last = 0;
    if (replay->inferred->pools.of_event == NULL) {
        return VARVE_OK;
    }
    int result = VARVE_OK;
    for (size_t i = run->released_begin; i < run->released_end && result == VARVE_OK;
         i = replay_decision(replay->trace, i + 1)) {
        uint16_t number = replay->inferred->pools.of_event[i];
        if (number != 0 && number != last && replay->pools[number].is_made) {
            if (!replay->pools[number].is_freeable) {
                replay->pools[number].retired_by = run->released_begin;
            }
            result = retire_pool(replay, number);
        }
        last = number;
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

/* A call that the program made: of empty_cache, or of the end of a private pool, which releases the first of R. */
static int empty_pool(struct replay *replay, const struct run *run, uint16_t pool, size_t released)
{
    size_t end = run->released_begin;
    if (released > 0) { /* for replays under other rules, in which the releases come out otherwise */
        *MEMORY_ADD(replay->emptied, replay->emptied_count, replay->emptied_capacity) =
            (struct replay_call){run->released_begin, pool};
    }
    for (size_t i = 0; i < released; i++) {
        end = replay_decision(replay->trace, end + 1);
    }
    struct varve_pool_id all = {0, 0};
    int result = varve_alloc_empty_pool(replay->alloc, pool != 0 ? replay->inferred->pools.ids[pool] : all);
    if (result == VARVE_OK && replay->cursor != end) {
        replay_differs(replay, "nothing more from %s", pool != 0 ? "the end of a private pool" : "empty_cache");
    }
    return result;
}

/* The private pool, of a completion or release, that may have ended by itself: nothing is requested of it later. */
static uint16_t pool_that_ends(const struct replay *replay, size_t event)
{
    const struct replay_pools *pools = &replay->inferred->pools;
    bool may_end = pools->of_event != NULL && (pools->segments == NULL || replay->inferred->hints.pools_end);
    uint16_t pool = may_end ? pools->of_event[event] : 0;
    return replay->pools[pool].is_made && replay->pools[pool].used_until <= event ? pool : 0;
}

/* R begins with what the end of that private pool releases. */
static int end_pool(struct replay *replay, const struct run *run, uint16_t pool)
{
    size_t released = 0;
    for (size_t i = run->released_begin; i < run->released_end && replay->inferred->pools.of_event[i] == pool;
         i = replay_decision(replay->trace, i + 1)) {
        released++;
    }
    return empty_pool(replay, run, pool, released);
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

/* What releases R may be; `pending` blocks wait for other streams. */
struct candidates {
    uint16_t pool; /* the end of a private pool; 0: not that */
    bool is_all;   /* empty_cache: R begins with all that it would release */
    size_t pending;
};

static int look_for_calls(struct replay *replay, const struct run *run, struct candidates *out)
{
    *out = (struct candidates){.pool = pool_that_ends(replay, run->released_begin)};
    int result = predict_empty_cache(replay);
    VARVE_THEN(result, count_pending(replay, &out->pending));
    size_t count = replay->cached.count;
    out->is_all = result == VARVE_OK && out->pending == 0 && count > 0 &&
                  releases_equal(replay, run->released_begin, run->released_end, &replay->cached, count) == count;
    return result;
}

/* R is what a request releases that fails without a wait, after gc and release_available. */
static bool fails_early(const struct replay *replay, const struct run *run, const struct prediction *prediction)
{
    size_t own = prediction->counts[AVAILABLE];
    return !prediction->is_hit && run->released == own &&
           releases_equal(replay, run->released_begin, run->released_end, &replay->predicted, own) == own;
}

/* Has a user in front of `run`, which may have been taken for the sign that there is none. */
static bool is_in_use(const struct replay_pool_state *pool, const struct run *run)
{
    return !pool->is_freeable || pool->retired_by == run->released_begin;
}

/* Among the private pools in use; in a history without names a failure is in no pool, since it has no address. */
static int find_failed_pool(struct replay *replay, const struct run *run, struct replay_request request,
                            struct replay_failure *out)
{
    const struct replay_pools *pools = &replay->inferred->pools;
    int result = VARVE_OK;
    for (uint16_t i = 1; i < pools->count && pools->segments != NULL && out->way == REPLAY_FAILS_LAST; i++) {
        struct prediction prediction;
        request.pool = i;
        if (!replay->pools[i].is_made || !is_in_use(&replay->pools[i], run)) {
            continue;
        }
        result = predict(replay, &request, &prediction);
        if (result != VARVE_OK) {
            break;
        }
        if (fails_early(replay, run, &prediction)) {
            *out = (struct replay_failure){REPLAY_FAILS_IN_POOL, i};
        }
    }
    return result;
}

/* Some private pool may be in use at a request: it has been, or will be, and has not ended. */
static bool may_be_captured(const struct replay *replay, const struct run *run, const struct replay_request *request)
{
    bool may_be = false;
    for (size_t i = 1; i < replay->inferred->pools.count && !may_be; i++) {
        const struct replay_pool_state *pool = &replay->pools[i];
        may_be = is_in_use(pool, run) && (pool->is_made || pool->used_until > request->event);
    }
    return may_be;
}

/* `run` has no C. Sets `out` to what explains R, if that is not the whole chain. What completes blocks before its
 * search is no part of a capture, and waits for all. */
static int find_failure(struct replay *replay, const struct run *run, const struct replay_request *request,
                        struct replay_failure *out)
{
    struct prediction prediction;
    size_t pending;
    *out = (struct replay_failure){.way = REPLAY_FAILS_LAST};
    if (replay->trace->events[request->event].action != HISTORY_OOM || request->pool != 0 ||
        (request->completes && !replay->releases_lock) || !may_be_captured(replay, run, request)) {
        return VARVE_OK;
    }
    int result = predict(replay, request, &prediction);
    VARVE_THEN(result, count_pending(replay, &pending));
    if (result != VARVE_OK || (pending == 0 && attribute_releases_is_own(replay, run, request, &prediction))) {
        return result;
    }
    if (fails_early(replay, run, &prediction)) {
        out->way = REPLAY_FAILS_IN_CAPTURE;
        return VARVE_OK;
    }
    return find_failed_pool(replay, run, *request, out);
}

int replay_find_failure(struct replay *replay, const struct replay_request *request, struct replay_failure *out)
{
    struct run run = run_at(replay, replay->cursor);
    *out = (struct replay_failure){.way = REPLAY_FAILS_LAST};
    bool waits = run.completed > 0 ||
                 (run.next < request->event && replay->trace->events[run.next].action == HISTORY_FREE_COMPLETED);
    return waits ? VARVE_OK : find_failure(replay, &run, request, out);
}

static int attribute(struct replay *replay, const struct run *run, const struct replay_request *request)
{
    struct prediction prediction;
    struct replay_failure failure;
    struct candidates calls;
    int result = find_failure(replay, run, request, &failure);
    VARVE_THEN(result, predict(replay, request, &prediction));
    VARVE_THEN(result, retire_pools(replay, run));
    VARVE_THEN(result, look_for_calls(replay, run, &calls));
    if (result != VARVE_OK) {
        return result;
    }
    bool waits = calls.pool != 0 && request->pool == 0; /* as a request must that releases private pools' segments */
    bool owns = (!waits || calls.pending == 0) && attribute_releases_is_own(replay, run, request, &prediction);
    owns |= failure.way != REPLAY_FAILS_LAST;
    if (owns && !(calls.is_all && prefers_empty_cache(replay, request, &prediction))) {
        return replay_malloc(replay, request);
    }
    if (calls.is_all) {
        return empty_pool(replay, run, 0, replay->cached.count);
    }
    if (calls.pool != 0) {
        return end_pool(replay, run, calls.pool);
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

/* C that no request follows, and no release: empty_cache waits for all, the end of a private pool for its own. */
static int attribute_wait(struct replay *replay, const struct run *run)
{
    size_t pending;
    int result = count_pending(replay, &pending);
    uint16_t pool = pool_that_ends(replay, run->completed_begin);
    if (result != VARVE_OK || pending == 0 || pool == 0) {
        return result == VARVE_OK ? empty_pool(replay, run, 0, 0) : result;
    }
    result = retire_pool(replay, pool);
    return result == VARVE_OK ? empty_pool(replay, run, pool, 0) : result;
}

/* No request follows. */
static int attribute_calls(struct replay *replay, const struct run *run)
{
    if (run->released == 0) {
        return attribute_wait(replay, run);
    }
    struct candidates calls;
    int result = look_for_calls(replay, run, &calls);
    if (result != VARVE_OK) {
        return result;
    }
    return calls.pool != 0 && !calls.is_all ? end_pool(replay, run, calls.pool)
                                            : empty_pool(replay, run, 0, run->released);
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
        request.completes = run.completed > 0;
        return run.released == 0 ? replay_malloc(replay, &request) : attribute(replay, &run, &request);
    }
    if (run.released == 0 && run.completed_begin == replay_decision(replay->trace, 0)) {
        return VARVE_OK; /* a ring that was overwritten begins in the middle of a free */
    }
    result = is_interrupted(replay, &run, &request, &answer);
    if (result == VARVE_OK && answer) {
        return replay_malloc(replay, &request);
    }
    return result == VARVE_OK ? attribute_calls(replay, &run) : result;
}

int replay_retire_pools(struct replay *replay, size_t event, size_t *end_out)
{
    struct run run = run_at(replay, event);
    *end_out = run.released_end;
    return retire_pools(replay, &run);
}

bool replay_is_without_user(const struct replay *replay, const struct replay_request *request)
{
    const struct replay_pools *pools = &replay->inferred->pools;
    const struct replay_pool_state *pool = &replay->pools[request->pool];
    bool is_known = pools->of_event != NULL && pools->segments == NULL;
    /* what the request itself releases says nothing about users */
    return is_known && pool->is_freeable && pool->retired_by < replay->cursor && pool->reserved > 0;
}
