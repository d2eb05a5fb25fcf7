/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one play of one device's history: its allocator on its simulated device, the cursor, and what came
 * out. Made by replay.c; one thread has it. Nothing that was inferred is changed through it.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_SESSION_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_SESSION_H

#include "analysis/history/infer_device.h"
#include "analysis/replay/replay.h"

struct replay_releases {
    struct varve_alloc_release *items;
    size_t count, capacity;
};

/* The last alloc of the allocator, in a free block of `found` units, or its last release. */
struct replay_landing {
    uint64_t addr, found, requested; /* found 0: it was a release */
};

/* The last answer that could have been another one. */
struct replay_choice {
    bool is_open, answer;
    size_t completion, request; /* events */
};

struct replay_pool_state {
    bool is_made; /* the allocator has it */
    bool is_freeable;
};

struct replay {
    const struct history *history;
    const struct history_device *trace;
    const struct replay_options *options;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    uint64_t limit;        /* of reserved bytes; 0: none */
    size_t cursor;         /* the event that comes next; event_count at the end */
    size_t deferred_next;  /* of scan.deferred */
    uint16_t stream, pool; /* of the running request: new numbers in records are theirs */
    bool is_starting;      /* the start state is made: records are not compared */
    struct replay_start start;
    bool requests_start; /* the policy cannot begin with given blocks: it is asked for them */
    uint32_t *stream_of; /* of the number in a record: index in history.streams + 1; 0 unknown */
    uint32_t *number_of; /* the other way round; both have history.stream_count items */
    uint64_t allocations;
    const struct replay_device *inferred;
    struct replay_pool_state *pools; /* by number in inferred->pools */
    bool *is_reserved;               /* by number in inferred->reservations: the start state has it */
    struct replay_choice choice;
    struct replay_landing landed;
    size_t start_placed;                      /* segments of the start that have their address */
    uint64_t next_addr;                       /* of a segment that has no address in the history */
    unsigned index;                           /* of the device */
    struct replay_releases predicted, cached; /* plans of releases */
    struct replay_mismatch mismatch;
    bool limit_is_small; /* the mismatch: something is given back or refused that was not */
    size_t *emptied;     /* events that calls of empty_cache began with; emptied_count of them */
    size_t emptied_count, emptied_capacity;
    size_t emptied_next; /* not follow: of inferred->calls */
};

/// replay_session_close in any case. `inferred` and `options` are borrowed until then. Errors: VARVE_ERROR_INVALID
/// (options), NO_MEMORY.
int replay_session_open(struct replay *replay, const struct history *history, unsigned index,
                        const struct replay_device *inferred, const struct replay_options *options,
                        struct varve_message *message);
void replay_session_close(struct replay *replay);
/// Enter and leave a private pool; 0 is the default pool, which needs neither.
int replay_pool_enter(struct replay *replay, uint16_t pool);
int replay_pool_leave(struct replay *replay, uint16_t pool);

#endif
