/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one device's history leaves out, worked out before it is played: the state that it began with, the address
 * ranges of expandable segments, private pools, and how much memory the device may have had. Called by replay.c and
 * analysis/import; what is found is read only while it is played.
 */
#ifndef VARVE_ANALYSIS_HISTORY_INFER_DEVICE_H
#define VARVE_ANALYSIS_HISTORY_INFER_DEVICE_H

#include "alloc/alloc.h"
#include "analysis/base/key_map.h"
#include "analysis/history/history.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * One pass over a device's events before anything else: which frees other streams deferred and when they
 * completed, how much was reserved, and whether the history began with nothing. Events that cannot be are refused
 * here, so that the later passes need not test addresses again. Called by infer_device.c.
 */

#define REPLAY_NONE SIZE_MAX /* no event, no segment */

/* A free that other streams deferred: events number `request` and `completion` (REPLAY_NONE: never). */
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
    uint64_t largest_bytes; /* of a segment, in an event or at the end */
    uint64_t largest_addr;
    int64_t reserved_start; /* bytes in segments before the first event; 0: it began with nothing */
    bool has_maps;
};

/// Errors: VARVE_ERROR_FORMAT, with the event that cannot be; the caller frees `scan` in any case.
int replay_scan(const struct history_device *trace, struct replay_scan *scan, struct varve_message *message);
void replay_scan_free(struct replay_scan *scan);
/// Number of the first event at or after `index` that is a decision (not a snapshot).
size_t replay_decision(const struct history_device *trace, size_t index);
/// The pool that the event names, the default one if it names none.
struct varve_pool_id replay_named_pool(const struct history *history, const struct history_event *event);
/// The free requested by event `index` was completed at once.
bool replay_is_immediate(const struct history_device *trace, size_t index);

/*
 * The address ranges that expandable segments reserved, worked out from what was mapped in them. Called by
 * infer_device.c and the pool passes; a session's device puts its reservations there.
 */

struct replay_reservation {
    uint64_t base, high; /* of all that was ever mapped */
    uint64_t mapped;     /* bytes, at the end */
    struct varve_pool_id pool;
    size_t made_by, gone_by; /* events; REPLAY_NONE: there at the start, or at the end */
    uint16_t stream;         /* index into history.streams */
    bool is_small, is_start;
};

struct replay_reservations {
    struct replay_reservation *items; /* those of the start first, by address; then in order of their events */
    size_t count, capacity;
    uint32_t *of_event; /* of alloc, segment_map and segment_unmap: number + 1; else 0 */
};

/// `reach`: how many bytes one of them has. Without `config` only what maps show: classes and allocs are left out.
void replay_reservations_find(const struct history *history, const struct history_device *trace,
                              const struct varve_alloc_snapshot *start, const struct varve_alloc_config *config,
                              uint64_t reach, struct replay_reservations *reservations);
void replay_reservations_free(struct replay_reservations *reservations);
/// Both were there at some time.
bool replay_reservations_coexist(const struct replay_reservation *a, const struct replay_reservation *b);
/// The least distance from one base to the next; UINT64_MAX: there are no two.
uint64_t replay_reservations_room(const struct replay_reservations *reservations);
/// Move bases of the start down, where that is the only way to have `reach` bytes in front of the next one.
void replay_reservations_lower(struct replay_reservations *reservations, uint64_t reach, uint64_t large_unit);
/// Number of the one that holds an address and is not gone; REPLAY_NONE: none.
size_t replay_reservation_at(const struct replay_reservations *reservations, uint64_t addr);

/*
 * Answers to what a recording leaves open. Four things are: the size of a block that was there when the history began
 * late, whether completions in front of a request came with its search or with its wait for all streams, which segments
 * are in private pools of their own, and whether the history began within a request. Inference and play go by them;
 * conflict_search.c changes them.
 */

/* Numbers of two segments (infer_device.h) that are not in one pool. */
struct replay_apart {
    uint32_t a, b;
};

struct replay_hints {
    size_t first;       /* event to begin with: those before belong to a request that began earlier */
    struct map sizes;   /* of blocks of the start, by address */
    struct map choices; /* 1: the completion (event) came with a wait for all streams */
    struct map pools;   /* of segments: 1: not the default one; 2: one of its own */
    struct replay_apart *apart;
    size_t apart_count;
    bool derives_pools;    /* private pools, though no segment at the end names one */
    bool pools_take_turns; /* on one stream: a period of use belongs to no pool alone */
    bool pools_end;        /* each by itself, as a torch.cuda.MemPool does; pools with names always may */
    unsigned attempts;
};

void replay_hints_free(struct replay_hints *hints);
/// Give the start's blocks the sizes that were found out.
void replay_hints_apply(const struct replay_hints *hints, struct varve_alloc_snapshot *start);

/*
 * The limit of reserved bytes that a device's history was recorded under, which no snapshot holds: between what was
 * reserved and what was refused. Who plays the history under a limit is the caller (replay.c).
 */

/* What the events and the rests of a snapshot say. */
struct replay_limit_bounds {
    uint64_t peak;       /* the most that was reserved */
    uint64_t granted;    /* no limit is less: it would have refused what was granted */
    uint64_t unrefused;  /* from here on nothing is refused, and nothing is collected */
    uint64_t capacity;   /* the least of what was reserved and what the device had free when it refused; 0: unknown */
    bool is_exact;       /* what is granted and refused under `granted` is what the limit granted and refused */
    bool may_be_limited; /* something was refused or given back */
};

/* What came of the history under a limit. */
struct replay_limit_trial {
    bool comes_out;    /* every decision, and the end */
    bool is_too_small; /* more was given back or refused than in the history; else less, or something else differs */
    uint64_t refusals; /* retries and failures */
    size_t reached;    /* events that came out */
};

/* Under `used` the history comes out. All are 0 if no limit does, or none explains anything. */
struct replay_limit {
    uint64_t used;  /* `capacity`, if that does, else `least` */
    uint64_t least; /* the smallest under which the history comes out */
    uint64_t most;  /* the largest with as many retries and failures; 0: not looked for */
    bool is_capacity;
    uint64_t nearest; /* if none does: the one under which most events came out; 0: no more than without a limit */
};

struct replay_limit_search {
    struct replay_limit_bounds bounds;
    bool finds_most;
    struct replay_limit_trial unlimited; /* what comes without a limit */
    /* Errors end the search. */
    int (*play)(void *context, uint64_t limit, struct replay_limit_trial *out);
    void *context;
};

/// `says_free`: events of failures say what the device had free. Errors: VARVE_ERROR_NO_MEMORY.
int replay_limit_bounds(const struct history_device *device, bool says_free, double threshold,
                        struct replay_limit_bounds *out);
/// Errors: those of `play`.
int replay_limit_find(const struct replay_limit_search *search, struct replay_limit *out);

/*
 * Private pools of a history whose events do not name them: which pool each event and segment belongs to. Called
 * by infer_device.c.
 */

/* A segment from the event that made it to the one that gave it back. */
struct replay_pool_segment {
    uint64_t addr, bytes;       /* bytes 0: an expandable one */
    size_t made_by;             /* event; REPLAY_NONE: it was there at the start */
    size_t first_use, last_use; /* events of its first and last alloc; REPLAY_NONE: never used */
    uint16_t stream;
    bool is_gone;
    bool is_private; /* it cannot be the default pool's */
    bool is_lone;    /* … nor that of the segments before it */
    uint16_t pool;   /* index into replay_pools.ids, at last */
};

struct replay_pools {
    uint16_t *of_event;        /* index into `ids` of allocs and segment events; NULL: the default pool for all */
    struct varve_pool_id *ids; /* 0: the default pool */
    size_t count;
    struct replay_pool_segment *segments; /* those that a pool was derived for */
    size_t segment_count;
    uint32_t *segment_of; /* of allocs and segment events: number in `segments` + 1; else 0 */
};

/// The events name the pools that they belong to.
bool replay_pools_are_named(const struct history_device *trace);
/// Sets the pools of the start's segments and of `reservations`, too. Errors: VARVE_ERROR_FORMAT (the events
/// contradict each other), UNSUPPORTED (too many segments).
int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_hints *hints, struct replay_pools *pools, struct varve_message *message);
/// The key of a segment in replay_hints.pools.
static inline uint64_t replay_pool_key(const struct replay_pool_segment *segment)
{
    return segment->made_by != REPLAY_NONE ? segment->made_by : UINT64_C(1) << 63 | segment->addr;
}
void replay_pools_free(struct replay_pools *pools);

/* Of empty_cache, or of the end of a private pool, that gave something back. */
struct replay_call {
    size_t event;  /* the first release */
    uint16_t pool; /* index into replay_pools.ids; 0: empty_cache */
};

struct replay_calls {
    bool are_known; /* the history came out again */
    struct replay_call *items;
    size_t count;
};

struct replay_device {
    struct history_device trace; /* borrowed, without its first events (hints.first) */
    struct replay_scan scan;
    struct varve_alloc_snapshot start;       /* without segments if the history begins with nothing */
    struct replay_reservations reservations; /* only if the start or private pools need them */
    struct replay_pools pools;
    uint64_t total;            /* bytes of the device */
    struct replay_hints hints; /* answers to what is open, found by playing */
    struct replay_calls calls; /* likewise; of a replay under other rules */
    struct replay_limit limit; /* likewise, if it was looked for */
};

/// Everything but the hints, which it goes by, the calls and the limit; may be called again with others. Errors:
/// VARVE_ERROR_FORMAT, UNSUPPORTED, INVALID (settings).
int replay_infer_device(const struct history *history, unsigned index, const char *conf, uint64_t capacity, bool follow,
                        struct replay_device *inferred, struct varve_message *message);
/// Release all but the hints and the calls.
void replay_device_clear(struct replay_device *inferred);

/// Its segments at the end, or its events, name private pools.
bool replay_has_pools(const struct history_device *trace);
/// Bytes in segments before the first event.
int replay_reserved_at_start(const struct history_device *trace, uint64_t *bytes_out, struct varve_message *message);
/// The start with the history's own settings; the caller frees segments and blocks with free.
int replay_start_of(const struct history *history, const struct history_device *trace,
                    struct varve_alloc_snapshot *start_out, struct varve_message *message);

/*
 * Why a history cannot have happened, in words about its events: memory allocated twice, freed twice or never
 * allocated, segments that overlap. Looked for only once a replay has failed, so that good histories do not pay for
 * it. Called by replay.c.
 */

/// Is there an event that cannot come after those before it? Then which, and why not, in `message`.
bool replay_contradiction(const struct history_device *trace, bool is_late, struct varve_message *message);

/*
 * A history that began late, rolled back to its beginning: the segments and blocks before its first event.
 * Called by infer_device.c.
 */

/// Segments and blocks before the first event, from those at the end; the caller frees both arrays with free.
/// Errors: VARVE_ERROR_FORMAT.
int replay_start_rebuild(const struct history *history, const struct history_device *trace,
                         const struct varve_alloc_config *config, struct varve_alloc_snapshot *start_out,
                         struct varve_message *message);

/* A history's settings as the allocator has them, and the other way round. */

/// The settings that `conf` says, or (NULL) those that the history was recorded with. VARVE_ERROR_INVALID.
int replay_config(const struct history *history, const char *conf, struct varve_alloc_config *config,
                  struct varve_message *message);
/// The same as a snapshot has it.
int replay_settings(const struct history *history, const char *conf, struct history_settings *settings,
                    struct varve_message *message);

#endif
