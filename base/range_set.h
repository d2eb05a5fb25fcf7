/* SPDX-License-Identifier: Apache-2.0 */
/* Disjoint ranges of addresses, sorted: mappings and modules of a process, blocks of an allocator. */
#ifndef VARVE_BASE_RANGE_SET_H
#define VARVE_BASE_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    uint64_t start;
    uint64_t end; /* exclusive */
    uint64_t id;
};

#define RANGE_LEAF_MAX 64U

struct range_leaf {
    struct range_leaf *next; /* among the spare ones */
    uint32_t count;
    struct range ranges[RANGE_LEAF_MAX];
};

/* A sorted sequence cut into leaves, so that an insertion moves one leaf and not all of a million ranges. No
 * leaf is empty, two neighbours together hold more than half a leaf. */
struct ranges {
    struct range_leaf **leaves;
    size_t leaf_count;
    size_t leaf_capacity;
    uint64_t count;
    struct range_leaf *spare; /* what ranges_reserve put aside */
    uint32_t spare_count;
};

/// Space for `count` more insertions; false without memory.
bool ranges_reserve(struct ranges *ranges, uint32_t count);
/// The lowest range that has an address in [start, end); false if there is none.
bool ranges_first(const struct ranges *ranges, uint64_t start, uint64_t end, struct range *range_out);
/// The range that holds `addr`, NULL if none does; until the next change. Its end may be moved as long as it
/// stays behind its start and touches no other range.
struct range *ranges_at(const struct ranges *ranges, uint64_t addr);
/// Insert a range disjoint from all others; after ranges_reserve it cannot fail.
void ranges_insert(struct ranges *ranges, const struct range *range);
void ranges_remove(struct ranges *ranges, uint64_t start); /* the range that begins there exists */
/// The neighbours, touching or not, of the range that begins at `start`; id 0: there is none.
void ranges_around(const struct ranges *ranges, uint64_t start, struct range *before_out, struct range *after_out);
/// The range that begins at `start` takes in the one that begins at its end, whose id is gone.
void ranges_absorb(struct ranges *ranges, uint64_t start);
void ranges_clear(struct ranges *ranges);
/// Every range in order; stops at the first call that returns other than 0 and returns that.
int ranges_each(const struct ranges *ranges, int (*take)(void *context, const struct range *range), void *context);
bool ranges_check(const struct ranges *ranges);

#endif
