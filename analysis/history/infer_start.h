/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history that began late, rolled back to its beginning: the segments and blocks before its first event.
 * Called by infer_device.c.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_START_H
#define VARVE_ANALYSIS_HISTORY_INFER_START_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

/// Segments and blocks before the first event, from those at the end; the caller frees both arrays with free.
/// Errors: VARVE_ERROR_FORMAT.
int replay_start_rebuild(const struct history *history, const struct history_device *trace,
                         const struct varve_alloc_config *config, struct varve_alloc_snapshot *start_out,
                         struct varve_message *message);

#endif
