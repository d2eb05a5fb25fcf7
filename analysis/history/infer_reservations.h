/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address ranges that expandable segments reserved, worked out from what was mapped in them. Called by
 * infer_device.c and the pool passes; a session's device puts its reservations there.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_RESERVATIONS_H
#define VARVE_ANALYSIS_HISTORY_INFER_RESERVATIONS_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

struct replay_reservation {
    uint64_t base, high; /* of all that was ever mapped */
    uint64_t mapped;     /* bytes, at the end */
    struct varve_pool_id pool;
    size_t made_by, gone_by; /* events; REPLAY_NONE: there at the start, or at the end */
    uint16_t stream;         /* index into history.streams */
    bool is_small, is_start;
};

struct replay_reservations {
    struct replay_reservation *items; /* those of the start first, by address; then in order of their events */
    size_t count, capacity;
    uint32_t *of_event; /* of alloc, segment_map and segment_unmap: number + 1; else 0 */
};

/// `reach`: how many bytes one of them has. Without `config` only what maps show: classes and allocs are left out.
void replay_reservations_find(const struct history *history, const struct history_device *trace,
                              const struct varve_alloc_snapshot *start, const struct varve_alloc_config *config,
                              uint64_t reach, struct replay_reservations *reservations);
void replay_reservations_free(struct replay_reservations *reservations);
/// Both were there at some time.
bool replay_reservations_coexist(const struct replay_reservation *a, const struct replay_reservation *b);
/// The least distance from one base to the next; UINT64_MAX: there are no two.
uint64_t replay_reservations_room(const struct replay_reservations *reservations);
/// Move bases of the start down, where that is the only way to have `reach` bytes in front of the next one.
void replay_reservations_lower(struct replay_reservations *reservations, uint64_t reach, uint64_t large_unit);
/// Number of the one that holds an address and is not gone; REPLAY_NONE: none.
size_t replay_reservation_at(const struct replay_reservations *reservations, uint64_t addr);

#endif
