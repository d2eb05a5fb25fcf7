/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a history cannot have happened, in words about its events: memory allocated twice, freed twice or never
 * allocated, segments that overlap. Looked for only once a replay has failed, so that good histories do not pay for
 * it. Called by replay.c.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_CONTRADICTION_H
#define VARVE_ANALYSIS_HISTORY_INFER_CONTRADICTION_H

#include "analysis/history/history.h"
#include "base/error.h"

/// Is there an event that cannot come after those before it? Then which, and why not, in `message`.
bool replay_contradiction(const struct history_device *trace, bool is_late, struct varve_message *message);

#endif
