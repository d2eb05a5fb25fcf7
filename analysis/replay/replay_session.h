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

/* The next request of the program. */
struct replay_request {
    size_t event; /* alloc or oom */
    uint64_t bytes;
    uint16_t stream, pool;
    bool completes; /* its search has completed blocks */
};

struct replay_pool_state {
    bool is_made; /* the allocator has it */
    bool is_freeable;
    size_t retired_by; /* is_freeable: the first release of the run that showed it */
    int64_t reserved;  /* bytes of its segments, while the history is followed and names the pools of its events */
    size_t used_until; /* the event behind its last request */
};

struct replay {
    const struct history *history;
    const struct history_device *trace;
    const struct replay_options *options;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    uint64_t limit;        /* of reserved bytes; 0: none */
    bool releases_lock;    /* release_lock_on_cudamalloc: what others do may come within a request */
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
    bool passes_over; /* the mismatch: the request got a free block, or mapped there, which the history did not take */
    struct replay_call *emptied; /* emptied_count of them */
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

/*
 * Who completed blocks and released segments: the program by empty_cache, or a request on its way through the
 * out-of-memory chain. Called by replay_play.c for everything with completions or releases in front of a request.
 */

/// Whether the free that event `completion` completes, right behind its request, was deferred all the same: a
/// request came between that failed, or got a new segment, where it would else have found the block.
int replay_is_deferred(struct replay *replay, size_t completion, bool *answer_out);
/* How a request failed. */
struct replay_failure {
    enum {
        REPLAY_FAILS_LAST,       /* after the whole chain of its own pool */
        REPLAY_FAILS_IN_CAPTURE, /* without the wait and the release of all: others allocated to a private pool then */
        REPLAY_FAILS_IN_POOL,    /* `pool`, which no event names */
    } way;
    uint16_t pool;
};

/// How the request from the cursor on did that, if it did.
int replay_find_failure(struct replay *replay, const struct replay_request *request, struct replay_failure *out);
/// From the cursor: completions, releases, and the request behind them.
int replay_attribute_releases(struct replay *replay);
/// Private pools that have no user any more by the releases from event `event` on, the first of its run, whose end is
/// returned in `end_out`.
int replay_retire_pools(struct replay *replay, size_t event, size_t *end_out);
/// Nobody can make the request: its pool has lost its last user, in a history that names pools, and still has segments.
bool replay_is_without_user(const struct replay *replay, const struct replay_request *request);

/*
 * The conflict search: what a recording leaves open is answered in the likeliest way, and a replay that then goes wrong
 * is begun anew with the next answer. Called by replay.c, and by what meets an open question.
 */

/// Whether `completion`, in front of event `request`, came with a wait: what is known, else what is likely.
bool replay_choose(struct replay *replay, size_t completion, size_t request, bool likely);
/// After a mismatch: another answer that may be right; false if there is none.
bool replay_hints_learn(const struct replay *replay, struct replay_hints *hints);

/*
 * The calls that a program made, made again: the history shows what the allocator did, not what it was asked. In
 * the order of the history, so that its decisions come out again (replay_follow), or under other rules, wherever
 * the blocks lie then (replay_whatif). Called by replay.c.
 */

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

/*
 * Record against event: every record of the allocator that PyTorch's history has too must be the event at the
 * cursor, in action, address, size and stream, and moves the cursor on; and at the end segment against segment.
 * Here are also the addresses that the simulated device gives to segments: those that the history has next.
 */

/// varve_alloc_recorder.record
void replay_compare_record(void *context, const struct varve_record *record);
/// varve_sim_address: segments and reservations lie where the history has them.
int replay_segment_addr(void *context, uint64_t bytes, uint64_t stream,
                        const struct varve_device_reservation *reservation, uint64_t *addr_out);
int replay_reservation_addr(void *context, uint64_t bytes, uint64_t stream,
                            const struct varve_device_reservation *reservation, uint64_t *addr_out);
/// varve_sim_options.grant: none where the history was refused; how full the device was, it does not say.
int replay_grant(void *context);
/// The event at the cursor did not come; instead … The first call counts.
void replay_differs(struct replay *replay, const char *format, ...) __attribute__((format(printf, 2, 3)));
void replay_event_text(const struct replay *replay, size_t index, char *buffer, size_t bytes);

/// Compare the allocator's segments with the history's; the first difference in `result`.
int replay_final(struct replay *replay, struct replay_result *result);

#endif
