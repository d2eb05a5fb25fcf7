/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a snapshot has beside events, call sites, settings and segments, in the database that it is imported into: so that an export of
 * the database gives the snapshot back. A text of `meta` for each device and one for the whole.
 */
#ifndef VARVE_ANALYSIS_HISTORY_RESTS_H
#define VARVE_ANALYSIS_HISTORY_RESTS_H

#include "analysis/history/history.h"

#ifdef __cplusplus
extern "C" {
#endif

struct database;
struct history_stacks;

/// `callsites`: of the history's stacks, by number. Nothing is written of a history that is from no snapshot.
void history_write_rests(struct varve_writer *writer, const struct history *history, const uint32_t *callsites);
/// After the events were read. VARVE_ERROR_CORRUPT.
int history_read_rests(struct database *database, struct history *history, struct history_stacks *stacks,
                       struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
