/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are there at the end have a pool id; the others are joined to groups by their periods of use (a
 * capture is one contiguous period per stream) as far as no proof and no id forbids it, and the groups get a pool in
 * order of first use: the default pool if no proof forbids that, else the one used just before on that stream, else
 * a new one.
 */
#include "analysis/replay/pools.h"

#include "analysis/base/memory.h"
#include "analysis/replay/hints.h"
#include "analysis/replay/map.h"
#include "analysis/replay/scan.h"

#include <stdlib.h>
#include <string.h>

#define POOL_UNKNOWN UINT32_MAX
#define POOLS_MAX 65535

struct grouping {
    struct replay_pool_proofs *proofs; /* of roots: of their groups */
    struct replay_pools *pools;
    const struct replay_reservations *reservations;
    uint32_t *root;  /* of each segment: the group's first member */
    uint32_t *chain; /* next member; the segment itself at the end */
    uint32_t *last;  /* of a root: the end of the chain */
    uint32_t *pool;  /* of a root: index into pools, or POOL_UNKNOWN */
    uint32_t *order; /* segments by first use */
};

static int compare_use(const void *left, const void *right, void *context)
{
    const struct replay_pool_proofs *proofs = context;
    const struct replay_pool_segment *a = &proofs->segments[*(const uint32_t *)left];
    const struct replay_pool_segment *b = &proofs->segments[*(const uint32_t *)right];

    if (a->first_use != b->first_use) {
        return a->first_use < b->first_use ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static uint32_t pool_of_id(struct replay_pools *pools, struct varve_pool_id id)
{
    for (size_t i = 0; i < pools->count; i++) {
        if (pools->pools[i].id.capture == id.capture && pools->pools[i].id.user == id.user) {
            return (uint32_t)i;
        }
    }
    if (pools->count == POOLS_MAX) {
        return 0;
    }
    pools->pools = memory_resize(pools->pools, (pools->count + 1) * sizeof(*pools->pools));
    pools->pools[pools->count] = (struct replay_pool){.id = id};
    return (uint32_t)pools->count++;
}

static uint32_t new_pool(struct replay_pools *pools)
{
    struct varve_pool_id id = {1, 0};

    for (size_t i = 0; i < pools->count; i++) {
        id.capture = pools->pools[i].id.capture >= id.capture ? pools->pools[i].id.capture + 1 : id.capture;
    }
    return pool_of_id(pools, id);
}

/* A proof against one member is one against its group: rows and columns of roots stand for all members. */
static void merge_proofs(struct replay_pool_proofs *proofs, uint32_t into, uint32_t from)
{
    uint64_t *row = &proofs->differ[into * proofs->row_words];
    const uint64_t *other = &proofs->differ[from * proofs->row_words];

    for (size_t i = 0; i < proofs->row_words; i++) {
        row[i] |= other[i];
    }
    for (size_t i = 0; i < proofs->count; i++) {
        if (replay_pool_differ(proofs, i, from)) {
            proofs->differ[i * proofs->row_words + into / 64] |= UINT64_C(1) << (into % 64);
        }
    }
}

static void join(struct grouping *grouping, uint32_t a, uint32_t b)
{
    struct replay_pool_segment *segments = grouping->proofs->segments;
    uint32_t into = grouping->root[a];
    uint32_t from = grouping->root[b];
    bool both_known = grouping->pool[into] != POOL_UNKNOWN && grouping->pool[from] != POOL_UNKNOWN;

    if (into == from || (both_known && grouping->pool[into] != grouping->pool[from]) ||
        replay_pool_differ(grouping->proofs, into, from) || segments[a].is_lone || segments[b].is_lone ||
        ((segments[into].is_private || segments[from].is_private) &&
         (grouping->pool[into] == 0 || grouping->pool[from] == 0))) {
        return;
    }
    segments[into].is_private |= segments[from].is_private;
    merge_proofs(grouping->proofs, into, from);
    if (grouping->pool[into] == POOL_UNKNOWN) {
        grouping->pool[into] = grouping->pool[from];
    }
    grouping->chain[grouping->last[into]] = from;
    grouping->last[into] = grouping->last[from];
    for (uint32_t i = from;; i = grouping->chain[i]) {
        grouping->root[i] = into;
        if (grouping->chain[i] == i) {
            break;
        }
    }
}

/* Segments of one stream that are used in turns. */
static void join_interleaved(struct grouping *grouping)
{
    const struct replay_pool_segment *segments = grouping->proofs->segments;

    for (size_t b = 1; b < grouping->proofs->count; b++) {
        const struct replay_pool_segment *later = &segments[grouping->order[b]];

        for (size_t a = 0; a < b && later->first_use != REPLAY_NONE; a++) {
            const struct replay_pool_segment *earlier = &segments[grouping->order[a]];

            if (earlier->stream == later->stream && later->first_use < earlier->last_use) {
                join(grouping, grouping->order[a], grouping->order[b]);
            }
        }
    }
}

static bool is_allowed(const struct grouping *grouping, uint32_t group, uint32_t pool)
{
    if (pool == 0 && grouping->proofs->segments[group].is_private) {
        return false;
    }
    for (uint32_t i = 0; i < grouping->proofs->count; i++) {
        if (grouping->root[i] == i && i != group && grouping->pool[i] == pool &&
            replay_pool_differ(grouping->proofs, group, i)) {
            return false;
        }
    }
    return true;
}

static void choose_pools(struct grouping *grouping, size_t stream_count)
{
    uint32_t *latest = memory_resize(NULL, (stream_count + 1) * sizeof(*latest)); /* pool of each stream */

    memset(latest, 0, (stream_count + 1) * sizeof(*latest));
    for (size_t i = 0; i < grouping->proofs->count; i++) {
        uint32_t group = grouping->root[grouping->order[i]];
        uint16_t stream = grouping->proofs->segments[grouping->order[i]].stream;

        if (grouping->pool[group] == POOL_UNKNOWN) {
            if (is_allowed(grouping, group, 0)) {
                grouping->pool[group] = 0;
            } else if (!grouping->proofs->segments[group].is_lone &&
                       is_allowed(grouping, group, latest[stream])) {
                grouping->pool[group] = latest[stream];
            } else {
                grouping->pool[group] = new_pool(grouping->pools);
            }
        }
        latest[stream] = grouping->pool[group];
    }
    free(latest);
}

/* Segments that are there at the end say which pool they are in. */
static void label(struct grouping *grouping, const struct history_device *trace)
{
    const struct replay_reservations *reservations = grouping->reservations;
    struct replay_map left = {0};

    for (uint32_t i = 0; i < grouping->proofs->count; i++) {
        if (!grouping->proofs->segments[i].is_gone) {
            replay_map_put(&left, grouping->proofs->segments[i].addr, i);
        }
    }
    for (size_t i = 0; i < trace->segment_count; i++) {
        const uint64_t *number = replay_map_find(&left, trace->segments[i].addr);
        struct varve_pool_id id = {trace->segments[i].pool_id[0], trace->segments[i].pool_id[1]};

        if (trace->segments[i].is_expandable) {
            size_t reservation = replay_reservation_at(reservations, trace->segments[i].addr);

            if (reservation != REPLAY_NONE) {
                grouping->pool[grouping->proofs->first_reservation + reservation] =
                    pool_of_id(grouping->pools, id);
            }
        } else if (number != NULL) {
            grouping->pool[*number] = pool_of_id(grouping->pools, id);
        }
    }
    replay_map_free(&left);
}

static void group(struct grouping *grouping, const struct history_device *trace, size_t stream_count,
                  bool takes_turns)
{
    size_t count = grouping->proofs->count;
    uint32_t *numbers = memory_resize(NULL, 5 * (count + 1) * sizeof(*numbers));

    grouping->root = numbers;
    grouping->chain = numbers + (count + 1);
    grouping->last = numbers + 2 * (count + 1);
    grouping->pool = numbers + 3 * (count + 1);
    grouping->order = numbers + 4 * (count + 1);
    for (uint32_t i = 0; i < count; i++) {
        grouping->root[i] = grouping->chain[i] = grouping->last[i] = grouping->order[i] = i;
        grouping->pool[i] = POOL_UNKNOWN;
    }
    if (count > 0) {
        qsort_r(grouping->order, count, sizeof(*grouping->order), compare_use, grouping->proofs);
    }
    label(grouping, trace);
    if (!takes_turns) {
        join_interleaved(grouping);
    }
    choose_pools(grouping, stream_count);
}

static void fill_events(const struct grouping *grouping, const struct history_device *trace)
{
    struct replay_pools *pools = grouping->pools;

    pools->of_event = memory_resize(NULL, (trace->event_count + 1) * sizeof(*pools->of_event));
    for (size_t i = 0; i < trace->event_count; i++) {
        uint32_t segment = grouping->proofs->of_event[i];

        pools->of_event[i] = segment == 0 ? 0 : (uint16_t)grouping->pool[grouping->root[segment - 1]];
    }
}

static struct varve_pool_id id_of(const struct grouping *grouping, size_t segment)
{
    return grouping->pools->pools[grouping->pool[grouping->root[segment]]].id;
}

/* What was there at the start is in the pool of its group. */
static void fill_start(const struct grouping *grouping, struct varve_alloc_snapshot *start,
                       struct replay_reservations *reservations)
{
    for (size_t i = 0; i < reservations->count; i++) {
        reservations->items[i].pool = id_of(grouping, grouping->proofs->first_reservation + i);
    }
    for (size_t i = 0; i < start->segment_count; i++) {
        struct varve_segment_info *segment = &start->segments[i];

        if (!segment->is_expandable) {
            segment->pool = id_of(grouping, i);
        }
        for (size_t j = 0; j < reservations->count && segment->is_expandable; j++) {
            const struct replay_reservation *reservation = &reservations->items[j];

            if (reservation->is_start && segment->addr >= reservation->base &&
                segment->addr < reservation->high && segment->is_small == reservation->is_small) {
                segment->pool = reservation->pool;
                break;
            }
        }
    }
}

bool replay_pools_are_named(const struct history_device *trace)
{
    for (size_t i = 0; i < trace->event_count; i++) {
        if (trace->events[i].pool != 0) {
            return true;
        }
    }
    return false;
}

/* Events of newer versions name their pool; so does what they gave back (start.c). */
static void take_named(const struct history *history, const struct history_device *trace,
                       struct replay_pools *pools)
{
    pools->of_event = memory_resize(NULL, (trace->event_count + 1) * sizeof(*pools->of_event));
    for (size_t i = 0; i < trace->event_count; i++) {
        unsigned named = trace->events[i].pool;
        struct varve_pool_id id = {0, 0};

        if (named != 0) {
            id = (struct varve_pool_id){history->pool_ids[named - 1][0], history->pool_ids[named - 1][1]};
        }
        pools->of_event[i] = (uint16_t)pool_of_id(pools, id);
    }
}

/* What earlier attempts have shown. */
static void take_hints(struct replay_pool_proofs *proofs, const struct replay_hints *hints)
{
    for (size_t i = 0; i < proofs->count && hints->pools.count > 0; i++) {
        const uint64_t *hint = replay_map_find(&hints->pools, replay_pool_key(&proofs->segments[i]));

        proofs->segments[i].is_private |= hint != NULL;
        proofs->segments[i].is_lone = hint != NULL && *hint > 1;
    }
}

static void keep_segments(const struct grouping *grouping)
{
    struct replay_pool_proofs *proofs = grouping->proofs;

    for (size_t i = 0; i < proofs->count; i++) {
        proofs->segments[i].pool = (uint16_t)grouping->pool[grouping->root[i]];
    }
    grouping->pools->segments = proofs->segments;
    grouping->pools->segment_count = proofs->count;
    proofs->segments = NULL;
}

int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_rounding *rounding, const struct replay_hints *hints,
                        struct replay_pools *pools, struct varve_message *message)
{
    struct replay_pool_proofs proofs = {.has_plain_releases = rounding->max_split == UINT64_MAX};
    struct grouping grouping = {.proofs = &proofs, .pools = pools, .reservations = reservations};
    int result;

    pool_of_id(pools, (struct varve_pool_id){0, 0});
    if (replay_pools_are_named(trace)) {
        take_named(history, trace, pools);
        return VARVE_OK;
    }
    result = replay_pool_prove(trace, start, history, reservations, rounding, &proofs, message);
    if (result == VARVE_OK) {
        take_hints(&proofs, hints);
        group(&grouping, trace, history->stream_count, hints->pools_take_turns);
        fill_events(&grouping, trace);
        fill_start(&grouping, start, reservations);
        keep_segments(&grouping);
        free(grouping.root);
    }
    replay_pool_proofs_free(&proofs);
    return result;
}

void replay_pools_free(struct replay_pools *pools)
{
    free(pools->of_event);
    free(pools->pools);
    free(pools->segments);
    *pools = (struct replay_pools){0};
}
