/* SPDX-License-Identifier: Apache-2.0 */
/* Devices one by one, each until its answers fit; sums over all of them. */
#include "analysis/replay/replay.h"

#include "analysis/replay/replay_session.h"
#include "analysis/history/infer_device.h"
#include "analysis/replay/history_writer.h"
#include "base/monotonic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct replay_inference {
    const struct history *history;
    size_t device_count;
    struct replay_device *devices;
};

_Static_assert(sizeof(struct varve_alloc_stats) % sizeof(int64_t) == 0, "statistics are int64_t throughout");

static void add_stats(struct varve_alloc_stats *sum, const struct varve_alloc_stats *stats)
{
    int64_t figures[sizeof(*sum) / sizeof(int64_t)];
    memcpy(figures, sum, sizeof(*sum));
    int64_t more[sizeof(*sum) / sizeof(int64_t)];
    memcpy(more, stats, sizeof(*stats));
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        figures[i] += more[i];
    }
    memcpy(sum, figures, sizeof(*sum));
    sum->max_split_size = stats->max_split_size;
}

static int play_session(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    int error = replay_make_start(replay, message);
    VARVE_THEN(error, replay->options->follow ? replay_follow(replay) : replay_whatif(replay, result, message));
    if (error == VARVE_OK && replay->options->follow && !replay->mismatch.is_set) {
        error = replay_final(replay, result);
    }
    struct varve_alloc_stats stats;
    VARVE_THEN(error, varve_alloc_get_device_stats(replay->alloc, &stats));
    struct varve_alloc_snapshot snapshot;
    if (error == VARVE_OK) {
        result->stats = stats;
        result->device_peak = (int64_t)varve_sim_used_peak(replay->device);
        result->device_ns = varve_sim_clock_ns(replay->device) - replay->start.clock_ns;
        result->start = replay->start;
        error = varve_alloc_snapshot(replay->alloc, &snapshot);
    }
    if (error == VARVE_OK) {
        result->segments = snapshot.segment_count;
        varve_alloc_snapshot_free(&snapshot);
        if (replay->options->output.end != NULL) {
            replay->options->output.end(replay->options->output.context, replay);
        }
    }
    return error;
}

/* `result` gets this device's figures only; the session is for the caller to look at, and to close. */
static int play_device(const struct history *history, unsigned index, const struct replay_device *inferred,
                       const struct replay_options *options, struct replay *replay, struct replay_result *result,
                       struct varve_message *message)
{
    int error = replay_session_open(replay, history, index, inferred, options, message);
    *result = (struct replay_result){.segments_equal = true};
    VARVE_THEN(error, play_session(replay, result, message));
    result->events = history->devices[index].event_count;
    result->allocations = replay->allocations;
    result->starts_late = inferred->scan.reserved_start > 0;
    result->first_event = inferred->hints.first;
    result->inferred_pools = inferred->pools.segment_count > 0 ? inferred->pools.count - 1 : 0;
    result->limit = replay->limit;
    result->limit_is_small = replay->limit_is_small;
    result->passes_over = replay->passes_over;
    if (replay->mismatch.is_set) {
        result->mismatches = 1;
        result->segments_equal = false;
        result->first = replay->mismatch;
        result->first.event += inferred->hints.first;
        result->first.device = index;
    }
    result->reached = replay->mismatch.is_set ? result->first.event : result->events;
    return error;
}

/* What no snapshot holds, and a mismatch may come from. */
static const char *advice_of(const struct history *history, const struct replay_options *options,
                             const struct replay_result *result)
{
    struct varve_alloc_config config;
    if (replay_config(history, options->conf, &config, NULL) != VARVE_OK) {
        return NULL;
    }
    if (config.garbage_collection_threshold > 0 && options->memory_limit == 0 && config.memory_fraction >= 1) {
        return options->finds_limit
                   ? "garbage_collection_threshold acts on a memory limit, which no snapshot holds, and none was found "
                     "under which it comes out: --memory-limit gives another one"
                   : "garbage_collection_threshold acts on a memory limit, which no snapshot holds: give "
                     "--memory-limit BYTES, the process's memory fraction times the device's total memory";
    }
    if (config.garbage_collection_threshold > 0 && result->starts_late) {
        return "the trace began late, and garbage collection goes by how long blocks had been free before: "
               "that is in no trace";
    }
    return NULL;
}

/* What a play has found that came out, for replays under other rules. */
static void keep_calls(struct replay *replay, struct replay_calls *calls)
{
    free(calls->items);
    *calls = (struct replay_calls){true, replay->emptied, replay->emptied_count};
    replay->emptied = NULL;
}

/* A history that contradicts itself is no history; the event at fault is worth more than where it showed. */
static int explain(const struct history *history, const struct replay_options *options, unsigned index, int error,
                   struct replay_result *result, struct varve_message *message)
{
    if ((error != VARVE_ERROR_FORMAT && (error != VARVE_OK || result->mismatches == 0)) || !options->follow) {
        return error;
    }
    struct varve_message reason;
    if (replay_contradiction(&history->devices[index], result->starts_late, &reason)) {
        *message = reason;
        return VARVE_ERROR_FORMAT;
    }
    result->advice = advice_of(history, options, result);
    return error;
}

/* Play until the answers fit or none is left; if no attempt succeeds, the first one has the difference that counts. */
static int replay_search(const struct history *history, const struct replay_options *options, unsigned index,
                         struct replay_device *inferred, struct replay_result *result, struct varve_message *message)
{
    bool is_first = true;
    bool again = true;
    uint64_t played = 0;
    struct replay_result furthest = {.reached = 0};
    int error = VARVE_OK;
    while (again) {
        struct replay_result latest = {.segments_equal = true};
        struct varve_message reason = {""};
        int outcome =
            replay_infer_device(history, index, options->conf, options->capacity, options->follow, inferred, &reason);
        latest.events = history->devices[index].event_count;
        latest.starts_late = inferred->scan.reserved_start > 0;
        struct replay replay = {0};
        VARVE_THEN(outcome, play_device(history, index, inferred, options, &replay, &latest, &reason));
        played += replay.cursor;
        again = outcome == VARVE_OK && (options->events_max == 0 || played < options->events_max) &&
                replay_hints_learn(&replay, &inferred->hints);
        if (outcome == VARVE_OK && latest.mismatches == 0) {
            keep_calls(&replay, &inferred->calls);
        }
        replay_session_close(&replay);
        if (is_first || latest.reached > furthest.reached) {
            furthest = latest;
        }
        if (is_first || (outcome == VARVE_OK && latest.mismatches == 0)) {
            *result = latest;
            *message = reason;
            error = outcome;
        }
        is_first = false;
    }
    result->reached = furthest.reached;
    result->inferred_pools = result->mismatches > 0 ? furthest.inferred_pools : result->inferred_pools;
    result->limit_is_small = furthest.limit_is_small;
    return explain(history, options, index, error, result, message);
}

/* ---- the limit, which no history holds ---- */

/* One device's history, followed again and again. */
struct following {
    const struct history *history;
    struct replay_options options;
    unsigned index;
    bool derives_pools;
    struct replay_device *inferred;
};

static int follow_once(struct following *following, uint64_t limit, struct replay_result *result,
                       struct varve_message *message)
{
    struct replay_options options = following->options;
    options.memory_limit = limit != 0 ? limit : options.memory_limit;
    replay_hints_free(&following->inferred->hints);
    following->inferred->hints.derives_pools = following->derives_pools;
    double begin = monotonic_seconds();
    int error = replay_search(following->history, &options, following->index, following->inferred, result, message);
    result->seconds = monotonic_seconds() - begin;
    return error;
}

static struct replay_limit_trial trial_of(const struct replay_result *result)
{
    return (struct replay_limit_trial){
        .comes_out = result->mismatches == 0 && result->segments_equal,
        .is_too_small = result->limit_is_small,
        .refusals = (uint64_t)(result->stats.num_alloc_retries + result->stats.num_ooms),
        .reached = result->reached,
    };
}

static int try_limit(void *context, uint64_t limit, struct replay_limit_trial *out)
{
    struct following *following = context;
    struct replay_result result = {.segments_equal = true};
    struct varve_message ignored = {""};
    int error = follow_once(following, limit, &result, &ignored);
    *out = trial_of(&result);
    out->comes_out &= error == VARVE_OK;
    return error == VARVE_ERROR_NO_MEMORY ? error : VARVE_OK;
}

/* After a play without a limit, whose result is there: look for one, and end with a play under it. If none is found,
 * what the nearest came to says the most of the reason. */
static int replay_find_limit(struct following *following, struct replay_result *result, struct varve_message *message)
{
    struct replay_device *inferred = following->inferred;
    struct varve_alloc_config config;
    struct replay_limit_search search = {
        .finds_most = following->options.finds_most,
        .unlimited = trial_of(result),
        .play = try_limit,
        .context = following,
    };
    struct replay_limit limit = {.used = 0};
    int error = replay_config(following->history, following->options.conf, &config, message);
    VARVE_THEN(error,
               replay_limit_bounds(&following->history->devices[following->index], following->history->rests.is_known,
                                   config.garbage_collection_threshold, &search.bounds));
    VARVE_THEN(error, replay_limit_find(&search, &limit));
    if (error != VARVE_OK || !search.bounds.may_be_limited) {
        return error;
    }
    uint64_t last = limit.used != 0 || search.unlimited.comes_out ? limit.used : limit.nearest;
    error = follow_once(following, last, result, message);
    result->first.limit = limit.used == 0 ? last : 0;
    inferred->limit = limit;
    return error;
}

/* Follow one device's history, under the limit that it was recorded under, if that is to be found. */
static int follow_device(const struct history *history, const struct replay_options *options, unsigned index,
                         bool derives_pools, struct replay_device *inferred, struct replay_result *result,
                         struct varve_message *message)
{
    struct following following = {history, *options, index, derives_pools, inferred};
    inferred->limit = (struct replay_limit){.used = 0};
    int error = follow_once(&following, 0, result, message);
    bool finds = error == VARVE_OK && options->finds_limit && result->limit == 0;
    return finds ? replay_find_limit(&following, result, message) : error;
}

static void add_device(struct replay_result *sum, const struct replay_result *device)
{
    sum->events += device->events;
    sum->allocations += device->allocations;
    sum->mismatches += device->mismatches;
    sum->segments += device->segments;
    sum->ooms += device->ooms;
    sum->reached += device->reached;
    sum->skipped += device->skipped;
    sum->seconds += device->seconds;
    sum->device_ns += device->device_ns;
    sum->device_peak += device->device_peak;
    sum->starts_late |= device->starts_late;
    sum->passes_over |= device->passes_over;
    sum->segments_equal &= device->segments_equal;
    sum->first_event = sum->first_event == 0 ? device->first_event : sum->first_event;
    if (!sum->first.is_set) {
        sum->first = device->first;
        sum->advice = device->advice;
    }
    if (sum->difference[0] == '\0') {
        memcpy(sum->difference, device->difference, sizeof(sum->difference));
    }
    sum->inferred_pools += device->inferred_pools;
    sum->start.reserved += device->start.reserved;
    sum->start.allocated += device->start.allocated;
    sum->start.requested += device->start.requested;
    sum->start.device_calls += device->start.device_calls;
    sum->start.is_inherited &= device->start.is_inherited || !device->starts_late;
    add_stats(&sum->stats, &device->stats);
}

/* The reason, with the device if there are several. */
static int fail_device(const struct history *history, size_t index, int error, const struct varve_message *reason,
                       struct varve_message *message)
{
    const char *text = reason->text[0] != '\0' ? reason->text : varve_strerror(error);
    if (history->device_count > 1) {
        return varve_message_set(message, error, "device %zu: %s", index, text);
    }
    return varve_message_set(message, error, "%s", text);
}

/* On several streams there may have been captures; on one, only a block that was passed over is a sign of pools. */
static bool may_have_had_pools(const struct history *history, const struct replay_result *result)
{
    bool names_all = true;
    for (size_t i = 0; i < history->device_count; i++) {
        names_all &= replay_has_pools(&history->devices[i]);
    }
    return !names_all && (history->stream_count > 1 || result->passes_over);
}

/* For a replay under other rules: follow the device's history under its own first. If that does not come out, only the
 * events themselves count. */
static int infer_requests(const struct history *history, const struct replay_options *options, unsigned index,
                          struct replay_device *inferred, struct varve_message *message)
{
    const struct replay_options following = {.capacity = options->capacity,
                                             .follow = true,
                                             .finds_limit = options->finds_limit,
                                             .progress = options->progress};
    struct varve_message reason = {""};
    struct replay_result result = {0};
    (void)follow_device(history, &following, index, false, inferred, &result, &reason);
    if (!inferred->calls.are_known && may_have_had_pools(history, &result)) {
        (void)follow_device(history, &following, index, true, inferred, &result, &reason);
    }
    if (!inferred->calls.are_known) {
        replay_hints_free(&inferred->hints);
    }
    return replay_infer_device(history, index, NULL, options->capacity, false, inferred, message);
}

static int infer_devices(struct replay_inference *inference, const struct replay_options *options, bool derives_pools,
                         struct replay_result *result, struct varve_message *message)
{
    const struct history *history = inference->history;
    *result = (struct replay_result){.segments_equal = true, .start.is_inherited = true};
    int error = VARVE_OK;
    for (size_t i = 0; i < inference->device_count && error == VARVE_OK; i++) {
        struct replay_device *inferred = &inference->devices[i];
        struct replay_result device = {.segments_equal = true};
        struct varve_message reason = {""};
        error = options->follow
                    ? follow_device(history, options, (unsigned)i, derives_pools, inferred, &device, &reason)
                    : infer_requests(history, options, (unsigned)i, inferred, &reason);
        if (options->follow) {
            add_device(result, &device);
        }
        if (error != VARVE_OK) {
            fail_device(history, i, error, &reason, message);
        }
    }
    return error;
}

/* Pools that all ended before the history did leave no other trace than that it does not come out. If it does not with
 * them either, but comes further, they were there. */
static void infer_again_with_pools(struct replay_inference *inference, const struct replay_options *options,
                                   struct replay_result *result)
{
    struct replay_result second;
    struct varve_message ignored;
    int error = infer_devices(inference, options, true, &second, &ignored);
    if (error == VARVE_OK && second.mismatches == 0) {
        *result = second;
        result->derived_pools = true;
    } else if (error == VARVE_OK && second.reached > result->reached) {
        result->inferred_pools = second.inferred_pools;
    }
}

int replay_infer(const struct history *history, const struct replay_options *options,
                 struct replay_inference **inference_out, struct replay_result *result, struct varve_message *message)
{
    struct replay_options silent = *options;
    struct replay_inference *inference = calloc(1, sizeof(*inference));
    double begin = monotonic_seconds();
    *inference_out = NULL;
    *result = (struct replay_result){.segments_equal = true};
    if (history->has_requests_only && options->follow) {
        free(inference);
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                          "it has a program's requests only, and no decisions of an allocator that could "
                          "come out again: --policy NAME makes the requests to that policy");
        return VARVE_ERROR_UNSUPPORTED;
    }
    if (inference != NULL) {
        inference->history = history;
        inference->devices = calloc(history->device_count + 1, sizeof(*inference->devices));
    }
    if (inference == NULL || inference->devices == NULL) {
        free(inference);
        return VARVE_ERROR_NO_MEMORY;
    }
    inference->device_count = history->device_count;
    silent.output = (struct replay_output){0}; /* records go anywhere only when the answers are known */
    silent.emit = NULL;
    int error = infer_devices(inference, &silent, false, result, message);
    if (error == VARVE_OK && result->mismatches > 0 && may_have_had_pools(history, result)) {
        infer_again_with_pools(inference, &silent, result);
    }
    if (!options->follow) {
        result->seconds = monotonic_seconds() - begin; /* else that of following once, without looking for a limit */
    }
    if (error != VARVE_OK) {
        replay_inference_free(inference);
        return error;
    }
    *inference_out = inference;
    return VARVE_OK;
}

const struct replay_device *replay_inference_device(const struct replay_inference *inference, size_t index)
{
    return &inference->devices[index];
}

const struct replay_limit *replay_inference_limit(const struct replay_inference *inference, size_t index)
{
    return &inference->devices[index].limit;
}

void replay_inference_free(struct replay_inference *inference)
{
    if (inference == NULL) {
        return;
    }
    for (size_t i = 0; i < inference->device_count; i++) {
        replay_device_clear(&inference->devices[i]);
        replay_hints_free(&inference->devices[i].hints);
        free(inference->devices[i].calls.items);
    }
    free(inference->devices);
    free(inference);
}

int replay_play(const struct replay_inference *inference, const struct replay_options *options,
                struct replay_result *result, struct varve_message *message)
{
    double begin = monotonic_seconds();
    *result = (struct replay_result){.segments_equal = true, .start.is_inherited = true};
    int error = VARVE_OK;
    for (size_t i = 0; i < inference->device_count && error == VARVE_OK; i++) {
        struct replay replay = {0};
        struct replay_result device;
        struct varve_message reason = {""};
        error =
            play_device(inference->history, (unsigned)i, &inference->devices[i], options, &replay, &device, &reason);
        replay_session_close(&replay);
        add_device(result, &device);
        if (error != VARVE_OK) {
            fail_device(inference->history, i, error, &reason, message);
        }
    }
    result->seconds = monotonic_seconds() - begin;
    return error;
}

int replay_run(const struct history *history, const struct replay_options *options, struct replay_result *result,
               struct varve_message *message)
{
    struct replay_inference *inference;
    double begin = monotonic_seconds();
    int error = replay_infer(history, options, &inference, result, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (!options->follow || options->output.record != NULL || options->emit != NULL) {
        error = replay_play(inference, options, result, message);
    }
    replay_inference_free(inference);
    result->seconds = monotonic_seconds() - begin;
    return error;
}
