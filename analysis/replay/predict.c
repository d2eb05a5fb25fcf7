/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request, or empty_cache, would give back to the device in the allocator's present state, without
 * changing it: the lists that a burst of releases in the history is compared with. The stages of the chain
 * are forecast by the allocator itself; the one thing it cannot forecast is what would be releasable once
 * blocks that wait for other streams were free, which is worked out here on a snapshot. Called by
 * attribute_releases.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#define SMALL_MAX (UINT64_C(1) << 20) /* requests of the small pool */

/* Append what `stage` would release after the releases that the plan holds already. */
static int add_stage(struct replay *replay, struct replay_releases *plan, enum varve_alloc_stage stage,
                     uint64_t bytes, uint64_t stream, bool *success_out)
{
    size_t count = 0;
    int result;

    for (;;) {
        size_t room = plan->capacity - plan->count;

        result = varve_alloc_forecast_release(replay->alloc, stage, bytes, stream, plan->items, plan->count,
                                              plan->items == NULL ? NULL : plan->items + plan->count, room,
                                              &count, success_out);
        if (result != VARVE_OK || count <= room) {
            break;
        }
        plan->capacity = 2 * (plan->count + count);
        plan->items = memory_resize(plan->items, plan->capacity * sizeof(*plan->items));
    }
    plan->count += result == VARVE_OK ? count : 0;
    return result;
}

static uint64_t bytes_of(const struct replay_releases *plan)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < plan->count; i++) {
        bytes += plan->items[i].bytes;
    }
    return bytes;
}

static int predict(struct replay *replay, const struct replay_request *request,
                   struct replay_prediction *prediction)
{
    uint64_t stream = replay->history->streams[request->stream];
    uint64_t reserved = (uint64_t)varve_alloc_memory_reserved(replay->alloc);
    struct replay_releases *plan = &replay->predicted;
    struct varve_alloc_forecast forecast;
    bool success = false;
    int result = varve_alloc_forecast(replay->alloc, request->bytes, stream, &forecast);

    plan->count = 0;
    if (result != VARVE_OK) {
        return result;
    }
    *prediction = (struct replay_prediction){
        .is_hit = forecast.is_hit,
        .is_certain = replay->limit > 0,
        .rounded = forecast.rounded,
        .is_small = forecast.rounded <= SMALL_MAX,
    };
    if (forecast.is_hit) {
        return VARVE_OK;
    }
    result = add_stage(replay, plan, VARVE_ALLOC_STAGE_GC, request->bytes, stream, &success);
    prediction->gc_count = plan->count;
    prediction->available_count = plan->count;
    prediction->all_count = plan->count;
    prediction->exceeds_capacity =
        replay->options->capacity > 0 &&
        reserved - bytes_of(plan) + forecast.segment_bytes > replay->options->capacity;
    if (result != VARVE_OK ||
        (replay->limit > 0 && reserved - bytes_of(plan) + forecast.segment_bytes <= replay->limit)) {
        return result;
    }
    result = add_stage(replay, plan, VARVE_ALLOC_STAGE_RELEASE_AVAILABLE, request->bytes, stream, &success);
    prediction->available_count = plan->count;
    prediction->all_count = plan->count;
    if (result != VARVE_OK || (replay->limit > 0 && success &&
                               reserved - bytes_of(plan) + forecast.segment_bytes <= replay->limit)) {
        return result;
    }
    prediction->reaches_all = replay->limit > 0;
    result = add_stage(replay, plan, VARVE_ALLOC_STAGE_RELEASE_CACHED, request->bytes, stream, &success);
    prediction->all_count = plan->count;
    return result;
}

int replay_predict(struct replay *replay, const struct replay_request *request,
                   struct replay_prediction *prediction_out)
{
    int result = replay_pool_enter(replay, request->pool);
    int left;

    if (result != VARVE_OK) {
        return result;
    }
    result = predict(replay, request, prediction_out);
    left = replay_pool_leave(replay, request->pool);
    return result == VARVE_OK ? left : result;
}

int replay_predict_empty_cache(struct replay *replay)
{
    bool success;

    replay->cached.count = 0;
    return add_stage(replay, &replay->cached, VARVE_ALLOC_STAGE_RELEASE_CACHED, 0, 0, &success);
}

size_t replay_releases_equal(const struct replay *replay, size_t index, size_t end,
                             const struct replay_releases *plan, size_t count)
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
