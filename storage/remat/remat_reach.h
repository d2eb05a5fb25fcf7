/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which evicted storages are reached from resident ones through evicted ones only, and which resident ones the ways end
 * at. Up to 64 beginnings at a time, a bit of a word for each, so that what they have in common is walked once.
 */
#ifndef VARVE_STORAGE_REMAT_REMAT_REACH_H
#define VARVE_STORAGE_REMAT_REMAT_REACH_H

#include "storage/remat/remat_graph.h"

#define REACH_LANES 64

enum reach_direction { REACH_DOWN, REACH_UP, REACH_DIRECTIONS }; /* to what is made from it; to what it is made from */

/* Bits of storages, of those in the words from begin to end. */
struct reach_set {
    uint64_t *words;
    uint32_t begin, end, capacity;
};

/* Words of all storages, and between which of them any are not zero. */
struct reach_marks {
    uint64_t *lanes; /* by storage */
    uint64_t *any;   /* bits of storages whose lanes are not zero */
    uint32_t begin, end, capacity, any_capacity;
};

/* Storages of one word that the same lanes have reached. */
struct reach_group {
    uint64_t lanes, bits;
    int64_t cost;    /* together */
    uint64_t visits; /* likewise */
    uint32_t word;
};

struct reach {
    struct reach_marks inside, ends; /* of the walk under way; zero in between */
    uint64_t *pending;               /* bits of storages to go on from */
    uint64_t *resident;              /* bits of storages where ways end */
    uint64_t *op_lanes;
    struct number_list ops;     /* whose op_lanes are not zero */
    struct reach_group *groups; /* what was found, as it becomes sets */
    uint32_t group_count, group_capacity;
    uint32_t pending_capacity, resident_capacity, op_capacity, pending_count;
};

void reach_free(struct reach *reach);
/// Room for all storages and operators of the graph.
bool reach_reserve(struct reach *reach, const struct remat_graph *graph);
void reach_set_resident(struct reach *reach, uint32_t storage, bool is_resident);

/* What was reached from one beginning. */
struct reach_found {
    struct reach_set *interior, *frontier; /* replaced; the frontier is without the beginning */
    int64_t cost;                          /* of the interior */
};

/// Walk from `count` (1 to REACH_LANES) beginnings; `bytes` counts what sets take, `visits` what the published
/// simulator visits in as many walks. False: no memory.
bool reach_walk(struct reach *reach, const struct remat_graph *graph, const uint32_t *bases, unsigned count,
                enum reach_direction direction, struct reach_found *found, uint64_t *bytes, uint64_t *visits);

/* sets */

static inline bool reach_set_has(const struct reach_set *set, uint32_t number)
{
    return number / 64 >= set->begin && number / 64 < set->end &&
           (set->words[number / 64 - set->begin] >> number % 64 & 1) != 0;
}

static inline void reach_set_remove(struct reach_set *set, uint32_t number)
{
    if (reach_set_has(set, number)) {
        set->words[number / 64 - set->begin] &= ~(UINT64_C(1) << number % 64);
    }
}

/// Words from begin to end have a place in the set; new ones are zero. False: no memory.
bool reach_set_cover(struct reach_set *set, uint32_t begin, uint32_t end, uint64_t *bytes);
bool reach_set_add(struct reach_set *to, const struct reach_set *from, uint64_t *bytes);

/* For each storage of a set, as `number`. */
#define REACH_FOR_EACH(number, set)                                              \
    for (uint32_t word_ = (set)->begin, number = 0; word_ < (set)->end; word_++) \
        for (uint64_t bits_ = (set)->words[word_ - (set)->begin];                \
             bits_ != 0 && (number = word_ * 64 + (unsigned)__builtin_ctzll(bits_), true); bits_ &= bits_ - 1)

#endif
