/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/history/infer_device.h"

#include "analysis/base/number_format.h"

#include <inttypes.h>
#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)
#define CAPACITY_DEFAULT (80 * GIB)
#define RESERVATION_SLACK (UINT64_C(64) << 20) /* reservations are made of whole units */
#define DEVICE_MAX (2048 * GIB)                /* several times what the largest device has */

int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out, struct varve_message *message)
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
    int result = replay_config(history, NULL, &config, message);
    *start_out = (struct varve_alloc_snapshot){0};
    return result != VARVE_OK ? result : replay_start_rebuild(history, trace, &config, start_out, message);
}

bool replay_has_pools(const struct history_device *trace)
{
    for (size_t i = 0; i < trace->segment_count; i++) {
        if (trace->segments[i].pool_id[0] != 0 || trace->segments[i].pool_id[1] != 0) {
            return true;
        }
    }
    return replay_pools_are_named(trace);
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

static uint64_t total_of(const struct replay_device *inferred, uint64_t capacity)
{
    if (capacity != 0) {
        return capacity;
    }
    return inferred->scan.reserved_peak > CAPACITY_DEFAULT ? (inferred->scan.reserved_peak + GIB) / GIB * GIB
                                                           : CAPACITY_DEFAULT;
}

/* An expandable segment is mapped unit by unit, as on a device: sizes that no device has would take as long as they
 * say. */
static int check_reserved(const struct replay_scan *scan, uint64_t capacity, struct varve_message *message)
{
    uint64_t limit = capacity > DEVICE_MAX ? capacity : DEVICE_MAX;
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

static void bound_total_by_maps(const struct history *history, struct replay_device *inferred)
{
    struct replay_reservations reservations;
    replay_reservations_find(history, &inferred->trace, &inferred->start, NULL, 0, &reservations);
    bound_total(inferred, &reservations);
    replay_reservations_free(&reservations);
}

static int infer_by_settings(struct replay_device *inferred, const struct history *history, uint64_t capacity,
                             const struct varve_alloc_config *config, bool derives_pools, struct varve_message *message)
{
    int result = VARVE_OK;
    if (inferred->scan.reserved_start > 0) {
        result = replay_start_rebuild(history, &inferred->trace, config, &inferred->start, message);
    }
    if (result == VARVE_OK && (derives_pools || has_ranges(&inferred->start))) {
        uint64_t reach = inferred->total + inferred->total / 8;
        replay_reservations_find(history, &inferred->trace, &inferred->start, config, reach, &inferred->reservations);
        if (capacity == 0) {
            bound_total(inferred, &inferred->reservations);
        } else {
            replay_reservations_lower(&inferred->reservations, reach, config->large_segment_size);
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

int replay_infer_device(const struct history *history, unsigned index, const char *conf, uint64_t capacity, bool follow,
                        struct replay_device *inferred, struct varve_message *message)
{
    replay_device_clear(inferred);
    inferred->trace = history->devices[index];
    inferred->trace.events += inferred->hints.first;
    inferred->trace.event_count -= inferred->hints.first;
    bool derives_pools = inferred->hints.derives_pools || replay_has_pools(&inferred->trace);
    int result = replay_scan(&inferred->trace, &inferred->scan, message);
    VARVE_THEN(result, check_reserved(&inferred->scan, capacity, message));
    inferred->total = total_of(inferred, capacity);
    if (result == VARVE_OK && inferred->scan.has_maps && inferred->scan.reserved_start <= 0 && follow) {
        bound_total_by_maps(history, inferred);
    }
    if (result != VARVE_OK || (inferred->scan.reserved_start <= 0 && !derives_pools)) {
        return result;
    }
    struct varve_alloc_config config;
    result = replay_config(history, follow ? conf : NULL, &config, message);
    return result != VARVE_OK ? result
                              : infer_by_settings(inferred, history, capacity, &config, derives_pools, message);
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
