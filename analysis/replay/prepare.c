/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a history leaves out, before one device of it is replayed: the state that it began with, the address
 * ranges of expandable segments, private pools, and how much memory the device may have had. Called by
 * replay.c.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/format.h"

#include <inttypes.h>
#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)
#define CAPACITY_DEFAULT (80 * GIB)
#define PLACE_SLACK (UINT64_C(64) << 20) /* reservations are made of whole units */
#define DEVICE_MAX (2048 * GIB)          /* several times what the largest device has */

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

static bool has_ranges(const struct varve_alloc_snapshot *start)
{
    for (size_t i = 0; i < start->segment_count; i++) {
        if (start->segments[i].is_expandable) {
            return true;
        }
    }
    return false;
}

static uint64_t total_of(const struct replay *replay)
{
    if (replay->options->capacity != 0) {
        return replay->options->capacity;
    }
    return replay->scan.reserved_peak > CAPACITY_DEFAULT ? (replay->scan.reserved_peak + GIB) / GIB * GIB
                                                         : CAPACITY_DEFAULT;
}

/* An expandable segment is mapped unit by unit, as on a device: sizes that no device has would take as long
 * as they say. */
static int check_reserved(const struct replay *replay, struct varve_message *message)
{
    const struct replay_scan *scan = &replay->scan;
    uint64_t limit = replay->options->capacity > DEVICE_MAX ? replay->options->capacity : DEVICE_MAX;

    if (scan->largest_bytes > limit) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "a segment of %s at 0x%" PRIx64
                                 ": no device has that much memory (if this one has, --capacity says so)",
                                 format_bytes_exact((int64_t)scan->largest_bytes).text, scan->largest_addr);
    }
    if (scan->reserved_peak > limit) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "segments of %s at once: no device has that much memory (if this one has, "
                                 "--capacity says so)",
                                 format_bytes_exact((int64_t)scan->reserved_peak).text);
    }
    return VARVE_OK;
}

/* Reservations have 9/8 of the device's memory, and do not overlap: without --capacity that says how much it
 * can have had at most. */
static void bound_total(struct replay *replay, const struct replay_places *places)
{
    uint64_t room = replay_places_room(places);
    uint64_t total = room == UINT64_MAX || room < 2 * PLACE_SLACK ? UINT64_MAX : (room - PLACE_SLACK) / 9 * 8;

    replay->total = total < replay->total ? total : replay->total;
}

static void glance_at_places(struct replay *replay)
{
    struct replay_places places;

    replay_places_glance(replay->trace, &places);
    bound_total(replay, &places);
    replay_places_free(&places);
}

static int work_out(struct replay *replay, struct varve_alloc *rounding, uint64_t large_unit,
                    bool derives_pools, struct varve_message *message)
{
    int result = VARVE_OK;

    if (replay->scan.reserved_start > 0) {
        result = replay_start(replay->history, replay->trace, rounding, &replay->start, message);
    }
    if (result == VARVE_OK && (derives_pools || has_ranges(&replay->start))) {
        replay_places_find(replay->history, replay->trace, &replay->start, rounding,
                           replay->total + replay->total / 8, &replay->places);
        if (replay->options->capacity == 0) {
            bound_total(replay, &replay->places);
        } else {
            replay_places_lower(&replay->places, replay->total + replay->total / 8, large_unit);
        }
    }
    if (result == VARVE_OK && derives_pools) {
        result = replay_pools_derive(replay->history, replay->trace, &replay->start, &replay->places,
                                     rounding, replay->hints, &replay->pools, message);
    }
    if (result == VARVE_OK) {
        replay_hints_apply(replay->hints, &replay->start);
    }
    return result;
}

/* What the history leaves out: its start, and private pools. */
int replay_prepare(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    struct varve_alloc_config config;
    struct rounding rounding;
    bool derives_pools =
        options->derives_pools || names_pools(replay->trace) || replay_pools_are_told(replay->trace);
    int result = replay_scan(replay->trace, &replay->scan, message);

    if (result == VARVE_OK) {
        result = check_reserved(replay, message);
    }
    replay->total = total_of(replay);
    if (result == VARVE_OK && replay->scan.has_maps && replay->scan.reserved_start <= 0 && options->follow) {
        glance_at_places(replay);
    }
    if (result != VARVE_OK || (replay->scan.reserved_start <= 0 && !derives_pools)) {
        return result;
    }
    result = replay_config(replay->history, options->follow ? options->conf : NULL, &config, message);
    if (result != VARVE_OK) {
        return result;
    }
    result = rounding_open(&rounding, &config, message);
    if (result == VARVE_OK) {
        result = work_out(replay, rounding.alloc, config.large_segment_size, derives_pools, message);
    }
    rounding_close(&rounding);
    return result;
}
