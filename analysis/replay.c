/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay from end to end: per device the passes that find out what the history leaves out, an allocator on
 * a simulated device, the replay itself, and what came of it; summed over all devices. Called by
 * command_replay.c.
 */
#include "analysis/replay_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GIB (UINT64_C(1) << 30)
#define CAPACITY_DEFAULT (80 * GIB)
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

int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out,
                             struct varve_message *message)
{
    struct replay_scan scan = {0};
    int result = replay_scan(trace, &scan, message);

    *bytes_out = scan.reserved_start > 0 ? (uint64_t)scan.reserved_start : 0;
    replay_scan_free(&scan);
    return result;
}

/* An allocator that is asked how it rounds, and never allocates. */
struct rounding {
    struct varve_device *device;
    struct varve_alloc *alloc;
};

static int rounding_open(struct rounding *rounding, const struct varve_alloc_config *config,
                         struct varve_message *message)
{
    struct varve_sim_options sim = {0};
    struct varve_alloc_options options;
    int result = varve_sim_open(&sim, &rounding->device, message);

    rounding->alloc = NULL;
    if (result != VARVE_OK) {
        rounding->device = NULL;
        return result;
    }
    varve_alloc_options_init(&options);
    options.device = rounding->device;
    options.config = *config;
    return varve_alloc_open(&options, &rounding->alloc, message);
}

static void rounding_close(struct rounding *rounding)
{
    if (rounding->alloc != NULL) {
        varve_alloc_close(rounding->alloc);
    }
    if (rounding->device != NULL) {
        rounding->device->ops->close(rounding->device);
    }
}

int replay_start_of(const struct history *history, const struct history_device *trace,
                    struct varve_alloc_snapshot *start_out, struct varve_message *message)
{
    struct varve_alloc_config config;
    struct rounding rounding;
    int result = replay_config(history, NULL, &config, message);

    *start_out = (struct varve_alloc_snapshot){0};
    if (result == VARVE_OK) {
        result = rounding_open(&rounding, &config, message);
        if (result == VARVE_OK) {
            result = replay_start(history, trace, rounding.alloc, start_out, message);
        }
        rounding_close(&rounding);
    }
    return result;
}

static bool names_pools(const struct history_device *trace)
{
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].pool_id[0] != 0 || trace->segments[i].pool_id[1] != 0) {
            return true;
        }
    }
    return false;
}

/* What the history leaves out: its start, and private pools. */
static int prepare(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    struct varve_alloc_config config;
    struct rounding rounding;
    bool derives_pools = options->derives_pools || names_pools(replay->trace);
    int result = replay_scan(replay->trace, &replay->scan, message);

    if (result != VARVE_OK || (replay->scan.reserved_start <= 0 && !derives_pools)) {
        return result;
    }
    result = replay_config(replay->history, options->follow ? options->conf : NULL, &config, message);
    if (result != VARVE_OK) {
        return result;
    }
    result = rounding_open(&rounding, &config, message);
    if (result == VARVE_OK && replay->scan.reserved_start > 0) {
        result = replay_start(replay->history, replay->trace, rounding.alloc, &replay->start, message);
    }
    if (result == VARVE_OK && derives_pools) {
        result = replay_pools_derive(replay->history, replay->trace, &replay->start, rounding.alloc,
                                     &replay->pools, message);
    }
    rounding_close(&rounding);
    return result;
}

static int open_device(struct replay *replay, uint64_t total, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    bool is_placed = options->follow || replay->start.segment_count > 0;
    struct varve_sim_options sim = {
        .index = (int)replay->index,
        .capacity_bytes = options->follow ? 0 : options->capacity,
        .total_bytes = total,
        .events_are_scripted = true,
        .segment_place = is_placed ? replay_place_segment : NULL,
        .reserve_place = is_placed ? replay_place_reservation : NULL,
        .place_context = replay,
    };

    replay->next_addr = PLACE_FIRST;
    for (size_t i = 0; i < replay->start.segment_count; i++) {
        uint64_t end = replay->start.segments[i].addr + replay->start.segments[i].bytes;

        /* leave what an expandable segment may grow to */
        end += replay->start.segments[i].is_expandable ? 2 * total : 0;
        replay->next_addr = end > replay->next_addr ? (end + GIB) / GIB * GIB : replay->next_addr;
    }
    return varve_sim_open(&sim, &replay->device, message);
}

static int open_allocator(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    uint64_t total = options->capacity;
    struct varve_alloc_options alloc;
    int result;

    if (total == 0) {
        total = replay->scan.reserved_peak > CAPACITY_DEFAULT ? (replay->scan.reserved_peak + GIB) / GIB * GIB
                                                              : CAPACITY_DEFAULT;
    }
    varve_alloc_options_init(&alloc);
    result = replay_config(replay->history, options->conf, &alloc.config, message);
    if (result == VARVE_OK) {
        result = open_device(replay, total, message);
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
        replay->limit = (uint64_t)(alloc.config.memory_fraction * (double)total);
    }
    replay->recorder = (struct varve_alloc_recorder){.record = replay_take, .context = replay};
    alloc.device = replay->device;
    alloc.policy = options->policy;
    alloc.memory_limit = replay->limit;
    alloc.recorder = options->follow || options->sink != NULL ? &replay->recorder : NULL;
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
        add_stats(&result->stats, &stats);
        error = varve_alloc_snapshot(replay->alloc, &snapshot);
    }
    if (error == VARVE_OK) {
        result->segments += snapshot.segment_count;
        varve_alloc_snapshot_free(&snapshot);
        if (replay->options->sink != NULL) {
            replay_sink_end(replay);
        }
    }
    return error;
}

static int run_device(struct replay *replay, struct replay_result *result, struct varve_message *message)
{
    int error = prepare(replay, message);

    replay_compare_open(replay);
    if (error == VARVE_OK) {
        error = open_allocator(replay, message);
    }
    if (error == VARVE_OK) {
        error = play(replay, result, message);
    }
    result->events += replay->trace->event_count;
    result->allocations += replay->allocations;
    result->starts_late |= replay->start.segment_count > 0;
    if (replay->mismatch.is_set) {
        result->mismatches++;
        result->segments_equal = false;
        if (!result->first.is_set) {
            result->first = replay->mismatch;
            result->first.device = replay->index;
        }
    }
    if (replay->alloc != NULL) {
        varve_alloc_close(replay->alloc);
    }
    if (replay->device != NULL) {
        replay->device->ops->close(replay->device);
    }
    replay_compare_close(replay);
    replay_pools_free(&replay->pools);
    replay_scan_free(&replay->scan);
    free(replay->start.segments);
    free(replay->start.blocks);
    free(replay->predicted.items);
    free(replay->cached.items);
    return error;
}

static int run_devices(const struct history *history, const struct replay_options *options,
                       struct replay_result *result, struct varve_message *message)
{
    int error = VARVE_OK;

    *result = (struct replay_result){.segments_equal = true};
    for (size_t i = 0; i < history->device_count && error == VARVE_OK; i++) {
        struct replay replay = {
            .history = history, .trace = &history->devices[i], .options = options, .index = (unsigned)i};
        struct varve_message reason = {""};

        error = run_device(&replay, result, &reason);
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

int replay_run(const struct history *history, const struct replay_options *options,
               struct replay_result *result, struct varve_message *message)
{
    double begin = now_seconds();
    int error = run_devices(history, options, result, message);

    /* pools that all ended before the history did leave no other trace than this */
    if (error == VARVE_OK && result->mismatches > 0 && options->follow && !options->derives_pools &&
        history->stream_count > 1) {
        struct replay_options again = *options;
        struct replay_result second;
        struct varve_message ignored;

        again.derives_pools = true;
        if (run_devices(history, &again, &second, &ignored) == VARVE_OK && second.mismatches == 0) {
            *result = second;
            result->derived_pools = true;
        }
    }
    result->seconds = now_seconds() - begin;
    return error;
}
