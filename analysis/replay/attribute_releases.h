/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who completed blocks and released segments: the program by empty_cache, or a request on its way through the
 * out-of-memory chain. Called by replay_play.c for everything with completions or releases in front of a request.
 */
#ifndef VARVE_ANALYSIS_REPLAY_ATTRIBUTE_RELEASES_H
#define VARVE_ANALYSIS_REPLAY_ATTRIBUTE_RELEASES_H

#include "analysis/replay/replay_session.h"

/// Whether the free that event `completion` completes, right behind its request, was deferred all the same: a
/// request came between that failed, or got a new segment, where it would else have found the block.
int replay_is_deferred(struct replay *replay, size_t completion, bool *answer_out);
/// From the cursor: completions, releases, and the request behind them.
int replay_attribute_releases(struct replay *replay);
/// Private pools that have no user any more by the releases from event `event` on, the first of its run, whose end is
/// returned in `end_out`.
int replay_retire_pools(struct replay *replay, size_t event, size_t *end_out);

#endif
