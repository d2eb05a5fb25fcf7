/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments that are there at the end have a pool id; the others are joined to groups by their periods of use (a
 * capture is one contiguous period per stream), and the groups get a pool in order of first use: the default pool,
 * else the one used just before on that stream, else a new one. Nothing is joined, and no pool taken, that an id, two
 * reservations at one time, or an earlier attempt (infer_device.h) forbids.
 */
#include "analysis/history/infer_device.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/infer_ranges.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define POOL_UNKNOWN UINT32_MAX
#define POOLS_MAX 65535
#define SEGMENTS_MAX 32768

struct derivation {
    const struct history *history;
    const struct history_device *trace;
    const struct replay_reservations *reservations;
    struct replay_pools *pools;
    struct replay_pool_segment *segments; /* pools->segments: those of the start, reservations, then by event */
    uint32_t first_reservation;
    struct replay_ranges live;   /* plain segments; stream: number, so that no two grow together */
    struct replay_apart *aparts; /* segments, and so their groups, that are not in one pool */
    size_t apart_count, apart_capacity;
    uint32_t *root;  /* of each segment: the first member of its group */
    uint32_t *pool;  /* of a root: index into pools, or POOL_UNKNOWN */
    uint32_t *order; /* segments by first use */
};

/* ---- the segments ---- */

static uint32_t infer_pools_add_segment(struct derivation *work, uint64_t addr, uint64_t bytes, uint16_t stream,
                                        size_t made_by)
{
    work->segments[work->pools->segment_count] = (struct replay_pool_segment){
        .addr = addr,
        .bytes = bytes,
        .stream = stream,
        .made_by = made_by,
        .first_use = REPLAY_NONE,
        .last_use = REPLAY_NONE,
    };
    return (uint32_t)work->pools->segment_count++;
}

static void set_apart(struct derivation *work, size_t a, size_t b)
{
    *MEMORY_ADD(work->aparts, work->apart_count, work->apart_capacity) =
        (struct replay_apart){(uint32_t)a, (uint32_t)b};
}

static void add_reservations(struct derivation *work)
{
    const struct replay_reservations *reservations = work->reservations;
    work->first_reservation = (uint32_t)work->pools->segment_count;
    for (size_t i = 0; i < reservations->count; i++) {
        const struct replay_reservation *reservation = &reservations->items[i];
        uint32_t number =
            infer_pools_add_segment(work, reservation->base, 0, reservation->stream, reservation->made_by);
        work->segments[number].is_gone = reservation->gone_by != REPLAY_NONE;
        if (reservation->is_start) {
            work->segments[number].first_use = 0;
            work->segments[number].last_use = 0;
        }
        for (size_t j = 0; j < i; j++) {
            const struct replay_reservation *other = &reservations->items[j];
            if (other->stream == reservation->stream && other->is_small == reservation->is_small &&
                replay_reservations_coexist(other, reservation)) {
                set_apart(work, work->first_reservation + j, number);
            }
        }
    }
}

static void note_use(struct derivation *work, uint32_t number, size_t index)
{
    struct replay_pool_segment *segment = &work->segments[number];
    segment->first_use = segment->first_use == REPLAY_NONE ? index : segment->first_use;
    segment->last_use = index;
}

static bool add_live(struct derivation *work, uint64_t addr, uint64_t bytes, uint32_t number)
{
    return replay_range_add(&work->live, (struct replay_range){.addr = addr, .bytes = bytes, .stream = number});
}

static bool list_event(struct derivation *work, size_t index)
{
    const struct history_event *event = &work->trace->events[index];
    uint32_t reservation = work->reservations->of_event[index];
    const struct replay_range *range = NULL;
    uint32_t number;
    switch (event->action) {
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        number = work->first_reservation + reservation - 1;
        break;
    case HISTORY_ALLOC:
        range = reservation == 0 ? replay_range_at(&work->live, event->addr) : NULL;
        if (reservation == 0 && (range == NULL || work->segments[range->stream].stream != event->stream)) {
            return false;
        }
        number = range != NULL ? (uint32_t)range->stream : work->first_reservation + reservation - 1;
        note_use(work, number, index);
        break;
    case HISTORY_SEGMENT_ALLOC:
        number = infer_pools_add_segment(work, event->addr, event->size, event->stream, index);
        work->pools->segment_of[index] = number + 1;
        return add_live(work, event->addr, event->size, number);
    case HISTORY_SEGMENT_FREE:
        range = replay_range_at(&work->live, event->addr);
        if (range == NULL || range->addr != event->addr || range->bytes != event->size) {
            return false;
        }
        number = (uint32_t)range->stream;
        work->segments[number].is_gone = true;
        work->pools->segment_of[index] = number + 1;
        return replay_range_remove(&work->live, event->addr, event->size);
    default:
        return true;
    }
    work->pools->segment_of[index] = number + 1;
    return range != NULL || reservation != 0;
}

static bool list_start(struct derivation *work, const struct varve_alloc_snapshot *start)
{
    bool is_good = true;
    for (size_t i = 0; i < start->segment_count && is_good; i++) {
        const struct varve_segment_info *info = &start->segments[i];
        uint32_t number = infer_pools_add_segment(work, info->addr, info->bytes,
                                                  history_find_stream(work->history, info->stream), REPLAY_NONE);
        if (info->is_expandable) {
            work->segments[number].is_gone = true; /* its reservation stands for it */
        } else {
            work->segments[number].first_use = 0;
            work->segments[number].last_use = 0;
            is_good = add_live(work, info->addr, info->bytes, number);
        }
    }
    return is_good;
}

static void *zeroed(size_t count, size_t bytes)
{
    return memset(memory_resize(NULL, count * bytes), 0, count * bytes);
}

static int list_segments(struct derivation *work, const struct varve_alloc_snapshot *start,
                         struct varve_message *message)
{
    const struct history_device *trace = work->trace;
    size_t capacity = start->segment_count + work->reservations->count;
    for (size_t i = 0; i < trace->event_count; i++) {
        capacity += trace->events[i].action == HISTORY_SEGMENT_ALLOC ? 1 : 0;
    }
    if (capacity > SEGMENTS_MAX) {
        varve_message_set(message, VARVE_ERROR_UNSUPPORTED, "private pools of %zu segments; %d is the most", capacity,
                          SEGMENTS_MAX);
        return VARVE_ERROR_UNSUPPORTED;
    }
    work->segments = work->pools->segments = zeroed(capacity + 1, sizeof(*work->segments));
    work->pools->segment_of = zeroed(trace->event_count + 1, sizeof(*work->pools->segment_of));
    bool is_good = list_start(work, start);
    add_reservations(work);
    for (size_t i = 0; i < trace->event_count && is_good; i++) {
        if (!list_event(work, i)) {
            return varve_message_set(message, VARVE_ERROR_FORMAT,
                                     "event %zu (address 0x%" PRIx64 ", %" PRIu64
                                     " bytes) is not possible after the events before it",
                                     i, trace->events[i].addr, trace->events[i].size);
        }
    }
    return is_good ? VARVE_OK : VARVE_ERROR_FORMAT;
}

/* What earlier attempts have shown. */
static void take_hints(struct derivation *work, const struct replay_hints *hints)
{
    size_t count = work->pools->segment_count;
    for (size_t i = 0; i < count && hints->pools.index.count > 0; i++) {
        uint64_t hint = map_find(&hints->pools, replay_pool_key(&work->segments[i]));
        work->segments[i].is_private = hint != MAP_NONE;
        work->segments[i].is_lone = hint == 2;
    }
    for (size_t i = 0; i < hints->apart_count; i++) {
        if (hints->apart[i].a < count && hints->apart[i].b < count) {
            set_apart(work, hints->apart[i].a, hints->apart[i].b);
        }
    }
}

/* ---- groups of segments ---- */

static int compare_use(const void *left, const void *right, void *context)
{
    const struct replay_pool_segment *segments = context;
    const struct replay_pool_segment *a = &segments[*(const uint32_t *)left];
    const struct replay_pool_segment *b = &segments[*(const uint32_t *)right];
    if (a->first_use != b->first_use) {
        return a->first_use < b->first_use ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static uint32_t pool_of_id(struct replay_pools *pools, struct varve_pool_id id)
{
    for (size_t i = 0; i < pools->count; i++) {
        if (replay_same_pool(pools->ids[i], id)) {
            return (uint32_t)i;
        }
    }
    if (pools->count == POOLS_MAX) {
        return 0;
    }
    pools->ids = memory_resize(pools->ids, (pools->count + 1) * sizeof(id));
    pools->ids[pools->count] = id;
    return (uint32_t)pools->count++;
}

static uint32_t new_pool(struct replay_pools *pools)
{
    struct varve_pool_id id = {1, 0};
    for (size_t i = 0; i < pools->count; i++) {
        id.capture = pools->ids[i].capture >= id.capture ? pools->ids[i].capture + 1 : id.capture;
    }
    return pool_of_id(pools, id);
}

/* A proof against one member is one against its group. */
static bool are_apart(const struct derivation *work, uint32_t a, uint32_t b)
{
    for (size_t i = 0; i < work->apart_count; i++) {
        uint32_t first = work->root[work->aparts[i].a];
        uint32_t second = work->root[work->aparts[i].b];
        if ((first == a && second == b) || (first == b && second == a)) {
            return true;
        }
    }
    return false;
}

static void infer_pools_join(struct derivation *work, uint32_t a, uint32_t b)
{
    struct replay_pool_segment *segments = work->segments;
    uint32_t into = work->root[a];
    uint32_t from = work->root[b];
    bool both_known = work->pool[into] != POOL_UNKNOWN && work->pool[from] != POOL_UNKNOWN;
    if (into == from || (both_known && work->pool[into] != work->pool[from]) || segments[a].is_lone ||
        segments[b].is_lone ||
        ((segments[into].is_private || segments[from].is_private) &&
         (work->pool[into] == 0 || work->pool[from] == 0)) ||
        are_apart(work, into, from)) {
        return;
    }
    segments[into].is_private |= segments[from].is_private;
    if (work->pool[into] == POOL_UNKNOWN) {
        work->pool[into] = work->pool[from];
    }
    for (size_t i = 0; i < work->pools->segment_count; i++) {
        work->root[i] = work->root[i] == from ? into : work->root[i];
    }
}

/* Segments of one stream that are used in turns. */
static void join_interleaved(struct derivation *work)
{
    for (size_t b = 1; b < work->pools->segment_count; b++) {
        const struct replay_pool_segment *later = &work->segments[work->order[b]];
        for (size_t a = 0; a < b && later->first_use != REPLAY_NONE; a++) {
            const struct replay_pool_segment *earlier = &work->segments[work->order[a]];
            if (earlier->stream == later->stream && later->first_use < earlier->last_use) {
                infer_pools_join(work, work->order[a], work->order[b]);
            }
        }
    }
}

static bool is_allowed(const struct derivation *work, uint32_t group, uint32_t pool)
{
    if (pool == 0 && work->segments[group].is_private) {
        return false;
    }
    for (size_t i = 0; i < work->apart_count; i++) {
        uint32_t first = work->root[work->aparts[i].a];
        uint32_t second = work->root[work->aparts[i].b];
        if ((first == group && second != group && work->pool[second] == pool) ||
            (second == group && first != group && work->pool[first] == pool)) {
            return false;
        }
    }
    return true;
}

static void choose_pools(struct derivation *work)
{
    uint32_t *latest = zeroed(work->history->stream_count + 1, sizeof(*latest)); /* pool of each stream */
    for (size_t i = 0; i < work->pools->segment_count; i++) {
        uint32_t group = work->root[work->order[i]];
        uint32_t *last = &latest[work->segments[work->order[i]].stream];
        if (work->pool[group] == POOL_UNKNOWN) {
            if (is_allowed(work, group, 0)) {
                work->pool[group] = 0;
            } else if (!work->segments[group].is_lone && is_allowed(work, group, *last)) {
                work->pool[group] = *last;
            } else {
                work->pool[group] = new_pool(work->pools);
            }
        }
        *last = work->pool[group];
    }
    free(latest);
}

/* Segments that are there at the end say which pool they are in. */
static void label(struct derivation *work)
{
    for (size_t i = 0; i < work->trace->segment_count; i++) {
        const struct history_segment *segment = &work->trace->segments[i];
        struct varve_pool_id id = {segment->pool_id[0], segment->pool_id[1]};
        const struct replay_range *range = replay_range_at(&work->live, segment->addr);
        size_t reservation =
            segment->is_expandable ? replay_reservation_at(work->reservations, segment->addr) : REPLAY_NONE;
        if (reservation != REPLAY_NONE) {
            work->pool[work->first_reservation + reservation] = pool_of_id(work->pools, id);
        } else if (!segment->is_expandable && range != NULL && range->addr == segment->addr) {
            work->pool[range->stream] = pool_of_id(work->pools, id);
        }
    }
}

static void group(struct derivation *work, bool takes_turns)
{
    size_t count = work->pools->segment_count;
    work->root = memory_resize(NULL, 3 * (count + 1) * sizeof(*work->root));
    work->pool = work->root + count + 1;
    work->order = work->pool + count + 1;
    for (uint32_t i = 0; i < count; i++) {
        work->root[i] = work->order[i] = i;
        work->pool[i] = POOL_UNKNOWN;
    }
    qsort_r(work->order, count, sizeof(*work->order), compare_use, work->segments);
    label(work);
    if (!takes_turns) {
        join_interleaved(work);
    }
    choose_pools(work);
}

/* ---- the result ---- */

static void infer_pools_fill_events(const struct derivation *work)
{
    struct replay_pools *pools = work->pools;
    for (size_t i = 0; i < pools->segment_count; i++) {
        work->segments[i].pool = (uint16_t)work->pool[work->root[i]];
    }
    pools->of_event = zeroed(work->trace->event_count + 1, sizeof(*pools->of_event));
    for (size_t i = 0; i < work->trace->event_count; i++) {
        if (pools->segment_of[i] != 0) {
            pools->of_event[i] = work->segments[pools->segment_of[i] - 1].pool;
        }
    }
}

/* What was there at the start is in the pool of its group. */
static void fill_start(const struct derivation *work, struct varve_alloc_snapshot *start,
                       struct replay_reservations *reservations)
{
    for (size_t i = 0; i < reservations->count; i++) {
        reservations->items[i].pool = work->pools->ids[work->segments[work->first_reservation + i].pool];
    }
    for (size_t i = 0; i < start->segment_count; i++) {
        struct varve_segment_info *segment = &start->segments[i];
        if (!segment->is_expandable) {
            segment->pool = work->pools->ids[work->segments[i].pool];
        }
        for (size_t j = 0; j < reservations->count && segment->is_expandable; j++) {
            const struct replay_reservation *reservation = &reservations->items[j];
            if (reservation->is_start && segment->addr >= reservation->base && segment->addr < reservation->high &&
                segment->is_small == reservation->is_small) {
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

/* Events of newer versions name their pool; so does what they gave back (infer_start.c). */
static void take_named(const struct history *history, const struct history_device *trace, struct replay_pools *pools)
{
    pools->of_event = zeroed(trace->event_count + 1, sizeof(*pools->of_event));
    for (size_t i = 0; i < trace->event_count; i++) {
        pools->of_event[i] = (uint16_t)pool_of_id(pools, replay_named_pool(history, &trace->events[i]));
    }
}

int replay_pools_derive(const struct history *history, const struct history_device *trace,
                        struct varve_alloc_snapshot *start, struct replay_reservations *reservations,
                        const struct replay_hints *hints, struct replay_pools *pools, struct varve_message *message)
{
    struct derivation work = {.history = history, .trace = trace, .reservations = reservations, .pools = pools};
    pool_of_id(pools, (struct varve_pool_id){0, 0});
    if (replay_pools_are_named(trace)) {
        take_named(history, trace, pools);
        return VARVE_OK;
    }
    int result = list_segments(&work, start, message);
    if (result == VARVE_OK) {
        take_hints(&work, hints);
        group(&work, hints->pools_take_turns);
        infer_pools_fill_events(&work);
        fill_start(&work, start, reservations);
    }
    free(work.root);
    free(work.aparts);
    replay_ranges_free(&work.live);
    return result;
}

void replay_pools_free(struct replay_pools *pools)
{
    free(pools->of_event);
    free(pools->ids);
    free(pools->segments);
    free(pools->segment_of);
    *pools = (struct replay_pools){0};
}
