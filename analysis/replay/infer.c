/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/replay/infer.h"

#include "analysis/output/format.h"
#include "analysis/replay/hints.h"
#include "analysis/replay/pools.h"
#include "analysis/replay/replay.h"
#include "analysis/replay/reservations.h"
#include "analysis/replay/rounding.h"
#include "analysis/replay/scan.h"
#include "analysis/replay/start.h"

#include <inttypes.h>
#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)
#define CAPACITY_DEFAULT (80 * GIB)
#define RESERVATION_SLACK (UINT64_C(64) << 20) /* reservations are made of whole units */
#define DEVICE_MAX (2048 * GIB)                /* several times what the largest device has */

int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out,
                             struct varve_message *message)
{
    struct replay_scan scan = {0};
    int result = replay_scan(trace, &scan, message);

    *bytes_out = scan.reserved_start > 0 ? (uint64_t)scan.reserved_start : 0;
    replay_scan_free(&scan);
    return result;
}

int replay_start_of(const struct history *history, const struct history_device *trace,
                    struct varve_alloc_snapshot *start_out, struct varve_message *message)
{
    struct varve_alloc_config config;
    struct replay_rounding rounding;
    int result = replay_config(history, NULL, &config, message);

    *start_out = (struct varve_alloc_snapshot){0};
    if (result == VARVE_OK) {
        result = replay_rounding_open(&rounding, &config, message);
        if (result == VARVE_OK) {
            result = replay_start_rebuild(history, trace, &rounding, start_out, message);
        }
        replay_rounding_close(&rounding);
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

static uint64_t total_of(const struct replay_device *inferred, const struct replay_options *options)
{
    if (options->capacity != 0) {
        return options->capacity;
    }
    return inferred->scan.reserved_peak > CAPACITY_DEFAULT ? (inferred->scan.reserved_peak + GIB) / GIB * GIB
                                                           : CAPACITY_DEFAULT;
}

/* An expandable segment is mapped unit by unit, as on a device: sizes that no device has would take as long as they
 * say. */
static int check_reserved(const struct replay_scan *scan, const struct replay_options *options,
                          struct varve_message *message)
{
    uint64_t limit = options->capacity > DEVICE_MAX ? options->capacity : DEVICE_MAX;

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

/* Reservations have 9/8 of the device's memory, and do not overlap: without --capacity that shows how much it can
 * have had at most. */
static void bound_total(struct replay_device *inferred, const struct replay_reservations *reservations)
{
    uint64_t room = replay_reservations_room(reservations);
    uint64_t total =
        room == UINT64_MAX || room < 2 * RESERVATION_SLACK ? UINT64_MAX : (room - RESERVATION_SLACK) / 9 * 8;

    inferred->total = total < inferred->total ? total : inferred->total;
}

static void bound_total_by_maps(struct replay_device *inferred)
{
    struct replay_reservations reservations;

    replay_reservations_estimate(&inferred->trace, &reservations);
    bound_total(inferred, &reservations);
    replay_reservations_free(&reservations);
}

static int infer_with_rounding(struct replay_device *inferred, const struct history *history,
                               const struct replay_options *options, const struct replay_rounding *rounding,
                               bool derives_pools, struct varve_message *message)
{
    int result = VARVE_OK;

    if (inferred->scan.reserved_start > 0) {
        result = replay_start_rebuild(history, &inferred->trace, rounding, &inferred->start, message);
    }
    if (result == VARVE_OK && (derives_pools || has_ranges(&inferred->start))) {
        uint64_t reach = inferred->total + inferred->total / 8;

        replay_reservations_find(history, &inferred->trace, &inferred->start, rounding, reach,
                                 &inferred->reservations);
        if (options->capacity == 0) {
            bound_total(inferred, &inferred->reservations);
        } else {
            replay_reservations_lower(&inferred->reservations, reach, rounding->large_unit);
        }
    }
    if (result == VARVE_OK && derives_pools) {
        result = replay_pools_derive(history, &inferred->trace, &inferred->start, &inferred->reservations,
                                     &inferred->hints, &inferred->pools, message);
    }
    if (result == VARVE_OK) {
        replay_hints_apply(&inferred->hints, &inferred->start);
    }
    return result;
}

int replay_infer_device(const struct history *history, unsigned index, const struct replay_options *options,
                        struct replay_device *inferred, struct varve_message *message)
{
    struct varve_alloc_config config;
    struct replay_rounding rounding;
    bool derives_pools;
    int result;

    replay_device_clear(inferred);
    inferred->trace = history->devices[index];
    inferred->trace.events += inferred->hints.first;
    inferred->trace.event_count -= inferred->hints.first;
    derives_pools = inferred->hints.derives_pools || names_pools(&inferred->trace) ||
                    replay_pools_are_named(&inferred->trace);
    result = replay_scan(&inferred->trace, &inferred->scan, message);
    if (result == VARVE_OK) {
        result = check_reserved(&inferred->scan, options, message);
    }
    inferred->total = total_of(inferred, options);
    if (result == VARVE_OK && inferred->scan.has_maps && inferred->scan.reserved_start <= 0 &&
        options->follow) {
        bound_total_by_maps(inferred);
    }
    if (result != VARVE_OK || (inferred->scan.reserved_start <= 0 && !derives_pools)) {
        return result;
    }
    result = replay_config(history, options->follow ? options->conf : NULL, &config, message);
    if (result != VARVE_OK) {
        return result;
    }
    result = replay_rounding_open(&rounding, &config, message);
    if (result == VARVE_OK) {
        result = infer_with_rounding(inferred, history, options, &rounding, derives_pools, message);
    }
    replay_rounding_close(&rounding);
    return result;
}

void replay_device_clear(struct replay_device *inferred)
{
    replay_pools_free(&inferred->pools);
    replay_reservations_free(&inferred->reservations);
    replay_scan_free(&inferred->scan);
    free(inferred->start.segments);
    free(inferred->start.blocks);
    inferred->start = (struct varve_alloc_snapshot){0};
}
