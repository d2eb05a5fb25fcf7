/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a snapshot has beside events, call sites, settings and segments, in the database that it is imported into: so
 * that an export of the database gives the snapshot back. A text of `meta` for each device and one for the whole.
 */
#ifndef VARVE_ANALYSIS_HISTORY_SNAPSHOT_RESTS_H
#define VARVE_ANALYSIS_HISTORY_SNAPSHOT_RESTS_H

#include "trace/writer.h"
#include "analysis/history/history.h"
#include "base/error.h"

#include <stdint.h>

struct database;
struct history_stacks;

/* Numbers of events of one device, rising. */
struct history_numbers {
    size_t *items;
    size_t count, capacity;
};

/// `callsites`: of the history's stacks, by number; `moved`: by device, events that have another time in the database.
/// Nothing is written of a history that is from no snapshot.
void history_write_rests(struct varve_writer *writer, const struct history *history, const uint32_t *callsites,
                         const struct history_numbers *moved);
/// After the events were read. VARVE_ERROR_CORRUPT.
int history_read_rests(struct database *database, struct history *history, struct history_stacks *stacks,
                       struct varve_message *message);

#endif
