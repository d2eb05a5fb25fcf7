/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings and pieces are memory of the program's control group, which is killed when that is full: together they may have
 * a quarter of what the group had without them, and the program the rest. The same holds for the machine. What does not
 * fit goes to the disk, or where that is no better waits for the collector. Called in each heartbeat of the collector.
 */
#include "trace/collector/collector.h"

#include "trace/collector/session/mapped_recordings.h"
#include "trace/format/session_format.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_BYTES 4096U
#define SCARCE_BYTES (UINT64_C(512) << 20) /* files that are written count for a group until they are on the disk */

static uint64_t memory_bounds_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A quarter of what is free and of what is used already. */
static uint64_t quarter(uint64_t free, uint64_t used)
{
    return free < UINT64_MAX / 2 && used < UINT64_MAX / 2 ? (free + used) / 4 : UINT64_MAX;
}

/* A quarter of what the smallest group has. */
static uint64_t group_bound(const struct collect_bounds *bounds, uint64_t used)
{
    uint64_t bound = UINT64_MAX - 1;
    for (size_t i = 0; i < bounds->group_count; i++) {
        bound = memory_bounds_least(bound, quarter(free_memory_of_groups("", bounds->groups[i]), used));
    }
    return bound;
}

/* What the disk may take besides is not less for what memory may. Never 0, which were no limit. */
void collect_bounds_round(struct collector *collector)
{
    const struct collect_bounds *bounds = &collector->bounds;
    struct session_control *control = collector->directory.control;
    if (bounds->spill_bytes_disk == 0) {
        return;
    }
    const uint64_t used = __atomic_load_n(&collector->directory.counts->memory_bytes, __ATOMIC_ACQUIRE);
    const uint64_t group = group_bound(bounds, used);
    const uint64_t memory = bounds->memory_bytes != 0 ? memory_bounds_least(group, bounds->memory_bytes) : group;
    uint64_t growth = memory_bounds_least(quarter(free_memory(""), used), memory / 2);
    if (bounds->spill_bytes_asked != 0) {
        growth = memory_bounds_least(growth, bounds->spill_bytes_asked);
    }
    __atomic_store_n(&control->memory_is_scarce, group < SCARCE_BYTES / 4, __ATOMIC_RELAXED);
    __atomic_store_n(&control->memory_bytes_max, memory + (memory == 0), __ATOMIC_RELAXED);
    __atomic_store_n(&control->growth_bytes_max, growth + (growth == 0), __ATOMIC_RELAXED);
    if (bounds->spill_bytes_asked == 0) {
        __atomic_store_n(&control->spill_bytes_max, bounds->spill_bytes_disk + growth, __ATOMIC_RELAXED);
    }
}

void collect_bounds_begin(struct collector *collector, uint64_t spill_bytes_asked, uint64_t spill_bytes_disk,
                          uint64_t memory_bytes)
{
    struct collect_bounds *bounds = &collector->bounds;
    bounds->spill_bytes_asked = spill_bytes_asked;
    bounds->spill_bytes_disk = spill_bytes_asked != 0 ? spill_bytes_asked : spill_bytes_disk;
    bounds->memory_bytes = memory_bytes;
    collector->directory.control->spill_bytes_max = bounds->spill_bytes_disk;
    collect_bounds_process(collector, 0);
    collect_bounds_round(collector);
}

void collect_bounds_process(struct collector *collector, int32_t pid)
{
    struct collect_bounds *bounds = &collector->bounds;
    char groups[GROUP_BYTES];
    if (bounds->spill_bytes_disk == 0 || bounds->group_count == SESSION_GROUPS_MAX ||
        !free_memory_groups("", pid, groups, sizeof(groups))) {
        return;
    }
    for (size_t i = 0; i < bounds->group_count; i++) {
        if (strcmp(bounds->groups[i], groups) == 0) {
            return;
        }
    }
    bounds->groups[bounds->group_count] = strdup(groups);
    if (bounds->groups[bounds->group_count] != NULL) {
        const size_t i = bounds->group_count++;
        collect_bounds_round(collector);
        __atomic_store_n(&collector->directory.control->groups_bounded[i], session_groups_number(groups),
                         __ATOMIC_RELEASE);
    }
}

void collect_bounds_end(struct collector *collector)
{
    for (size_t i = 0; i < collector->bounds.group_count; i++) {
        free(collector->bounds.groups[i]);
    }
    collector->bounds.group_count = 0;
}
