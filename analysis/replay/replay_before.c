/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit that the history was recorded under is not in it, but one can be found (history/infer_limit.c), of each
 * device. Other rules have one limit for all devices: the largest, which lets each reserve what it did. Where a limit
 * explains releases as retries, it is preferred to calls of empty_cache that happen to be where retries would be.
 */
#include "analysis/replay/replay_before.h"

#include "analysis/base/key_map.h"
#include "analysis/history/infer_device.h"

struct replay_figures replay_figures_of(const struct replay_result *result)
{
    int64_t reserved = result->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak;
    return (struct replay_figures){
        .peak_reserved = result->device_peak > reserved ? result->device_peak : reserved,
        .peak_allocated = result->stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].peak,
        .segments = (int64_t)result->segments,
        .device_calls = result->stats.num_device_alloc + result->stats.num_device_free - result->start.device_calls,
        .retries = result->stats.num_alloc_retries,
        .ooms = result->stats.num_ooms,
    };
}

/* Whether the history comes out again; `result` is then the allocator's. `limit`: the largest that was found of a
 * device, or the peak of one that has none; 0: none was found. */
static bool follows(const struct history *history, const struct replay_options *options, struct replay_result *result,
                    uint64_t *limit_out)
{
    struct replay_inference *inference;
    struct varve_message ignored = {""};
    int error = replay_infer(history, options, &inference, result, &ignored);
    *limit_out = 0;
    if (error != VARVE_OK) {
        return false;
    }
    for (size_t i = 0; i < history->device_count; i++) {
        const struct replay_limit *limit = replay_inference_limit(inference, i);
        *limit_out = limit->used > *limit_out ? limit->used : *limit_out;
    }
    for (size_t i = 0; i<history->device_count && * limit_out> 0; i++) {
        uint64_t peak = replay_inference_device(inference, i)->scan.reserved_peak;
        *limit_out = peak > *limit_out ? peak : *limit_out;
    }
    replay_inference_free(inference);
    return result->mismatches == 0 && result->segments_equal;
}

int replay_recorded_peak(const struct history_device *device, int64_t *peak_out)
{
    struct replay_limit_bounds bounds;
    int error = replay_limit_bounds(device, false, 0, &bounds);
    *peak_out = bounds.peak > 0 && bounds.peak <= INT64_MAX ? (int64_t)bounds.peak : REPLAY_UNKNOWN;
    return error;
}

static int replay_before_add_events(const struct history_device *device, struct replay_figures *figures)
{
    struct replay_limit_bounds bounds;
    int error = replay_limit_bounds(device, false, 0, &bounds);
    if (error != VARVE_OK) {
        return error;
    }
    for (size_t i = 0; i < device->event_count; i++) {
        switch (device->events[i].action) {
        case HISTORY_SEGMENT_ALLOC:
        case HISTORY_SEGMENT_MAP:
        case HISTORY_SEGMENT_FREE:
        case HISTORY_SEGMENT_UNMAP:
            figures->device_calls++;
            break;
        case HISTORY_OOM:
            figures->ooms++;
            break;
        default:
            break;
        }
    }
    figures->peak_reserved += (int64_t)bounds.peak;
    figures->segments += (int64_t)device->segment_count;
    return VARVE_OK;
}

/* Of requests alone no more is known than what they add up to. */
static void add_requests(const struct history_device *device, struct replay_figures *figures)
{
    struct map live = {0};
    uint64_t bytes = 0;
    uint64_t peak = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        if (event->action == HISTORY_ALLOC) {
            map_put(&live, event->addr, event->size);
            bytes += event->size;
        } else if (event->action == HISTORY_FREE_REQUESTED) {
            uint64_t size = map_remove(&live, event->addr);
            bytes -= size != MAP_NONE ? size : 0;
        }
        figures->ooms += event->action == HISTORY_OOM;
        peak = bytes > peak ? bytes : peak;
    }
    figures->peak_allocated += (int64_t)peak;
    map_free(&live);
}

static void load_requests(const struct history *history, struct replay_before *out)
{
    out->figures = (struct replay_figures){.peak_reserved = REPLAY_UNKNOWN,
                                           .segments = REPLAY_UNKNOWN,
                                           .device_calls = REPLAY_UNKNOWN,
                                           .retries = REPLAY_UNKNOWN};
    for (size_t i = 0; i < history->device_count; i++) {
        add_requests(&history->devices[i], &out->figures);
    }
}

int replay_before_load(const struct history *history, struct progress *progress, struct replay_before *out)
{
    struct replay_options options = {.follow = true, .finds_limit = true, .progress = progress};
    *out = (struct replay_before){.figures = {.peak_allocated = REPLAY_UNKNOWN, .retries = REPLAY_UNKNOWN}};
    if (history->has_requests_only) {
        load_requests(history, out);
        return VARVE_OK;
    }
    for (size_t i = 0; i < history->device_count; i++) {
        int error = replay_before_add_events(&history->devices[i], &out->figures);
        if (error != VARVE_OK) {
            return error;
        }
    }
    struct replay_result result = {0};
    out->is_reproduced = follows(history, &options, &result, &out->limit);
    out->limit = out->is_reproduced ? out->limit : 0;
    if (out->is_reproduced) {
        out->figures = replay_figures_of(&result);
    }
    return VARVE_OK;
}

bool replay_changes_nothing(const struct history *history, const struct replay_options *options,
                            const struct replay_before *before)
{
    struct replay_options following = *options;

    /* a replay that follows the history is on a device that is large enough, and takes releases for empty_cache */
    if (history->has_requests_only ||
        (options->capacity != 0 && (int64_t)options->capacity < before->figures.peak_reserved) ||
        (before->limit != 0 && options->memory_limit == 0)) {
        return false;
    }
    following.follow = true;
    following.output = (struct replay_output){0};
    following.emit = NULL;
    struct replay_result result = {0};
    uint64_t ignored;
    return follows(history, &following, &result, &ignored);
}
