/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of `varve replay` share. One thread calls all of it; one `struct replay` per device.
 *
 *   cli/replay.c ─► replay.c (devices, options, sums) ─► follow.c (which call comes next)
 *                            │                                    └─► attribute_releases.c (who released memory)
 *                            ├─► scan.c, start.c, pools.c (what the history leaves out)
 *                            ├─► whatif.c (the same requests under other rules)
 *                            └─► final.c (segments at the end), compare.c (record by record)
 *
 * Following: the allocator says by its records what it decided; each must equal the event at the cursor and
 * moves it on. Nothing is looked up in the history that the allocator could have copied, except the addresses
 * of segments, which are the device's choice.
 */
#ifndef VARVE_ANALYSIS_REPLAY_REPLAY_H
#define VARVE_ANALYSIS_REPLAY_REPLAY_H

#include "analysis/replay/passes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- attempt.c: answers to what a device's history leaves open ---- */

struct replay;

struct replay_hints {
    size_t first;              /* event to begin with: those before belong to a request that began earlier */
    struct replay_map sizes;   /* of blocks of the start, by address */
    struct replay_map choices; /* 1: the completion (event) came with a wait for all streams */
    struct replay_map pools;   /* of segments: 1: not the default one; 2: one of its own */
    unsigned attempts;
};

struct replay_hints *replay_hints_new(size_t device_count);
void replay_hints_clear(struct replay_hints *hints, size_t device_count);
void replay_hints_free(struct replay_hints *hints, size_t device_count);
/// Give the start's blocks the sizes that were found out.
void replay_hints_apply(const struct replay_hints *hints, struct varve_alloc_snapshot *start);
/// Whether `completion`, in front of event `request`, came with a wait: what is known, else what is likely.
bool replay_choose(struct replay *replay, size_t completion, size_t request, bool likely);
/// After a mismatch: another answer that may be right; false if there is none.
bool replay_hints_learn(const struct replay *replay, struct replay_hints *hints);

/* ---- history_writer.c: the records of a replay, into a database ---- */

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

/* ---- emit.c: the records of a replay, into the recording of this process ---- */

typedef void (*replay_emit)(const struct varve_record *record);

/// Where a process that is being recorded puts its records; NULL: it is not, or by no recorder that takes
/// them. Threads: the calling thread is to make all calls of the result for one device.
replay_emit replay_emit_find(void);
/// varve_alloc_recorder.record of a replay with `emit`: replay_take, then that.
void replay_emit_take(void *context, const struct varve_record *record);

/* ---- replay.c ---- */

/* What is to be replayed, and how. */
struct replay_options {
    const char *policy;         /* NULL: "pytorch" */
    const char *conf;           /* NULL: the history's own settings */
    uint64_t memory_limit;      /* 0: by the fraction in `conf`, or none */
    uint64_t capacity;          /* of the device; 0: large enough */
    bool follow;                /* the history's addresses and decisions are to come out again */
    bool derives_pools;         /* private pools, though no segment at the end tells of one */
    struct replay_sink *sink;   /* NULL: none */
    replay_emit emit;           /* NULL: this process is not being recorded */
    struct replay_hints *hints; /* by device; filled, and needed again by one with sink or emit; NULL: none */
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
    bool guessed_pools; /* private pools that the events do not name were worked out */
    const char *advice; /* what may be the reason of a mismatch; static text or NULL */
    size_t first_event; /* replayed of device 0; those before end a request that began before the history */
};

/// The settings that `conf` says, or (NULL) those that the history was recorded with. VARVE_ERROR_INVALID.
int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message);
/// The same as a snapshot tells it.
int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message);
/// (prepare.c) Bytes in segments before the first event.
int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out,
                             struct varve_message *message);
/// (prepare.c) replay_start with the history's own settings; the caller frees segments and blocks with
/// free.
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

/* The last alloc of the allocator, in a free block of `found` units, or its last release. */
struct replay_landing {
    uint64_t addr, found, requested; /* found 0: it was a release */
};

/* The last answer that could have been another one. */
struct replay_choice {
    bool is_open, answer;
    size_t completion, request; /* events */
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
    struct replay_places places; /* only if the start or private pools need them */
    struct replay_hints *hints;
    struct replay_choice choice;
    struct replay_landing landed;
    struct history_device shortened;          /* the trace without its first events */
    uint64_t total;                           /* bytes of the device */
    struct varve_alloc_snapshot start;        /* without segments if the history begins with nothing */
    size_t start_placed;                      /* segments of it that have their place */
    uint64_t next_addr;                       /* of a segment that the history does not place */
    unsigned index;                           /* of the device */
    struct replay_releases predicted, cached; /* plans of predict.c */
    struct replay_mismatch mismatch;
};

/* ---- prepare.c ---- */

/// Fill in scan, start, places, pools and total. Errors: VARVE_ERROR_FORMAT, UNSUPPORTED, INVALID.
int replay_prepare(struct replay *replay, struct varve_message *message);

/* ---- contradiction.c ---- */

/// Is there an event that cannot come after those before it? Then which, and why not, in `message`.
bool replay_contradiction(const struct history_device *trace, bool is_late, struct varve_message *message);

/* ---- compare.c ---- */

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

/* ---- follow.c ---- */

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

/* ---- attribute_releases.c ---- */

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

/* ---- predict.c: what a request, or empty_cache, would release now ---- */

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
/* ---- completion.c: a wait for all streams, foreseen ---- */

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

/* ---- whatif.c ---- */

/// The requests of the history in their order, wherever they land.
int replay_whatif(struct replay *replay, struct replay_result *result, struct varve_message *message);

/* ---- final.c ---- */

/// Compare the allocator's segments with the history's; the first difference in `result`.
int replay_final(struct replay *replay, struct replay_result *result);

#ifdef __cplusplus
}
#endif

#endif
