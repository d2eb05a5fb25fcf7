/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event of a device's trace, added to the history and released: ten million of them are no rarity. Keys
 * come in any order; unknown ones are passed over. Called by snapshot_read.c.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_EVENT_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_EVENT_H

#include "analysis/snapshot/snapshot_reader.h"

int event_take(struct snapshot_reader *reader, size_t device, struct pickle_value value);

#endif
