/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the exact search, and what follows from it. Time is cut into sections, the sets of buffers live together
 * that are in no other such set. Items are placed from below, so that a state is a skyline: of each section the floor,
 * below which nothing more is put. An item can't lie below the highest floor under it (`low`), and a floor below the
 * lowest of the items that cover the section serves nobody and is raised: the two drive each other until nothing moves,
 * or until a section can't take what is left for it.
 *
 *   low[i] >= floor[s] for each section s of an item i that is left, low[i] = INT64_MAX for one that is placed
 *   floor[s] == min low[i] of the items i left over s
 *   left[s] = sum of sizes of the items left over s; floor[s] + left[s] <= height if left[s] > 0
 *
 * Changes are written to a trail and taken back from it. Heights are int64_t in any unit. Threads: one.
 */
#ifndef VARVE_ANALYSIS_WHATIF_SKYLINE_H
#define VARVE_ANALYSIS_WHATIF_SKYLINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SKYLINE_PLACED INT64_MAX
#define SKYLINE_UNKNOWN UINT32_MAX

struct skyline_item {
    uint32_t first, end; /* sections [first, end) */
    int64_t size;        /* > 0 */
    int64_t highest;     /* offset that it may have at most */
    size_t twin;   /* the item before with the same sections, size and highest, placed before it; SIZE_MAX: none */
    size_t buffer; /* the caller's number */
};

struct skyline_change;

struct skyline {
    struct skyline_item *items; /* by first section, then end, size, highest */
    size_t count;
    uint32_t sections;
    int64_t height;      /* no section may end above it */
    size_t *begin;       /* of section s: items [begin[s], begin[s + 1]) have it as their first */
    uint32_t **cover;    /* of section s: the items over it, the placed ones first, from below */
    uint32_t *covered;   /* how many items lie over it, */
    uint32_t *placed;    /* and how many of them are placed */
    int64_t *low;        /* of an item, see above */
    int64_t *offset;     /* of a placed item */
    int64_t *floor;      /* of a section */
    int64_t *left;       /* of a section */
    uint32_t *crossings; /* items left over both section s - 1 and s */
    uint32_t *options;   /* of a section: what skyline_options found, SKYLINE_UNKNOWN after a change */
    bool *is_stale;      /* of a section: to be looked at again; none between calls */
    uint32_t stale_first, stale_end;
    struct skyline_change *trail;
    size_t changes, changes_capacity;
};

/// Takes `items` (by malloc): sections 0 … sections - 1, each covered by an item. Owner: the caller, by skyline_free.
void skyline_make(struct skyline *skyline, struct skyline_item *items, size_t count, uint32_t sections, int64_t height);
void skyline_free(struct skyline *skyline);
/// The item can lie on the floor of a section that it covers, and the twin before it is placed.
static inline bool skyline_is_option(const struct skyline *skyline, size_t item, uint32_t section)
{
    size_t twin = skyline->items[item].twin;

    return skyline->low[item] == skyline->floor[section] && (twin == SIZE_MAX || skyline->low[twin] == SKYLINE_PLACED);
}

/// How many of the items left over the section are options.
uint32_t skyline_options(struct skyline *skyline, uint32_t section);
/// Put the item on its low, which must be the floor of all its sections, and infer. False: no placement of
/// the rest is left.
bool skyline_place(struct skyline *skyline, size_t item);
/// Nothing is put into the section below `floor`. False as of skyline_place.
bool skyline_raise(struct skyline *skyline, uint32_t section, int64_t floor);
/// Back to the state in which the trail had `changes` changes, also after a false.
void skyline_undo(struct skyline *skyline, size_t changes);
/// All that is said at the head, worked out from the items alone; after a place or raise that was true, or an undo.
/// Errors: VARVE_ERROR_INVALID.
int skyline_check(const struct skyline *skyline, struct varve_message *message);

#endif
