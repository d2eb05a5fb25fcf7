/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped memory of expandable segments while a history is undone: ranges by address that grow together and fall
 * apart. A snapshot has one segment for each contiguous range; an unmapped one has left no more than the event,
 * which does not say whether it served small requests; what was allocated in it before does. Used by infer_start.c and
 * infer_contradiction.c.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_RANGES_H
#define VARVE_ANALYSIS_HISTORY_INFER_RANGES_H

#include "alloc/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replay_range_kind {
    REPLAY_RANGE_UNKNOWN,
    REPLAY_RANGE_SMALL,
    REPLAY_RANGE_LARGE,
};

struct replay_range {
    uint64_t addr, bytes, stream;
    struct varve_pool_id pool;
    enum replay_range_kind kind;
};

struct replay_ranges {
    struct replay_range *items; /* by address; no two overlap */
    size_t count, capacity, unknown_count;
};

static inline bool replay_same_pool(struct varve_pool_id a, struct varve_pool_id b)
{
    return a.capture == b.capture && a.user == b.user;
}
struct replay_range *replay_range_at(struct replay_ranges *ranges, uint64_t addr); /* NULL: none */
/// Grows together with what it touches; false if it overlaps with another one.
bool replay_range_add(struct replay_ranges *ranges, struct replay_range range);
/// False if not all of it is in one range.
bool replay_range_remove(struct replay_ranges *ranges, uint64_t addr, uint64_t bytes);
/// A request of that class was served at an address.
void replay_range_note(struct replay_ranges *ranges, uint64_t addr, bool is_small);
void replay_ranges_free(struct replay_ranges *ranges);

#endif
