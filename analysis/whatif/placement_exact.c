/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact search: the instance in units of which all offsets can be multiples, and the same search in several orders
 * by turns with ever more steps, since one order finds in a thousand steps what another does not in a million. What a
 * turn found hopeless, the next ones know.
 */
#include "analysis/whatif/placement.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/whatif/skyline_search.h"

#include <stdlib.h>

enum {
    STEPS_SHORT = 600,     /* and one for each item */
    STEPS_LONG = 8000,     /* of the first long turn, and twice as many of the next each */
    COVERED_MAX = 1 << 24, /* sections of all items together */
};

/* What makes an item worth trying early. */
enum rank { RANK_SIZE, RANK_SECTIONS, RANK_AREA, RANK_LOAD, RANKS };

enum { PLAIN_TURNS = RANKS * SKYLINE_CHOICES };

/* Fills `items` of the skyline; false: some buffer is above the capacity by itself. */
static bool make_items(struct skyline_item *items, int64_t *height, const struct placement_instance *instance,
                       const struct placement_buffer *buffers, uint64_t capacity, uint64_t alignment)
{
    *height = 0;
    for (size_t i = 0; i < instance->count; i++) {
        const struct placement_item *item = &instance->items[i];
        uint64_t size = buffers[instance->buffers[i]].size; /* the last one need not be rounded up */
        if (size > capacity) {
            return false;
        }
        items[i] = (struct skyline_item){
            .first = item->first,
            .end = item->end,
            .size = (int64_t)(item->size / instance->unit),
            .highest = (int64_t)((capacity - size) / alignment * alignment / instance->unit),
            .buffer = instance->buffers[i],
        };
        if (items[i].highest + items[i].size > *height) {
            *height = items[i].highest + items[i].size;
        }
    }
    return true;
}

static bool fits_load(const struct skyline *skyline)
{
    for (uint32_t s = 0; s < skyline->sections; s++) {
        if (skyline->left[s] > skyline->height) {
            return false;
        }
    }
    return true;
}

static void fill_rank(double *rank, enum rank by, const struct skyline *skyline)
{
    for (size_t i = 0; i < skyline->count; i++) {
        const struct skyline_item *item = &skyline->items[i];
        double sections = item->end - item->first;
        int64_t load = 0;
        for (uint32_t s = item->first; s < item->end; s++) {
            load = skyline->left[s] > load ? skyline->left[s] : load;
        }
        rank[i] = by == RANK_SIZE       ? (double)item->size
                  : by == RANK_SECTIONS ? sections + (double)item->size / (double)(skyline->height + 1)
                  : by == RANK_AREA     ? sections * (double)item->size
                                        : (double)load + sections * (double)item->size /
                                                         ((double)skyline->height * skyline->sections + 1);
    }
}

/* Ranks off by up to half, so that turns differ. */
static void shake(double *rank, size_t count, uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        rank[i] *= 0.5 + (double)(*random >> 32) / (double)UINT32_MAX;
    }
}

static enum skyline_outcome search_by_turns(struct skyline *skyline, struct placement_clock *clock, double seconds)
{
    struct skyline_order order = {.clock = clock, .end = placement_clock_now(clock) + seconds};
    struct skyline_memory *memory = skyline_memory_make();
    double *rank = memory_resize(NULL, (skyline->count + 1) * sizeof(*rank));
    uint64_t steps_short = STEPS_SHORT + skyline->count;
    uint64_t steps_long = STEPS_LONG + skyline->count;
    int64_t lead = -PLAIN_TURNS * (int64_t)steps_short; /* steps of short turns less those of long ones */
    unsigned turns[2] = {0, 0};
    order.rank = rank;
    enum skyline_outcome outcome = SKYLINE_STOPPED;
    uint64_t random = 1;
    while (outcome == SKYLINE_STOPPED && placement_clock_now(clock) < order.end) {
        bool is_long = lead >= (int64_t)steps_long;
        unsigned turn = turns[is_long]++;
        fill_rank(rank, turn % PLAIN_TURNS / SKYLINE_CHOICES, skyline);
        order.choice = turn % SKYLINE_CHOICES;
        order.steps = is_long ? steps_long : steps_short;
        if (!is_long && turn >= PLAIN_TURNS) {
            shake(rank, skyline->count, &random);
        }
        outcome = skyline_search(skyline, memory, &order);
        lead += is_long ? -(int64_t)order.steps : (int64_t)order.steps;
        steps_long *= is_long ? 2 : 1;
    }
    free(rank);
    skyline_memory_free(memory);
    return outcome;
}

static enum placement_verdict placement_exact_solve(struct placement_buffer *buffers, struct skyline *skyline,
                                                    uint64_t unit, struct placement_clock *clock, double seconds)
{
    enum skyline_outcome outcome = fits_load(skyline) ? search_by_turns(skyline, clock, seconds) : SKYLINE_NONE;
    if (outcome == SKYLINE_FOUND) {
        for (size_t i = 0; i < skyline->count; i++) {
            buffers[skyline->items[i].buffer].offset = (uint64_t)skyline->offset[i] * unit;
        }
    }
    return outcome == SKYLINE_FOUND  ? PLACEMENT_FITS
           : outcome == SKYLINE_NONE ? PLACEMENT_IMPOSSIBLE
                                     : PLACEMENT_UNDECIDED;
}

enum placement_verdict placement_exact(struct placement_buffer *buffers, size_t count, uint64_t capacity,
                                       uint64_t alignment, struct placement_clock *clock, double seconds)
{
    alignment = alignment == 0 ? 1 : alignment;
    capacity = capacity < PLACEMENT_BYTES_MAX ? capacity : PLACEMENT_BYTES_MAX; /* more than all buffers need */
    struct placement_instance instance;
    placement_instance_make(&instance, buffers, count, alignment);
    size_t covered = 0;
    for (size_t i = 0; i < instance.count; i++) {
        covered += instance.items[i].end - instance.items[i].first;
    }
    enum placement_verdict verdict = PLACEMENT_UNDECIDED;
    struct skyline skyline;
    int64_t height;
    if (covered <= COVERED_MAX) {
        struct skyline_item *items = memory_resize(NULL, (instance.count + 1) * sizeof(*items));
        if (make_items(items, &height, &instance, buffers, capacity, alignment)) {
            skyline_make(&skyline, items, instance.count, instance.points, height);
            verdict = placement_exact_solve(buffers, &skyline, instance.unit, clock, seconds);
            skyline_free(&skyline);
        } else {
            verdict = PLACEMENT_IMPOSSIBLE;
            free(items);
        }
    }
    for (size_t i = 0; verdict == PLACEMENT_FITS && i < count; i++) {
        buffers[i].offset = buffers[i].size == 0 ? 0 : buffers[i].offset;
    }
    placement_instance_free(&instance);
    return verdict;
}
