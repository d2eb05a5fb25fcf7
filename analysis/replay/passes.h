/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passes over a history that come before its replay: each works out one thing that the history leaves
 * out, from the events and the state at the end, without an allocator's decisions. Part of replay.h,
 * in the order in which prepare.c runs them.
 */
#ifndef VARVE_ANALYSIS_REPLAY_PASSES_H
#define VARVE_ANALYSIS_REPLAY_PASSES_H

#include "alloc/alloc.h"
#include "analysis/history/history.h"

#ifdef __cplusplus
extern "C" {
#endif

#define REPLAY_NONE SIZE_MAX

/* ---- map.c: 64-bit key → 64-bit value; open addressing. UINT64_MAX is no key. ---- */

struct replay_map {
    uint64_t *slots; /* key and value, key and value, … */
    size_t count, capacity;
};

uint64_t *replay_map_find(const struct replay_map *map, uint64_t key); /* NULL: not there */
void replay_map_put(struct replay_map *map, uint64_t key, uint64_t value);
/// Remove a key; false if it is not there.
bool replay_map_take(struct replay_map *map, uint64_t key, uint64_t *value_out);
void replay_map_free(struct replay_map *map);

/* ---- scan.c: one pass over the events, before anything is replayed ---- */

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
/// The free requested by event `index` was completed at once.
bool replay_is_immediate(const struct history_device *trace, size_t index);

/* ---- ranges.c: mapped memory while a history is undone ---- */

enum replay_range_kind {
    REPLAY_RANGE_UNKNOWN,
    REPLAY_RANGE_SMALL,
    REPLAY_RANGE_LARGE,
};

struct replay_range {
    uint64_t addr, bytes, stream;
    struct varve_pool_id pool;
    enum replay_range_kind kind;
};

struct replay_ranges {
    struct replay_range *items; /* by address; no two overlap */
    size_t count, capacity, unknown_count;
};

struct replay_range *replay_range_at(struct replay_ranges *ranges, uint64_t addr); /* NULL: none */
/// Grows together with what it touches; false if it overlaps with another one.
bool replay_range_add(struct replay_ranges *ranges, struct replay_range range);
/// False if not all of it is in one range.
bool replay_range_remove(struct replay_ranges *ranges, uint64_t addr, uint64_t bytes);
/// A request of that class was served at an address.
void replay_range_note(struct replay_ranges *ranges, uint64_t addr, bool is_small);
void replay_ranges_free(struct replay_ranges *ranges);

/* ---- rebuild_blocks.c: the blocks of a start state ---- */

struct replay_tiling {
    const struct history_device *trace;
    struct varve_alloc *rounding;
    uint64_t max_split;
    struct varve_segment_info *segments; /* by address */
    size_t segment_count;
    struct varve_block_info *blocks; /* in use; by address; bytes 0: unknown */
    size_t block_count;
};

/// `start` takes the segments over and gets its blocks. allocation_id of a block whose size is not sure is
/// the most that it can be; bytes is the least then. Errors: VARVE_ERROR_FORMAT.
int replay_tile(const struct replay_tiling *tiling, struct varve_alloc_snapshot *start,
                struct varve_message *message);

/* ---- start.c: a history that began late, rolled back to its beginning ---- */

/// Segments and blocks before the first event, from those at the end. `rounding` tells how requests are
/// rounded. Errors: VARVE_ERROR_FORMAT.
int replay_start(const struct history *history, const struct history_device *trace,
                 struct varve_alloc *rounding, struct varve_alloc_snapshot *start_out,
                 struct varve_message *message);

struct replay_hints;

/* ---- reservations.c: address ranges of expandable segments ---- */

struct replay_place {
    uint64_t base, high; /* of all that was ever mapped */
    uint64_t mapped;     /* bytes, at the end */
    struct varve_pool_id pool;
    size_t made_by, gone_by; /* events; REPLAY_NONE: there at the start, or at the end */
    uint16_t stream;         /* index into history.streams */
    bool is_small, is_start;
    bool is_taken; /* by the allocator, for its start state */
};

struct replay_places {
    struct replay_place *items; /* those of the start first, by address; then in order of their events */
    size_t count, capacity;
    uint32_t *of_event; /* of alloc, segment_map and segment_unmap: number + 1; else 0 */
};

/// `reach`: how many bytes one of them has.
void replay_places_find(const struct history *history, const struct history_device *trace,
                        const struct varve_alloc_snapshot *start, struct varve_alloc *rounding,
                        uint64_t reach, struct replay_places *places);
/// Only what can be told without a start state, and without telling classes apart; of_event is NULL.
void replay_places_glance(const struct history_device *trace, struct replay_places *places);
void replay_places_free(struct replay_places *places);
/// Both were there at some time.
bool replay_places_coexist(const struct replay_places *places, size_t a, size_t b);
/// The least distance from one base to the next; UINT64_MAX: there are no two.
uint64_t replay_places_room(const struct replay_places *places);
/// Move bases of the start down, where that is the only way to have `reach` bytes in front of the next one.
void replay_places_lower(struct replay_places *places, uint64_t reach, uint64_t large_unit);
/// Number of the one that holds an address and is not gone; REPLAY_NONE: none.
size_t replay_place_at(const struct replay_places *places, uint64_t addr);

/* ---- pool_proofs.c: which segments cannot be in one pool ---- */

/* A segment from the event that made it to the one that gave it back. */
struct replay_pool_segment {
    uint64_t addr, bytes;       /* bytes 0: an expandable one */
    size_t made_by;             /* event; REPLAY_NONE: it was there at the start */
    size_t first_use, last_use; /* events of its first and last alloc; REPLAY_NONE: never used */
    uint16_t stream;
    bool is_small, is_gone;
    bool is_private; /* it cannot be the default pool's */
    bool is_lone;    /* … nor that of the segments before it */
    uint16_t pool;   /* index into replay_pools.pools, at last */
};

struct replay_pool_proofs {
    struct replay_pool_segment *segments; /* those of the start first, then in order of their events */
    size_t count, capacity;
    uint64_t *differ; /* bit b of row a: not in one pool */
    size_t row_words;
    uint32_t *of_event; /* of allocs and segment events: number + 1; else 0 */
    bool
        has_plain_releases; /* no garbage collection, no oversize blocks: empty_cache's order holds for all */
    uint32_t first_place;   /* number of the first expandable segment, behind all of the start's segments */
};

/// Replay blocks without any policy: an alloc that passes over a free block that it should have taken shows
/// that the block was in another pool. Errors: VARVE_ERROR_FORMAT, UNSUPPORTED.
int replay_pool_prove(const struct history_device *trace, const struct varve_alloc_snapshot *start,
                      const struct history *history, const struct replay_places *places,
                      struct varve_alloc *rounding, struct replay_pool_proofs *proofs,
                      struct varve_message *message);
void replay_pool_proofs_free(struct replay_pool_proofs *proofs);

static inline bool replay_pool_differ(const struct replay_pool_proofs *proofs, size_t a, size_t b)
{
    return (proofs->differ[a * proofs->row_words + b / 64] >> (b % 64) & 1) != 0;
}

/* ---- pool_order.c: what is proved without blocks ---- */

void replay_pool_set_different(struct replay_pool_proofs *proofs, size_t a, size_t b);
/// A segment; there is room for it.
uint32_t replay_pool_add(struct replay_pool_proofs *proofs, uint64_t addr, uint64_t bytes, uint16_t stream,
                         bool is_small, size_t made_by);
void replay_pool_add_places(struct replay_pool_proofs *proofs, const struct replay_places *places);
/// From the order of releases; holds for the rules of empty_cache only (no limit on split sizes).
void replay_pool_prove_order(const struct history_device *trace, struct replay_pool_proofs *proofs);

/* ---- pools.c: which private pool each event belongs to ---- */

struct replay_pool {
    struct varve_pool_id id;
    bool is_made; /* the allocator has it */
    bool is_freeable;
};

struct replay_pools {
    uint16_t *of_event; /* index into `pools` of allocs and segment events; NULL: the default pool for all */
    struct replay_pool *pools; /* 0: the default pool */
    size_t count;
    struct replay_pool_segment *segments; /* those that a pool was derived for */
    size_t segment_count;
};

/// The events say themselves which pools they belong to.
bool replay_pools_are_told(const struct history_device *trace);
/// Sets the pools of the start's segments and of `places`, too. Errors: VARVE_ERROR_FORMAT (the events
/// contradict each other), UNSUPPORTED (more segments than can be told apart).
int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_places *places,
                        struct varve_alloc *rounding, const struct replay_hints *hints,
                        struct replay_pools *pools, struct varve_message *message);
/// The key of a segment in replay_hints.pools.
static inline uint64_t replay_pool_key(const struct replay_pool_segment *segment)
{
    return segment->made_by != REPLAY_NONE ? segment->made_by : UINT64_C(1) << 63 | segment->addr;
}
void replay_pools_free(struct replay_pools *pools);

#ifdef __cplusplus
}
#endif

#endif
