/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `varve replay` share. One thread calls all of it; one `struct replay` per device.
 *
 *   command_replay.c ─► replay.c (devices, options, sums) ─► replay_follow.c (which call comes next)
 *                            │                                    └─► replay_burst.c (who released memory)
 *                            ├─► replay_scan.c, replay_start.c, replay_pools.c (what the history leaves out)
 *                            ├─► replay_whatif.c (the same requests under other rules)
 *                            └─► replay_final.c (segments at the end), replay_compare.c (record by record)
 *
 * Following: the allocator says by its records what it decided; each must equal the event at the cursor and
 * moves it on. Nothing is looked up in the history that the allocator could have copied, except the addresses
 * of segments, which are the device's choice.
 */
#ifndef VARVE_ANALYSIS_REPLAY_INTERNAL_H
#define VARVE_ANALYSIS_REPLAY_INTERNAL_H

#include "alloc/alloc.h"
#include "analysis/history_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REPLAY_NONE SIZE_MAX

/* ---- replay_map.c: 64-bit key → 64-bit value; open addressing. UINT64_MAX is no key. ---- */

struct replay_map {
    uint64_t *slots; /* key and value, key and value, … */
    size_t count, capacity;
};

uint64_t *replay_map_find(const struct replay_map *map, uint64_t key); /* NULL: not there */
void replay_map_put(struct replay_map *map, uint64_t key, uint64_t value);
/// Remove a key; false if it is not there.
bool replay_map_take(struct replay_map *map, uint64_t key, uint64_t *value_out);
void replay_map_free(struct replay_map *map);

/* ---- replay_scan.c: one pass over the events, before anything is replayed ---- */

/* A free that other streams held back: events number `request` and `completion` (REPLAY_NONE: never). */
struct replay_deferred {
    size_t request, completion;
};

struct replay_scan {
    struct replay_deferred *deferred; /* by request */
    size_t deferred_count, deferred_capacity;
    size_t *early; /* completions of frees that were requested before the history began */
    size_t early_count, early_capacity;
    size_t allocations; /* events of that kind */
    uint64_t reserved_peak;
    int64_t reserved_start; /* bytes in segments before the first event; 0: it began with nothing */
    bool has_maps;
};

/// Errors: VARVE_ERROR_FORMAT, with the event that cannot be; the caller frees `scan` in any case.
int replay_scan(const struct history_device *trace, struct replay_scan *scan, struct varve_message *message);
void replay_scan_free(struct replay_scan *scan);
/// Number of the first event at or after `index` that is a decision (not a snapshot).
size_t replay_decision(const struct history_device *trace, size_t index);
/// The free requested by event `index` was completed at once.
bool replay_is_immediate(const struct history_device *trace, size_t index);

/* ---- replay_start.c: a history that began late, rolled back to its beginning ---- */

/// Segments and blocks before the first event, from those at the end. `rounding` tells how requests are
/// rounded. Blocks of early completions are pending. Errors: VARVE_ERROR_FORMAT.
int replay_start(const struct history *history, const struct history_device *trace,
                 struct varve_alloc *rounding, struct varve_alloc_snapshot *start_out,
                 struct varve_message *message);

/* ---- replay_pool_proofs.c: which segments cannot be in one pool ---- */

/* A segment from the event that made it to the one that gave it back. */
struct replay_pool_segment {
    uint64_t addr, bytes;
    size_t first_use, last_use; /* events of its first and last alloc; REPLAY_NONE: never used */
    uint16_t stream;
    bool is_small, is_gone;
};

struct replay_pool_proofs {
    struct replay_pool_segment *segments; /* those of the start first, then in order of their events */
    size_t count, capacity;
    uint64_t *differ; /* bit b of row a: not in one pool */
    size_t row_words;
    uint32_t *of_event; /* of alloc, segment_alloc and segment_free: number + 1; else 0 */
};

/// Replay blocks without any policy: an alloc that passes over a free block that it should have taken shows
/// that the block was in another pool. Errors: VARVE_ERROR_FORMAT, UNSUPPORTED.
int replay_pool_prove(const struct history_device *trace, const struct varve_alloc_snapshot *start,
                      const struct history *history, struct varve_alloc *rounding,
                      struct replay_pool_proofs *proofs, struct varve_message *message);
void replay_pool_proofs_free(struct replay_pool_proofs *proofs);

static inline bool replay_pool_differ(const struct replay_pool_proofs *proofs, size_t a, size_t b)
{
    return (proofs->differ[a * proofs->row_words + b / 64] >> (b % 64) & 1) != 0;
}

/* ---- replay_pools.c: which private pool each event belongs to ---- */

struct replay_pool {
    struct varve_pool_id id;
    bool is_made; /* the allocator has it */
    bool is_freeable;
};

struct replay_pools {
    uint16_t *of_event; /* index into `pools` of allocs and segment events; NULL: the default pool for all */
    struct replay_pool *pools; /* 0: the default pool */
    size_t count;
};

/// Sets the pools of the start's segments, too. Errors: VARVE_ERROR_FORMAT (the events contradict each
/// other), UNSUPPORTED (expandable segments, or more segments than can be told apart).
int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct varve_alloc *rounding,
                        struct replay_pools *pools, struct varve_message *message);
void replay_pools_free(struct replay_pools *pools);

/* ---- replay_sink.c: the records of a replay, into a database ---- */

struct replay;
struct replay_sink;
struct varve_writer;

/// `writer` and `history` are borrowed and must outlive the sink. Out: the caller's, by replay_sink_free.
struct replay_sink *replay_sink_new(struct varve_writer *writer, const struct history *history);
void replay_sink_free(struct replay_sink *sink);
/// Time of the history's first event, in its own clock.
int64_t replay_sink_begin(const struct replay_sink *sink);
/// All call sites of the history, by number of the stack; those that no event had are made now.
const uint32_t *replay_sink_callsites(struct replay_sink *sink);
/// Call sites of the history in the database, by number of the stack; made once.
uint32_t replay_sink_callsite(struct replay_sink *sink, uint32_t stack);
/// ns of an event since the history's first one; never goes back.
int64_t replay_sink_time(struct replay_sink *sink, const struct history_event *event);
void replay_sink_take(struct replay *replay, const struct varve_record *record);
/// What the numbers in the records of this device mean.
void replay_sink_end(struct replay *replay);

/* ---- replay.c ---- */

/* What is to be replayed, and how. */
struct replay_options {
    const char *policy;       /* NULL: "pytorch" */
    const char *conf;         /* NULL: the history's own settings */
    uint64_t memory_limit;    /* 0: by the fraction in `conf`, or none */
    uint64_t capacity;        /* of the device; 0: large enough */
    bool follow;              /* the history's addresses and decisions are to come out again */
    bool derives_pools;       /* private pools, though no segment at the end tells of one */
    struct replay_sink *sink; /* NULL: none */
    struct progress *progress;
};

/* The first event that came out otherwise. */
struct replay_mismatch {
    bool is_set;
    unsigned device;
    size_t event; /* number of the event, from 0 */
    char expected[160], got[320];
};

struct replay_result {
    uint64_t events, allocations; /* read; done */
    uint64_t mismatches;
    struct replay_mismatch first;
    bool segments_equal;
    char difference[320]; /* between the segments, "" if none */
    struct varve_alloc_stats stats;
    uint64_t segments;      /* at the end */
    uint64_t ooms, skipped; /* requests that failed; frees of what was never allocated */
    double seconds;
    bool starts_late;
    bool derived_pools; /* … and that made the difference */
};

/// The settings that `conf` says, or (NULL) those that the history was recorded with. VARVE_ERROR_INVALID.
int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message);
/// The same as a snapshot tells it.
int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message);
/// Bytes in segments before the first event.
int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out,
                             struct varve_message *message);
/// replay_start with the history's own settings; the caller frees segments and blocks with free.
int replay_start_of(const struct history *history, const struct history_device *trace,
                    struct varve_alloc_snapshot *start_out, struct varve_message *message);
/// Replay all devices of a history. A mismatch is no error. Errors: VARVE_ERROR_INVALID (options), FORMAT
/// (events that contradict each other), UNSUPPORTED, and the allocator's.
int replay_run(const struct history *history, const struct replay_options *options,
               struct replay_result *result, struct varve_message *message);

/* ---- the state of one device's replay ---- */

struct replay_releases {
    struct varve_alloc_release *items;
    size_t count, capacity;
};

struct replay {
    const struct history *history;
    const struct history_device *trace;
    const struct replay_options *options;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    uint64_t limit; /* of reserved bytes; 0: none */
    uint64_t large_segment_size;
    size_t cursor;         /* the event that comes next; event_count at the end */
    size_t deferred_next;  /* of scan.deferred */
    uint16_t stream, pool; /* of the running request: new numbers in records are theirs */
    bool is_starting;      /* the start state is made: records are not compared */
    uint32_t *stream_of;   /* of the number in a record: index in history.streams + 1; 0 unknown */
    uint32_t *number_of;   /* the other way round; both have history.stream_count items */
    uint64_t allocations;
    struct replay_scan scan;
    struct replay_pools pools;
    struct varve_alloc_snapshot start;        /* without segments if the history begins with nothing */
    size_t start_placed;                      /* segments of it that have their place */
    uint64_t next_addr;                       /* of a segment that the history does not place */
    unsigned index;                           /* of the device */
    struct replay_releases predicted, cached; /* plans of replay_predict.c */
    struct replay_mismatch mismatch;
};

/* ---- replay_compare.c ---- */

void replay_compare_open(struct replay *replay);
void replay_compare_close(struct replay *replay);
/// varve_alloc_recorder.record
void replay_take(void *context, const struct varve_record *record);
/// varve_sim_place: segments and reservations lie where the history has them.
int replay_place_segment(void *context, uint64_t bytes, uint64_t stream,
                         const struct varve_device_place *place, uint64_t *addr_out);
int replay_place_reservation(void *context, uint64_t bytes, uint64_t stream,
                             const struct varve_device_place *place, uint64_t *addr_out);
/// The event at the cursor did not come; instead … The first call counts.
void replay_differs(struct replay *replay, const char *format, ...) __attribute__((format(printf, 2, 3)));
void replay_event_text(const struct replay *replay, size_t index, char *buffer, size_t bytes);

/* ---- replay_follow.c ---- */

/* The next request of the program. */
struct replay_request {
    size_t event; /* alloc or oom */
    uint64_t bytes;
    uint16_t stream, pool;
};

/// Play all events; stops at the first mismatch. Errors: those of the allocator that are no decision.
int replay_follow(struct replay *replay, struct varve_message *message);
int replay_make_start(struct replay *replay, struct varve_message *message);
bool replay_request_at(const struct replay *replay, size_t index, struct replay_request *request_out);
/// Enter and leave the request's private pool, if it has one.
int replay_pool_enter(struct replay *replay, uint16_t pool);
int replay_pool_leave(struct replay *replay, uint16_t pool);
int replay_malloc(struct replay *replay, const struct replay_request *request);
/// The pseudo stream that holds the block back whose free event `completion` completes.
uint64_t replay_pseudo_stream(const struct replay *replay, size_t deferred);
uint64_t replay_completion_stream(size_t completion);

/* ---- replay_burst.c ---- */

/// Whether the free that event `completion` completes, right behind its request, was held back all the same:
/// a request came between that failed, or got a new segment, where it would else have found the block.
int replay_is_held(struct replay *replay, size_t completion, bool *answer_out);
/// From the cursor: completions, releases, and the request behind them.
int replay_burst(struct replay *replay);

/* A run of completions and a run of releases (event numbers, end exclusive), and what comes then. */
struct replay_run {
    size_t completed_begin, completed_end;
    size_t released_begin, released_end;
    size_t next;
    size_t completed, released; /* decisions in them */
};

/* ---- replay_predict.c: what a request, or empty_cache, would release now ---- */

/* What the allocator would do with a request; replay.predicted holds what it would release meanwhile. */
struct replay_prediction {
    bool is_hit;
    bool is_small;
    uint64_t rounded;
    bool is_certain;       /* the limit tells how far the chain goes; else the device's fullness does */
    bool reaches_all;      /* the limit makes the request release everything */
    bool exceeds_capacity; /* the device cannot have room even after gc */
    size_t gc_count, available_count, all_count; /* of replay.predicted after each stage */
};

/// Enters and leaves the request's pool; changes nothing else.
int replay_predict(struct replay *replay, const struct replay_request *request,
                   struct replay_prediction *prediction_out);
/// What empty_cache would release, into replay.cached.
int replay_predict_empty_cache(struct replay *replay);
/// How many of the first `count` releases of `plan` are the events from `index` on, one by one.
size_t replay_releases_equal(const struct replay *replay, size_t index, size_t end,
                             const struct replay_releases *plan, size_t count);
/* ---- replay_completion.c: a wait for all streams, foreseen ---- */

/* A block in use that is to complete together with the pending ones, and where a request looks. */
struct replay_held {
    uint64_t addr; /* 0: none */
    uint64_t stream;
    bool is_small;
};

struct replay_completion {
    bool is_all;           /* the run is that completion and what release_cached_blocks would release then */
    size_t pending;        /* blocks that would complete */
    uint64_t largest_left; /* bytes free together, of that stream and class, in segments that stay */
};

/// What there would be if all pending blocks and `held` completed now, and all free segments of the default
/// pool were released.
int replay_after_completion(struct replay *replay, const struct replay_run *run,
                            const struct replay_held *held, struct replay_completion *completion_out);

/* ---- replay_whatif.c ---- */

/// The requests of the history in their order, wherever they land.
int replay_whatif(struct replay *replay, struct replay_result *result, struct varve_message *message);

/* ---- replay_final.c ---- */

/// Compare the allocator's segments with the history's; the first difference in `result`.
int replay_final(struct replay *replay, struct replay_result *result);

#ifdef __cplusplus
}
#endif

#endif
