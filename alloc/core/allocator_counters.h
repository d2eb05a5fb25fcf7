/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How statistics move. For each of them, between two resets:
 *
 *     current = current at the last reset + allocated - freed        peak >= current >= 0
 *     all = small_pool + large_pool, but for peaks
 *
 * Every cached allocation moves some of them and its free as many, so these lie together by pool, the moves are
 * inline and leave out what follows from the rest (counters_read and core/allocator_stats.c restore it):
 *
 *   freed    holds what was current at the last reset of the accumulated figures
 *   all      has no `allocated`
 *   active, active_bytes
 *            are allocation and allocated_bytes, plus what was freed and waits for other streams: `current` is
 *            what waits, `peak` the highest total since the last reset while something waited (while nothing
 *            does, it is the other figure's), `allocated` is not used
 */
#ifndef VARVE_ALLOC_CORE_ALLOCATOR_COUNTERS_H
#define VARVE_ALLOC_CORE_ALLOCATOR_COUNTERS_H

#include "alloc/alloc.h"

#include <assert.h>

static inline void stat_increase(struct varve_alloc_stat *stat, int64_t amount)
{
    assert(amount >= 0);
    stat->current += amount;
    if (stat->peak < stat->current) {
        stat->peak = stat->current;
    }
    stat->allocated += amount;
}

static inline void stat_decrease(struct varve_alloc_stat *stat, int64_t amount)
{
    assert(amount >= 0 && stat->current >= amount);
    stat->current -= amount;
}

static inline enum varve_alloc_stat_pool stat_pool_kind(bool is_small)
{
    return is_small ? VARVE_ALLOC_STAT_SMALL_POOL : VARVE_ALLOC_STAT_LARGE_POOL;
}

/* `all` and one kind of pool together; `stats` is an array field of struct varve_alloc_stats. */
static inline void stat_pool_increase(struct varve_alloc_stat stats[VARVE_ALLOC_STAT_POOLS], bool is_small,
                                      int64_t amount)
{
    struct varve_alloc_stat *all = &stats[VARVE_ALLOC_STAT_ALL];

    all->current += amount;
    if (all->peak < all->current) {
        all->peak = all->current;
    }
    stat_increase(&stats[stat_pool_kind(is_small)], amount);
}

static inline void stat_pool_decrease(struct varve_alloc_stat stats[VARVE_ALLOC_STAT_POOLS], bool is_small,
                                      int64_t amount)
{
    stats[VARVE_ALLOC_STAT_ALL].current -= amount;
    stat_decrease(&stats[stat_pool_kind(is_small)], amount);
}

/* What is current changes without a move: it is as if it had been so at the last reset. */
static inline void stat_become(struct varve_alloc_stat *stat, int64_t current)
{
    stat->freed += current - stat->current;
    stat->current = current;
    stat->peak = stat->peak > current ? stat->peak : current;
}

/* A net change is one increase or one decrease; of 0 it is neither. */
static inline void stat_change(struct varve_alloc_stat stats[VARVE_ALLOC_STAT_POOLS], bool is_small, int64_t net)
{
    if (net > 0) {
        stat_pool_increase(stats, is_small, net);
    } else if (net < 0) {
        stat_pool_decrease(stats, is_small, -net);
    }
}

/* what every cached request and every free moves */

enum hot_counter {
    HOT_ALLOCATION,
    HOT_ALLOCATED_BYTES,
    HOT_REQUESTED_BYTES,
    HOT_INACTIVE_SPLIT,
    HOT_INACTIVE_SPLIT_BYTES,
    HOT_COUNTERS,
};

/* Those statistics of one kind of pool, together. */
struct hot_counters {
    _Alignas(64) int64_t current[HOT_COUNTERS];
    int64_t allocated[HOT_COUNTERS];
    int64_t peak[HOT_COUNTERS];
};

struct alloc_counters {
    struct hot_counters pools[2];    /* large, small */
    int64_t peak_all[HOT_COUNTERS];  /* of both together */
    struct varve_alloc_stats others; /* of the hot ones only `freed`: counters_read has the rest */
};

/// As struct varve_alloc_stats has them, but for what core/allocator_stats.c restores.
void counters_read(const struct alloc_counters *counters, struct varve_alloc_stats *stats_out);
/// The reverse, after a reset.
void counters_write(struct alloc_counters *counters, const struct varve_alloc_stats *stats);
/// The peaks of what is active, where something waits.
void counters_note_active(struct alloc_counters *counters, bool is_small);

static inline int64_t hot_current(const struct alloc_counters *counters, enum hot_counter counter)
{
    return counters->pools[0].current[counter] + counters->pools[1].current[counter];
}

/* The compiler would compute both addresses again for each counter. */
static inline struct hot_counters *hot_counters_of(struct alloc_counters *counters, bool is_small)
{
    struct hot_counters *own = &counters->pools[is_small];

    __asm__("" : "+r"(own));
    return own;
}

/* The other kind of pool's. */
static inline const struct hot_counters *hot_other(const struct alloc_counters *counters,
                                                   const struct hot_counters *own)
{
    const struct hot_counters *other = own == &counters->pools[0] ? &counters->pools[1] : &counters->pools[0];

    __asm__("" : "+r"(other));
    return other;
}

static inline void hot_add(struct alloc_counters *counters, struct hot_counters *own, const struct hot_counters *other,
                           enum hot_counter counter, int64_t amount)
{
    int64_t current = own->current[counter] + amount;
    int64_t all = other->current[counter] + current;

    assert(amount >= 0);
    own->current[counter] = current;
    own->allocated[counter] += amount;
    if (own->peak[counter] < current) {
        own->peak[counter] = current;
    }
    if (counters->peak_all[counter] < all) {
        counters->peak_all[counter] = all;
    }
}

static inline void hot_increase(struct alloc_counters *counters, enum hot_counter counter, bool is_small,
                                int64_t amount)
{
    hot_add(counters, &counters->pools[is_small], &counters->pools[!is_small], counter, amount);
}

static inline void hot_decrease(struct alloc_counters *counters, enum hot_counter counter, bool is_small,
                                int64_t amount)
{
    assert(amount >= 0 && counters->pools[is_small].current[counter] >= amount);
    counters->pools[is_small].current[counter] -= amount;
}

/* A net change is one increase or one decrease; of 0 it is neither. */
static inline void hot_change(struct alloc_counters *counters, enum hot_counter counter, bool is_small, int64_t net)
{
    if (net > 0) {
        hot_increase(counters, counter, is_small, net);
    } else {
        hot_decrease(counters, counter, is_small, -net);
    }
}

/* the life of a block */

static inline void stat_allocate(struct alloc_counters *counters, bool is_small, uint64_t size, uint64_t requested)
{
    struct hot_counters *own = hot_counters_of(counters, is_small);
    const struct hot_counters *other = hot_counters_of(counters, !is_small);

    hot_add(counters, own, other, HOT_ALLOCATION, 1);
    hot_add(counters, own, other, HOT_ALLOCATED_BYTES, (int64_t)size);
    hot_add(counters, own, other, HOT_REQUESTED_BYTES, (int64_t)requested);
    if (__builtin_expect(counters->others.active[VARVE_ALLOC_STAT_ALL].current != 0, 0)) {
        counters_note_active(counters, is_small);
    }
}

static inline void stat_free(struct alloc_counters *counters, bool is_small, uint64_t size)
{
    hot_decrease(counters, HOT_ALLOCATION, is_small, 1);
    hot_decrease(counters, HOT_ALLOCATED_BYTES, is_small, (int64_t)size);
}

/* Between a free and its completion. */
static inline void stat_wait(struct alloc_counters *counters, bool is_small, uint64_t size, bool begins)
{
    struct varve_alloc_stats *stats = &counters->others;
    int64_t count = begins ? 1 : -1, bytes = begins ? (int64_t)size : -(int64_t)size;

    stats->active[VARVE_ALLOC_STAT_ALL].current += count;
    stats->active[stat_pool_kind(is_small)].current += count;
    stats->active_bytes[VARVE_ALLOC_STAT_ALL].current += bytes;
    stats->active_bytes[stat_pool_kind(is_small)].current += bytes;
}

static inline void stat_complete(struct alloc_counters *counters, bool is_small, uint64_t requested)
{
    hot_decrease(counters, HOT_REQUESTED_BYTES, is_small, (int64_t)requested);
}

/* Of all pools, allocated or waiting. */
static inline int64_t stat_active_bytes(const struct alloc_counters *counters)
{
    return hot_current(counters, HOT_ALLOCATED_BYTES) + counters->others.active_bytes[VARVE_ALLOC_STAT_ALL].current;
}

#endif
