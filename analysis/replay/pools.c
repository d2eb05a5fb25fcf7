/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are there at the end have a pool id; the others are joined to groups by their periods of use (a
 * capture is one contiguous period per stream), and the groups get a pool in order of first use: the default pool,
 * else the one used just before on that stream, else a new one. Nothing is joined, and no pool taken, that an id, two
 * reservations at one time, or an earlier attempt (hints.h) forbids.
 */
#include "analysis/replay/pools.h"

#include "analysis/base/memory.h"
#include "analysis/replay/hints.h"
#include "analysis/replay/map.h"
#include "analysis/replay/ranges.h"
#include "analysis/replay/scan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define POOL_UNKNOWN UINT32_MAX
#define POOLS_MAX 65535
#define SEGMENTS_MAX 32768
#define SMALL_SEGMENT (UINT64_C(2) << 20)

/* Segments, and which of them cannot be in one pool; of roots: of their groups. */
struct proofs {
    struct replay_pool_segment *segments; /* those of the start first, then in order of their events */
    size_t count, capacity;
    uint64_t *differ; /* bit b of row a: not in one pool */
    size_t row_words;
    uint32_t *of_event; /* of allocs and segment events: number + 1; else 0 */
    uint32_t
        first_reservation; /* number of the first expandable segment, behind all of the start's segments */
};

static bool differ(const struct proofs *proofs, size_t a, size_t b)
{
    return (proofs->differ[a * proofs->row_words + b / 64] >> (b % 64) & 1) != 0;
}

struct grouping {
    struct proofs *proofs; /* of roots: of their groups */
    struct replay_pools *pools;
    const struct replay_reservations *reservations;
    uint32_t *root;  /* of each segment: the group's first member */
    uint32_t *chain; /* next member; the segment itself at the end */
    uint32_t *last;  /* of a root: the end of the chain */
    uint32_t *pool;  /* of a root: index into pools, or POOL_UNKNOWN */
    uint32_t *order; /* segments by first use */
};

/* ---- the segments ---- */

static void set_different(struct proofs *proofs, size_t a, size_t b)
{
    proofs->differ[a * proofs->row_words + b / 64] |= UINT64_C(1) << (b % 64);
    proofs->differ[b * proofs->row_words + a / 64] |= UINT64_C(1) << (a % 64);
}

static uint32_t add_segment(struct proofs *proofs, uint64_t addr, uint64_t bytes, uint16_t stream,
                            bool is_small, size_t made_by)
{
    assert(proofs->segments != NULL);
    proofs->segments[proofs->count] = (struct replay_pool_segment){
        .addr = addr,
        .bytes = bytes,
        .stream = stream,
        .is_small = is_small,
        .made_by = made_by,
        .first_use = REPLAY_NONE,
        .last_use = REPLAY_NONE,
    };
    return (uint32_t)proofs->count++;
}

static void add_reservations(struct proofs *proofs, const struct replay_reservations *reservations)
{
    proofs->first_reservation = (uint32_t)proofs->count;
    for (size_t i = 0; i < reservations->count; i++) {
        const struct replay_reservation *reservation = &reservations->items[i];
        uint32_t segment = add_segment(proofs, reservation->base, 0, reservation->stream,
                                       reservation->is_small, reservation->made_by);

        proofs->segments[segment].is_gone = reservation->gone_by != REPLAY_NONE;
        if (reservation->is_start) {
            proofs->segments[segment].first_use = 0;
            proofs->segments[segment].last_use = 0;
        }
        for (size_t j = 0; j < i; j++) {
            const struct replay_reservation *other = &reservations->items[j];

            if (other->stream == reservation->stream && other->is_small == reservation->is_small &&
                replay_reservations_coexist(reservations, i, j)) {
                set_different(proofs, proofs->first_reservation + j, segment);
            }
        }
    }
}

/* One pass over the events. */
struct listing {
    const struct history_device *trace;
    const struct replay_reservations *reservations;
    struct proofs *proofs;
    struct replay_ranges live; /* stream: number of the segment, so that no two grow together */
};

static void note_use(struct listing *listing, uint32_t number, size_t index)
{
    struct replay_pool_segment *segment = &listing->proofs->segments[number];

    segment->first_use = segment->first_use == REPLAY_NONE ? index : segment->first_use;
    segment->last_use = index;
    listing->proofs->of_event[index] = number + 1;
}

/* Events within an expandable segment. */
static bool list_reservation(struct listing *listing, size_t index)
{
    uint32_t reservation = listing->reservations->of_event[index];

    if (reservation == 0) {
        return false;
    }
    if (listing->trace->events[index].action == HISTORY_ALLOC) {
        note_use(listing, listing->proofs->first_reservation + reservation - 1, index);
    } else {
        listing->proofs->of_event[index] = listing->proofs->first_reservation + reservation;
    }
    return true;
}

static bool list_alloc(struct listing *listing, size_t index)
{
    const struct history_event *event = &listing->trace->events[index];
    const struct replay_range *range = replay_range_at(&listing->live, event->addr);

    if (range == NULL || listing->proofs->segments[range->stream].stream != event->stream) {
        return false;
    }
    note_use(listing, (uint32_t)range->stream, index);
    return true;
}

static bool list_segment_alloc(struct listing *listing, size_t index)
{
    const struct history_event *event = &listing->trace->events[index];
    uint32_t number = add_segment(listing->proofs, event->addr, event->size, event->stream,
                                  event->size == SMALL_SEGMENT, index);

    listing->proofs->of_event[index] = number + 1;
    return replay_range_add(
        &listing->live, (struct replay_range){.addr = event->addr, .bytes = event->size, .stream = number});
}

static bool list_segment_free(struct listing *listing, size_t index)
{
    const struct history_event *event = &listing->trace->events[index];
    const struct replay_range *range = replay_range_at(&listing->live, event->addr);

    if (range == NULL || range->addr != event->addr || range->bytes != event->size) {
        return false;
    }
    listing->proofs->segments[range->stream].is_gone = true;
    listing->proofs->of_event[index] = (uint32_t)range->stream + 1;
    return replay_range_remove(&listing->live, event->addr, event->size);
}

static bool list_event(struct listing *listing, size_t index)
{
    switch (listing->trace->events[index].action) {
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        return list_reservation(listing, index);
    case HISTORY_ALLOC:
        return listing->reservations->of_event[index] != 0 ? list_reservation(listing, index)
                                                           : list_alloc(listing, index);
    case HISTORY_SEGMENT_ALLOC:
        return list_segment_alloc(listing, index);
    case HISTORY_SEGMENT_FREE:
        return list_segment_free(listing, index);
    default:
        return true;
    }
}

static uint16_t stream_number(const struct history *history, uint64_t handle)
{
    for (size_t i = 0; i < history->stream_count; i++) {
        if (history->streams[i] == handle) {
            return (uint16_t)i;
        }
    }
    return 0;
}

static bool list_start(struct listing *listing, const struct history *history,
                       const struct varve_alloc_snapshot *start)
{
    bool is_good = true;

    for (size_t i = 0; i < start->segment_count && is_good; i++) {
        const struct varve_segment_info *info = &start->segments[i];
        uint32_t number = add_segment(listing->proofs, info->addr, info->bytes,
                                      stream_number(history, info->stream), info->is_small, REPLAY_NONE);

        if (info->is_expandable) {
            listing->proofs->segments[number].is_gone = true; /* its reservation stands for it */
            continue;
        }
        listing->proofs->segments[number].first_use = 0;
        listing->proofs->segments[number].last_use = 0;
        is_good = replay_range_add(
            &listing->live,
            (struct replay_range){.addr = info->addr, .bytes = info->bytes, .stream = number});
    }
    return is_good;
}

static int reserve(struct listing *listing, const struct varve_alloc_snapshot *start,
                   struct varve_message *message)
{
    struct proofs *proofs = listing->proofs;
    size_t events = listing->trace->event_count;

    proofs->capacity = start->segment_count + listing->reservations->count;
    for (size_t i = 0; i < events; i++) {
        proofs->capacity += listing->trace->events[i].action == HISTORY_SEGMENT_ALLOC ? 1 : 0;
    }
    if (proofs->capacity > SEGMENTS_MAX) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "private pools of %zu segments; %d is the most", proofs->capacity,
                                 SEGMENTS_MAX);
    }
    proofs->row_words = proofs->capacity / 64 + 1;
    proofs->segments = memory_resize(NULL, (proofs->capacity + 1) * sizeof(*proofs->segments));
    proofs->differ = memory_resize(NULL, (proofs->capacity + 1) * proofs->row_words * sizeof(uint64_t));
    memset(proofs->differ, 0, (proofs->capacity + 1) * proofs->row_words * sizeof(uint64_t));
    proofs->of_event = memory_resize(NULL, (events + 1) * sizeof(uint32_t));
    memset(proofs->of_event, 0, (events + 1) * sizeof(uint32_t));
    return VARVE_OK;
}

static int list_segments(const struct history *history, const struct history_device *trace,
                         const struct varve_alloc_snapshot *start,
                         const struct replay_reservations *reservations, struct proofs *proofs,
                         struct varve_message *message)
{
    struct listing listing = {.trace = trace, .reservations = reservations, .proofs = proofs};
    int result = reserve(&listing, start, message);
    bool is_good = result == VARVE_OK && list_start(&listing, history, start);

    if (is_good) {
        add_reservations(proofs, reservations);
    }
    for (size_t i = 0; i < trace->event_count && is_good; i++) {
        is_good = list_event(&listing, i);
        if (!is_good) {
            result = varve_message_set(message, VARVE_ERROR_FORMAT,
                                       "event %zu (address 0x%" PRIx64 ", %" PRIu64
                                       " bytes) is not possible after the events before it",
                                       i, trace->events[i].addr, trace->events[i].size);
        }
    }
    replay_ranges_free(&listing.live);
    return result == VARVE_OK && !is_good ? VARVE_ERROR_FORMAT : result;
}

/* ---- groups of segments ---- */

static int compare_use(const void *left, const void *right, void *context)
{
    const struct proofs *proofs = context;
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
static void merge_proofs(struct proofs *proofs, uint32_t into, uint32_t from)
{
    uint64_t *row = &proofs->differ[into * proofs->row_words];
    const uint64_t *other = &proofs->differ[from * proofs->row_words];

    for (size_t i = 0; i < proofs->row_words; i++) {
        row[i] |= other[i];
    }
    for (size_t i = 0; i < proofs->count; i++) {
        if (differ(proofs, i, from)) {
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
        differ(grouping->proofs, into, from) || segments[a].is_lone || segments[b].is_lone ||
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
            differ(grouping->proofs, group, i)) {
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
static void take_hints(struct proofs *proofs, const struct replay_hints *hints)
{
    for (size_t i = 0; i < proofs->count && hints->pools.count > 0; i++) {
        const uint64_t *hint = replay_map_find(&hints->pools, replay_pool_key(&proofs->segments[i]));

        proofs->segments[i].is_private |= hint != NULL;
        proofs->segments[i].is_lone = hint != NULL && *hint > 1;
    }
    for (size_t i = 0; i < hints->apart_count; i++) {
        if (hints->apart[i].a < proofs->count && hints->apart[i].b < proofs->count) {
            set_different(proofs, hints->apart[i].a, hints->apart[i].b);
        }
    }
}

static void keep_segments(const struct grouping *grouping)
{
    struct proofs *proofs = grouping->proofs;

    for (size_t i = 0; i < proofs->count; i++) {
        proofs->segments[i].pool = (uint16_t)grouping->pool[grouping->root[i]];
    }
    grouping->pools->segments = proofs->segments;
    grouping->pools->segment_count = proofs->count;
    grouping->pools->segment_of = proofs->of_event;
    proofs->segments = NULL;
    proofs->of_event = NULL;
}

int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_hints *hints, struct replay_pools *pools,
                        struct varve_message *message)
{
    struct proofs proofs = {0};
    struct grouping grouping = {.proofs = &proofs, .pools = pools, .reservations = reservations};
    int result;

    pool_of_id(pools, (struct varve_pool_id){0, 0});
    if (replay_pools_are_named(trace)) {
        take_named(history, trace, pools);
        return VARVE_OK;
    }
    result = list_segments(history, trace, start, reservations, &proofs, message);
    if (result == VARVE_OK) {
        take_hints(&proofs, hints);
        group(&grouping, trace, history->stream_count, hints->pools_take_turns);
        fill_events(&grouping, trace);
        fill_start(&grouping, start, reservations);
        keep_segments(&grouping);
        free(grouping.root);
    }
    free(proofs.segments);
    free(proofs.differ);
    free(proofs.of_event);
    return result;
}

void replay_pools_free(struct replay_pools *pools)
{
    free(pools->of_event);
    free(pools->pools);
    free(pools->segments);
    free(pools->segment_of);
    *pools = (struct replay_pools){0};
}
