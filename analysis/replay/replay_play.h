/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that a program made, made again: the history shows what the allocator did, not what it was asked. In
 * the order of the history, so that its decisions come out again (replay_follow), or under other rules, wherever
 * the blocks lie then (replay_whatif). Called by replay.c.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_PLAY_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_PLAY_H

#include "analysis/replay/replay_session.h"

/* The next request of the program. */
struct replay_request {
    size_t event; /* alloc or oom */
    uint64_t bytes;
    uint16_t stream, pool;
};

/// Play all events; stops at the first mismatch. Errors: those of the allocator that are no decision.
int replay_follow(struct replay *replay);
int replay_make_start(struct replay *replay, struct varve_message *message);
/// The start is made: what comes from now on counts.
int replay_note_start(struct replay *replay);
bool replay_request_at(const struct replay *replay, size_t index, struct replay_request *request_out);
int replay_malloc(struct replay *replay, const struct replay_request *request);
/// The pseudo stream that holds the block back whose free event `completion` completes.
uint64_t replay_pseudo_stream(const struct replay *replay, size_t deferred);
uint64_t replay_completion_stream(size_t completion);

/// The requests of the history in their order, wherever they land.
int replay_whatif(struct replay *replay, struct replay_result *result, struct varve_message *message);

#endif
