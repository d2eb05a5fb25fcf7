/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conflict search: what a recording leaves open is answered in the likeliest way, and a replay that then goes wrong
 * is begun anew with the next answer. Called by replay.c, and by what meets an open question.
 */
#ifndef VARVE_ANALYSIS_REPLAY_CONFLICT_SEARCH_H
#define VARVE_ANALYSIS_REPLAY_CONFLICT_SEARCH_H

#include "analysis/replay/replay_session.h"

/// Whether `completion`, in front of event `request`, came with a wait: what is known, else what is likely.
bool replay_choose(struct replay *replay, size_t completion, size_t request, bool likely);
/// After a mismatch: another answer that may be right; false if there is none.
bool replay_hints_learn(const struct replay *replay, struct replay_hints *hints);

#endif
