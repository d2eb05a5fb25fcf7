/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocator_settings of a snapshot: the settings of the allocator, as far as PyTorch writes them down. Called by
 * snapshot_read.c.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_SETTINGS_H
#define VARVE_ANALYSIS_SNAPSHOT_SNAPSHOT_SETTINGS_H

#include "analysis/snapshot/snapshot_reader.h"

int settings_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value);
/// Whether entries were overwritten: one bool for all devices, a list by device, or a dict from device to bool.
/// PyTorch's viewer looks for it among the settings; it may be a key of the snapshot as well.
int overflowed_take(struct snapshot_reader *reader, struct pickle_value key, struct pickle_value value);

#endif
