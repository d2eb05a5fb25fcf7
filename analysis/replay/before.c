/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit that the history was recorded under is not in it, but one can be found: reserved memory never exceeded the
 * limit, and what was refused exceeded it, so that the recorded peak, taken for the limit, refuses and grants the same.
 * Where a refusal says what the device had free, the limit is that and what was reserved, if it does so too.
 * A limit is of each device, so that of several the highest peak is taken. Where that explains releases as retries, it
 * is preferred to calls of empty_cache that happen to be where retries would be.
 */
#include "analysis/replay/before.h"

#include "analysis/base/map.h"
#include "analysis/replay/infer/device.h"

struct replay_figures replay_figures_of(const struct replay_result *result)
{
    int64_t reserved = result->stats.reserved_bytes[VARVE_ALLOC_STAT_ALL].peak;
    return (struct replay_figures){
        .peak_reserved = result->device_peak > reserved ? result->device_peak : reserved,
        .peak_allocated = result->stats.allocated_bytes[VARVE_ALLOC_STAT_ALL].peak,
        .segments = (int64_t)result->segments,
        .device_calls = result->stats.num_device_alloc + result->stats.num_device_free,
        .retries = result->stats.num_alloc_retries,
        .ooms = result->stats.num_ooms,
    };
}

/* Whether the history comes out again; `result` is then the allocator's. */
static bool follows(const struct history *history, const struct replay_options *options, struct replay_result *result)
{
    struct replay_inference *inference;
    struct varve_message ignored = {""};
    int error = replay_infer(history, options, &inference, result, &ignored);
    if (error != VARVE_OK) {
        return false;
    }
    replay_inference_free(inference);
    return result->mismatches == 0 && result->segments_equal;
}

static uint64_t reserved_after(uint64_t reserved, const struct history_event *event)
{
    if (event->action == HISTORY_SEGMENT_ALLOC || event->action == HISTORY_SEGMENT_MAP) {
        return reserved + event->size;
    }
    if (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP) {
        return event->size < reserved ? reserved - event->size : 0;
    }
    return reserved;
}

/* The most that segment events come to, with what was reserved before them. */
static int peak_of_events(const struct history_device *device, uint64_t *peak_out)
{
    struct varve_message ignored = {""};
    uint64_t reserved = 0;
    if (replay_reserved_at_start(device, &reserved, &ignored) == VARVE_ERROR_NO_MEMORY) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *peak_out = reserved;
    for (size_t i = 0; i < device->event_count; i++) {
        reserved = reserved_after(reserved, &device->events[i]);
        *peak_out = reserved > *peak_out ? reserved : *peak_out;
    }
    return VARVE_OK;
}

/* What the allocator could have had when a request was refused, by what a snapshot says that the device had free: the
 * least of all refusals. Without any, or where less than the peak, which others of the device explain, `peak`. */
static int capacity_of_refusals(const struct history *history, uint64_t peak, uint64_t *capacity_out)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < history->device_count && history->rests.is_known; i++) {
        const struct history_device *device = &history->devices[i];
        struct varve_message ignored = {""};
        uint64_t reserved = 0;
        if (replay_reserved_at_start(device, &reserved, &ignored) == VARVE_ERROR_NO_MEMORY) {
            return VARVE_ERROR_NO_MEMORY;
        }
        for (size_t j = 0; j < device->event_count; j++) {
            const struct history_event *event = &device->events[j];
            reserved = reserved_after(reserved, event);
            if (event->action == HISTORY_OOM && event->addr < INT64_MAX - reserved) {
                least = reserved + event->addr < least ? reserved + event->addr : least;
            }
        }
    }
    *capacity_out = least == UINT64_MAX || least < peak ? peak : least;
    return VARVE_OK;
}

int replay_recorded_peak(const struct history_device *device, int64_t *peak_out)
{
    uint64_t peak = 0;
    int error = peak_of_events(device, &peak);
    *peak_out = peak > 0 && peak <= INT64_MAX ? (int64_t)peak : REPLAY_UNKNOWN;
    return error;
}

static int add_events(const struct history_device *device, struct replay_figures *figures, int64_t *highest)
{
    uint64_t peak = 0;
    int error = peak_of_events(device, &peak);
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
    figures->peak_reserved += (int64_t)peak;
    *highest = (int64_t)peak > *highest ? (int64_t)peak : *highest;
    figures->segments += (int64_t)device->segment_count;
    return VARVE_OK;
}

static bool has_releases(const struct history *history)
{
    for (size_t i = 0; i < history->device_count; i++) {
        const struct history_device *device = &history->devices[i];
        for (size_t j = 0; j < device->event_count; j++) {
            if (device->events[j].action == HISTORY_SEGMENT_FREE || device->events[j].action == HISTORY_SEGMENT_UNMAP) {
                return true;
            }
        }
    }
    return false;
}

/* Of requests alone no more is known than what they add up to. */
static void add_requests(const struct history_device *device, struct replay_figures *figures)
{
    struct map live = {0};
    uint64_t bytes = 0;
    uint64_t peak = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        uint64_t size;
        if (event->action == HISTORY_ALLOC) {
            map_put(&live, event->addr, event->size);
            bytes += event->size;
        } else if (event->action == HISTORY_FREE_REQUESTED && map_remove(&live, event->addr, &size)) {
            bytes -= size;
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
    struct replay_options options = {.follow = true, .progress = progress};
    *out = (struct replay_before){.figures = {.peak_allocated = REPLAY_UNKNOWN, .retries = REPLAY_UNKNOWN}};
    if (history->has_requests_only) {
        load_requests(history, out);
        return VARVE_OK;
    }
    int64_t highest = 0; /* peak of a device */
    for (size_t i = 0; i < history->device_count; i++) {
        int error = add_events(&history->devices[i], &out->figures, &highest);
        if (error != VARVE_OK) {
            return error;
        }
    }
    struct replay_result result = {0};
    if (highest > 0 && (out->figures.ooms > 0 || has_releases(history))) {
        uint64_t limits[2] = {0, (uint64_t)highest};
        int error = capacity_of_refusals(history, limits[1], &limits[0]);
        if (error != VARVE_OK) {
            return error;
        }
        for (size_t i = limits[0] == limits[1]; i < 2 && !out->is_reproduced; i++) {
            options.memory_limit = limits[i];
            out->is_reproduced =
                follows(history, &options, &result) && result.stats.num_alloc_retries + result.stats.num_ooms > 0;
            out->limit = out->is_reproduced ? options.memory_limit : 0;
        }
    }
    if (!out->is_reproduced) {
        options.memory_limit = 0;
        out->is_reproduced = follows(history, &options, &result);
    }
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
    following.writer = NULL;
    following.emit = NULL;
    struct replay_result result = {0};
    return follows(history, &following, &result);
}
