/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay from end to end: per device the passes that find out what the history leaves out, an allocator on
 * a simulated device, the replay itself, and what came of it; summed over all devices. Called by
 * cli/replay.c.
 */
#include "analysis/replay/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GIB (UINT64_C(1) << 30)
#define PLACE_FIRST UINT64_C(0x7f0000000000)

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message)
{
    const struct history_settings *settings = &history->settings;
    struct varve_message ignored;
    int result;

    varve_alloc_config_init(config);
    if (conf != NULL) {
        return varve_alloc_config_parse(conf, config, message);
    }
    if (!settings->is_known) {
        return VARVE_OK;
    }
    /* the figures count; the text has what they lack, but may be in the words of another version */
    result = varve_alloc_config_parse(settings->text, config, &ignored);
    if (result != VARVE_OK) {
        varve_alloc_config_init(config);
    }
    config->max_split_size =
        settings->max_split_size < 0 ? VARVE_ALLOC_UNLIMITED : (uint64_t)settings->max_split_size;
    config->garbage_collection_threshold = settings->garbage_collection_threshold;
    config->expandable_segments = settings->expandable_segments;
    memcpy(config->roundup_power2_divisions, settings->divisions, sizeof(settings->divisions));
    return VARVE_OK;
}

int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message)
{
    struct varve_alloc_config config;
    int result = replay_config(history, conf, &config, message);

    *settings = (struct history_settings){.is_known = true};
    if (result != VARVE_OK) {
        return result;
    }
    snprintf(settings->text, sizeof(settings->text), "%s", conf != NULL ? conf : history->settings.text);
    settings->max_split_size =
        config.max_split_size == VARVE_ALLOC_UNLIMITED ? -1 : (int64_t)config.max_split_size;
    settings->garbage_collection_threshold = config.garbage_collection_threshold;
    settings->expandable_segments = config.expandable_segments;
    memcpy(settings->divisions, config.roundup_power2_divisions, sizeof(settings->divisions));
    return VARVE_OK;
}

static int open_device(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    bool is_placed = options->follow || replay->start.segment_count > 0;
    struct varve_sim_options sim = {
        .index = (int)replay->index,
        .capacity_bytes = options->follow ? 0 : options->capacity,
        .total_bytes = replay->total,
        .events_are_scripted = true,
        .segment_place = is_placed ? replay_place_segment : NULL,
        .reserve_place = is_placed ? replay_place_reservation : NULL,
        .place_context = replay,
    };

    replay->next_addr = PLACE_FIRST;
    for (size_t i = 0; i < replay->start.segment_count; i++) {
        uint64_t end = replay->start.segments[i].addr + replay->start.segments[i].bytes;

        /* leave what an expandable segment may grow to */
        end += replay->start.segments[i].is_expandable ? 2 * replay->total : 0;
        replay->next_addr = end > replay->next_addr ? (end + GIB) / GIB * GIB : replay->next_addr;
    }
    return varve_sim_open(&sim, &replay->device, message);
}

static int open_allocator(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    struct varve_alloc_options alloc;
    int result;

    varve_alloc_options_init(&alloc);
    result = replay_config(replay->history, options->conf, &alloc.config, message);
    if (result == VARVE_OK) {
        result = open_device(replay, message);
    }
    if (result != VARVE_OK) {
        return result;
    }
    if (options->capacity == 0 && options->conf == NULL) {
        alloc.config.memory_fraction = 1; /* of what, is not known */
    }
    replay->large_segment_size = alloc.config.large_segment_size;
    replay->limit = options->memory_limit;
    if (replay->limit == 0 && alloc.config.memory_fraction < 1) {
        replay->limit = (uint64_t)(alloc.config.memory_fraction * (double)replay->total);
    }
    replay->recorder.record = options->emit != NULL ? replay_emit_take : replay_take;
    replay->recorder.context = replay;
    alloc.device = replay->device;
    alloc.policy = options->policy;
    alloc.memory_limit = replay->limit;
    alloc.recorder =
        options->follow || options->sink != NULL || options->emit != NULL ? &replay->recorder : NULL;
    return varve_alloc_open(&alloc, &replay->alloc, message);
}

static void add_stats(struct varve_alloc_stats *sum, const struct varve_alloc_stats *stats)
{
    struct varve_alloc_stats total = *sum;
    int64_t max_split_size = stats->max_split_size;

    /* all of it is int64_t, figure after figure */
    for (size_t i = 0; i < sizeof(total) / sizeof(int64_t); i++) {
        int64_t a;
        int64_t b;

        memcpy(&a, (const char *)sum + i * sizeof(a), sizeof(a));
        memcpy(&b, (const char *)stats + i * sizeof(b), sizeof(b));
        a += b;
        memcpy((char *)&total + i * sizeof(a), &a, sizeof(a));
    }
    *sum = total;
    sum->max_split_size = max_split_size;
}

_Static_assert(sizeof(struct varve_alloc_stats) % sizeof(int64_t) == 0, "statistics are int64_t throughout");

static int play(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    struct varve_alloc_stats stats;
    struct varve_alloc_snapshot snapshot;
    int error = replay_make_start(replay, message);

    if (error == VARVE_OK) {
        error =
            replay->options->follow ? replay_follow(replay, message) : replay_whatif(replay, result, message);
    }
    if (error == VARVE_OK && replay->options->follow && !replay->mismatch.is_set) {
        error = replay_final(replay, result);
    }
    if (error == VARVE_OK) {
        error = varve_alloc_get_device_stats(replay->alloc, &stats);
    }
    if (error == VARVE_OK) {
        result->stats = stats;
        error = varve_alloc_snapshot(replay->alloc, &snapshot);
    }
    if (error == VARVE_OK) {
        result->segments = snapshot.segment_count;
        varve_alloc_snapshot_free(&snapshot);
        if (replay->options->sink != NULL) {
            replay_sink_end(replay);
        }
    }
    return error;
}

static void close_replay(struct replay *replay)
{
    if (replay->alloc != NULL) {
        varve_alloc_close(replay->alloc);
    }
    if (replay->device != NULL) {
        replay->device->ops->close(replay->device);
    }
    replay_compare_close(replay);
    replay_pools_free(&replay->pools);
    replay_places_free(&replay->places);
    replay_scan_free(&replay->scan);
    free(replay->start.segments);
    free(replay->start.blocks);
    free(replay->predicted.items);
    free(replay->cached.items);
}

/* One attempt; `result` gets this device's figures only. */
static int attempt(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    int error;

    replay->shortened = replay->history->devices[replay->index];
    replay->shortened.events += replay->hints->first;
    replay->shortened.event_count -= replay->hints->first;
    replay->trace = &replay->shortened;
    error = replay_prepare(replay, message);
    replay_compare_open(replay);
    if (error == VARVE_OK) {
        error = open_allocator(replay, message);
    }
    if (error == VARVE_OK) {
        error = play(replay, result, message);
    }
    result->events = replay->history->devices[replay->index].event_count;
    result->allocations = replay->allocations;
    result->starts_late = replay->scan.reserved_start > 0;
    result->first_event = replay->hints->first;
    result->guessed_pools = replay->pools.segment_count > 0;
    if (replay->mismatch.is_set) {
        result->mismatches = 1;
        result->segments_equal = false;
        result->first = replay->mismatch;
        result->first.event += replay->hints->first;
        result->first.device = replay->index;
    }
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
    if (config.garbage_collection_threshold > 0 && options->memory_limit == 0 &&
        config.memory_fraction >= 1) {
        return "garbage_collection_threshold acts on a memory limit, which no snapshot holds: give "
               "--memory-limit BYTES, the process's memory fraction times the device's total memory";
    }
    if (config.garbage_collection_threshold > 0 && result->starts_late) {
        return "the trace began late, and garbage collection goes by how long blocks had been free before: "
               "that is in no trace";
    }
    if (result->guessed_pools) {
        return "the events do not name their private pools, which were worked out from what is there at the "
               "end and from the order of events; these may not be all that it takes";
    }
    return NULL;
}

/* A history that contradicts itself is no history; the event at fault is worth more than where it showed. */
static int explain(const struct history *history, const struct replay_options *options, unsigned index,
                   int error, struct replay_result *result, struct varve_message *message)
{
    struct varve_message reason;

    if ((error != VARVE_ERROR_FORMAT && (error != VARVE_OK || result->mismatches == 0)) || !options->follow) {
        return error;
    }
    if (replay_contradiction(&history->devices[index], result->starts_late, &reason)) {
        *message = reason;
        return VARVE_ERROR_FORMAT;
    }
    result->advice = advice_of(history, options, result);
    return error;
}

static int run_device(const struct history *history, const struct replay_options *options, unsigned index,
                      struct replay_result *result, struct varve_message *message)
{
    struct replay_hints *hints = &options->hints[index];
    bool is_first = true;
    bool again = true;
    int error = VARVE_OK;

    while (again) {
        struct replay replay = {.history = history, .options = options, .index = index, .hints = hints};
        struct replay_result latest = {.segments_equal = true};
        struct varve_message reason = {""};
        int outcome = attempt(&replay, &latest, &reason);

        again = outcome == VARVE_OK && options->follow && options->sink == NULL && options->emit == NULL &&
                replay_hints_learn(&replay, hints);
        close_replay(&replay);
        /* if no attempt succeeds, the first one has the difference that counts */
        if (is_first || (outcome == VARVE_OK && latest.mismatches == 0)) {
            *result = latest;
            *message = reason;
            error = outcome;
        }
        is_first = false;
    }
    return explain(history, options, index, error, result, message);
}

static void add_device(struct replay_result *sum, const struct replay_result *device)
{
    sum->events += device->events;
    sum->allocations += device->allocations;
    sum->mismatches += device->mismatches;
    sum->segments += device->segments;
    sum->ooms += device->ooms;
    sum->skipped += device->skipped;
    sum->starts_late |= device->starts_late;
    sum->segments_equal &= device->segments_equal;
    sum->first_event = sum->first_event == 0 ? device->first_event : sum->first_event;
    if (!sum->first.is_set) {
        sum->first = device->first;
        sum->advice = device->advice;
    }
    if (sum->difference[0] == '\0') {
        memcpy(sum->difference, device->difference, sizeof(sum->difference));
    }
    add_stats(&sum->stats, &device->stats);
}

static int run_devices(const struct history *history, const struct replay_options *options,
                       struct replay_result *result, struct varve_message *message)
{
    int error = VARVE_OK;

    *result = (struct replay_result){.segments_equal = true};
    for (size_t i = 0; i < history->device_count && error == VARVE_OK; i++) {
        struct replay_result device;
        struct varve_message reason = {""};

        error = run_device(history, options, (unsigned)i, &device, &reason);
        add_device(result, &device);
        if (error != VARVE_OK) {
            const char *text = reason.text[0] != '\0' ? reason.text : varve_strerror(error);

            if (history->device_count > 1) {
                varve_message_set(message, error, "device %zu: %s", i, text);
            } else {
                varve_message_set(message, error, "%s", text);
            }
        }
    }
    return error;
}

/* Pools that all ended before the history did leave no other trace than that it does not come out. */
static bool run_with_pools(const struct history *history, const struct replay_options *options,
                           struct replay_result *result)
{
    struct replay_options again = *options;
    struct replay_result second;
    struct varve_message ignored;

    again.derives_pools = true;
    replay_hints_clear(options->hints, history->device_count);
    if (run_devices(history, &again, &second, &ignored) != VARVE_OK || second.mismatches > 0) {
        return false;
    }
    *result = second;
    result->derived_pools = true;
    return true;
}

int replay_run(const struct history *history, const struct replay_options *options,
               struct replay_result *result, struct varve_message *message)
{
    double begin = now_seconds();
    struct replay_options hinted = *options;
    int error;

    if (hinted.hints == NULL) {
        hinted.hints = replay_hints_new(history->device_count);
    }
    error = run_devices(history, &hinted, result, message);
    if (error == VARVE_OK && result->mismatches > 0 && options->follow && !options->derives_pools &&
        history->stream_count > 1) {
        run_with_pools(history, &hinted, result);
    }
    if (options->hints == NULL) {
        replay_hints_free(hinted.hints, history->device_count);
    }
    result->seconds = now_seconds() - begin;
    return error;
}
