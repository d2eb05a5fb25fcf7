/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pair.h. The model takes each step first and decides where new segments come to lie:
 * after all others, below all others, or where memory was given back, so that ties by address across segments
 * occur. The sim device then asks for the same places in the same order.
 */
#include "support/alloc/pair.h"
#include "support/alloc/model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_ALIGNMENT UINT64_C(0x200000)

/* An answer of the model to "where does it lie", for the sim device to give too. */
struct pair_address {
    uint64_t addr, bytes, stream;
    bool is_reservation;
};

/* Addresses that the device has back. */
struct pair_hole {
    uint64_t addr, bytes;
};

#define PAIR_MISS_FREES 8U /* at most in a step */

struct pair {
    const struct alloc_pair_setup *setup;
    struct alloc_model *model;
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    uint64_t *live; /* addresses */
    size_t live_count, live_capacity;
    struct alloc_model_event *events; /* of this step, from the allocator */
    size_t event_count, event_capacity;
    struct pair_address *places; /* of this step */
    size_t place_count, place_capacity, place_taken;
    struct pair_hole *holes;
    size_t hole_count, hole_capacity;
    uint64_t lowest, highest; /* of all addresses so far */
    uint32_t salt;
    uint64_t missed[PAIR_MISS_FREES]; /* what the model's callback has freed in this step */
    unsigned missed_count, missed_taken;
    unsigned misses, misses_taken; /* calls of the callbacks in this step */
    uint64_t dev_seq;              /* of the last event */
    size_t step;
    bool is_different;
    struct alloc_pair_difference *difference;
    struct varve_alloc_stats stats; /* by the events */
    struct varve_message message;
};

/* Ordered as unsigned numbers, the last above INT64_MAX. */
static const uint64_t stream_handles[ALLOC_PAIR_STREAMS] = {0, 7, 0x5580c0de, UINT64_C(0x7f1200000010),
                                                            UINT64_C(0x8000000000000001)};
/* Which streams a pool is for; 0: no filter at all. */
static unsigned filter_masks[ALLOC_PAIR_FILTERS] = {0, 0x1, 0x6, 0x1e};

/* Note the first difference; returns false. */
static __attribute__((format(printf, 2, 3))) bool differ(struct pair *pair, const char *format, ...)
{
    va_list arguments;

    if (!pair->is_different) {
        va_start(arguments, format);
        vsnprintf(pair->difference->text, sizeof(pair->difference->text), format, arguments);
        va_end(arguments);
        pair->difference->step = pair->step;
        pair->is_different = true;
    }
    return false;
}

/* ---- addresses: the model asks first, the sim device must then ask for the same ---- */

static uint64_t place_reused(struct pair *pair, uint64_t bytes)
{
    for (size_t i = pair->hole_count; i > 0; i--) {
        struct pair_hole *hole = &pair->holes[i - 1];
        uint64_t addr = hole->addr;

        if (hole->bytes >= bytes) {
            hole->addr += bytes;
            hole->bytes -= bytes;
            return addr;
        }
    }
    return 0;
}

static uint64_t address_choose(void *context, uint64_t bytes, uint64_t stream, bool is_reservation)
{
    struct pair *pair = context;
    uint64_t room = (bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
    uint32_t way = (pair->salt + (uint32_t)pair->place_count) % 4;
    uint64_t addr = way == 1 ? place_reused(pair, bytes) : 0;

    if (!addr && way == 2) {
        pair->lowest -= room;
        addr = pair->lowest;
    }
    if (!addr) {
        addr = pair->highest;
        pair->highest += room;
    }
    pair->places = alloc_model_grow(pair->places, pair->place_count, &pair->place_capacity, sizeof(*pair->places));
    pair->places[pair->place_count++] = (struct pair_address){addr, bytes, stream, is_reservation};
    return addr;
}

static void address_gone(void *context, uint64_t addr, uint64_t bytes)
{
    struct pair *pair = context;

    pair->holes = alloc_model_grow(pair->holes, pair->hole_count, &pair->hole_capacity, sizeof(*pair->holes));
    pair->holes[pair->hole_count++] = (struct pair_hole){addr, bytes};
}

static int place_take(struct pair *pair, uint64_t bytes, uint64_t stream, bool is_reservation, uint64_t *addr_out)
{
    const struct pair_address *place = &pair->places[pair->place_taken];

    if (pair->place_taken == pair->place_count) {
        differ(pair, "the allocator asked for a %s of %" PRIu64 " bytes, the model for none",
               is_reservation ? "reservation" : "segment", bytes);
        return VARVE_ERROR_INVALID;
    }
    if (place->bytes != bytes || place->stream != stream || place->is_reservation != is_reservation) {
        differ(pair, "the allocator asked for a %s of %" PRIu64 " bytes, the model for a %s of %" PRIu64,
               is_reservation ? "reservation" : "segment", bytes, place->is_reservation ? "reservation" : "segment",
               place->bytes);
        return VARVE_ERROR_INVALID;
    }
    pair->place_taken++;
    *addr_out = place->addr;
    return VARVE_OK;
}

static int segment_address(void *context, uint64_t bytes, uint64_t stream, const struct varve_device_reservation *place,
                           uint64_t *addr_out)
{
    (void)place;
    return place_take(context, bytes, stream, false, addr_out);
}

static int reservation_address(void *context, uint64_t bytes, uint64_t stream,
                               const struct varve_device_reservation *place, uint64_t *addr_out)
{
    (void)stream;
    return place_take(context, bytes, place->stream, true, addr_out);
}

/* ---- statistics: sums over the events, which are equal ---- */

static void tally(struct varve_alloc_stat *stat, int64_t change)
{
    stat->current += change;
    stat->freed -= change < 0 ? change : 0;
    stat->allocated += change > 0 ? change : 0;
    stat->peak = stat->current > stat->peak ? stat->current : stat->peak;
}

static void tally_event(struct pair *pair, const struct alloc_model_event *event)
{
    struct varve_alloc_stats *stats = &pair->stats;
    unsigned kind = event->kind, pools[] = {VARVE_ALLOC_STAT_ALL, event->is_small ? VARVE_ALLOC_STAT_SMALL_POOL
                                                                                  : VARVE_ALLOC_STAT_LARGE_POOL};
    int64_t size = (int64_t)event->size, requested = (int64_t)event->requested;
    int64_t taken = (kind == VARVE_KIND_ALLOC) - (kind == VARVE_KIND_FREE_REQUESTED);
    int64_t active = (kind == VARVE_KIND_ALLOC) - (kind == VARVE_KIND_FREE_COMPLETED);
    int64_t segments = (kind == VARVE_KIND_SEGMENT_ALLOC) - (kind == VARVE_KIND_SEGMENT_FREE);
    int64_t grown = segments + (kind == VARVE_KIND_SEGMENT_MAP) - (kind == VARVE_KIND_SEGMENT_UNMAP);

    for (unsigned i = 0; i < 2; i++) {
        tally(&stats->allocation[pools[i]], taken);
        tally(&stats->allocated_bytes[pools[i]], taken * size);
        tally(&stats->active[pools[i]], active);
        tally(&stats->active_bytes[pools[i]], active * size);
        tally(&stats->requested_bytes[pools[i]], active * requested);
        tally(&stats->segment[pools[i]], segments);
        tally(&stats->reserved_bytes[pools[i]], grown * size);
    }
    if (event->size >= pair->setup->config.max_split_size) {
        tally(&stats->oversize_allocations, taken);
        tally(&stats->oversize_segments, segments);
    }
    stats->num_device_alloc += grown > 0;
    stats->num_device_free += grown < 0;
    stats->num_ooms += kind == VARVE_KIND_OOM;
}

static void stats_reset(struct pair *pair, bool is_peak)
{
    struct varve_alloc_stat *stats = (struct varve_alloc_stat *)&pair->stats;

    for (size_t i = 0; i < offsetof(struct varve_alloc_stats, num_alloc_retries) / sizeof(*stats); i++) {
        if (is_peak) {
            stats[i].peak = stats[i].current;
        } else {
            stats[i].allocated = stats[i].freed = 0;
        }
    }
    if (!is_peak) {
        pair->stats.num_ooms = pair->stats.num_device_alloc = pair->stats.num_device_free = 0;
        pair->model->retries = pair->model->syncs = 0;
    }
}

/* ---- events ---- */

static bool is_compared(unsigned kind)
{
    return (kind >= VARVE_KIND_ALLOC && kind <= VARVE_KIND_SEGMENT_UNMAP) || kind == VARVE_KIND_OOM;
}

static void event_take(struct pair *pair, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);

    if (varve_record_dev_seq(record) != ++pair->dev_seq) {
        differ(pair, "event %" PRIu64 " where %" PRIu64 " is due", varve_record_dev_seq(record), pair->dev_seq);
    }
    if (!is_compared(kind)) {
        return;
    }
    pair->events = alloc_model_grow(pair->events, pair->event_count, &pair->event_capacity, sizeof(*pair->events));
    pair->events[pair->event_count++] =
        (struct alloc_model_event){kind, record->addr, record->size, record->requested, false};
}

static void record_take(void *context, const struct varve_record *record)
{
    struct varve_record events[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, events);

    for (unsigned i = 0; i < count; i++) {
        event_take(context, &events[i]);
    }
}

static bool is_event_equal(const struct alloc_model_event *a, const struct alloc_model_event *b)
{
    bool is_plain = a->kind <= VARVE_KIND_MERGE;
    bool is_oom = a->kind == VARVE_KIND_OOM;

    return a->kind == b->kind && a->size == b->size && (is_oom || a->addr == b->addr) &&
           (!(is_plain || is_oom) || a->requested == b->requested);
}

static void event_print(char *text, size_t size, const struct alloc_model_event *events, size_t count, size_t index)
{
    if (index >= count) {
        snprintf(text, size, "nothing");
        return;
    }
    snprintf(text, size, "kind %u addr %" PRIx64 " size %" PRIu64 " requested %" PRIu64, events[index].kind,
             events[index].addr, events[index].size, events[index].requested);
}

static bool events_compare(struct pair *pair)
{
    const struct alloc_model_event *events = pair->model->events;
    size_t count = pair->model->event_count;
    char real[120], model[120];

    for (size_t i = 0; i < count || i < pair->event_count; i++) {
        if (i >= count || i >= pair->event_count || !is_event_equal(&events[i], &pair->events[i])) {
            event_print(real, sizeof(real), pair->events, pair->event_count, i);
            event_print(model, sizeof(model), events, count, i);
            return differ(pair, "event %zu of the step: %s; in the model: %s", i, real, model);
        }
        tally_event(pair, &events[i]);
    }
    return true;
}

/* ---- callbacks ---- */

/* The model's: frees the oldest blocks, now and then. */
static bool miss_model(void *context)
{
    struct pair *pair = context;
    unsigned count = 0;

    pair->misses++;
    while (count < pair->setup->miss_frees && (pair->salt & 8U) == 0 && pair->live_count > 0 &&
           pair->missed_count < PAIR_MISS_FREES) {
        pair->missed[pair->missed_count++] = pair->live[0];
        alloc_model_free(pair->model, pair->live[0]);
        pair->live_count--;
        memmove(&pair->live[0], &pair->live[1], pair->live_count * sizeof(uint64_t));
        count++;
    }
    return count > 0;
}

/* The allocator's: frees what the model's has freed. */
static uint64_t miss_real(void *context, const struct varve_alloc_miss *miss)
{
    struct pair *pair = context;
    uint64_t freed = 0;

    (void)miss;
    pair->misses_taken++;
    while (pair->missed_taken < pair->missed_count) {
        freed++;
        varve_alloc_raw_delete(pair->alloc, pair->missed[pair->missed_taken++], &pair->message);
    }
    return freed;
}

/* ---- steps ---- */

static bool filter_stream(void *context, uint64_t stream)
{
    unsigned mask = *(unsigned *)context;

    for (unsigned i = 0; i < ALLOC_PAIR_STREAMS; i++) {
        if (stream_handles[i] == stream) {
            return (mask >> i) & 1U;
        }
    }
    return false;
}

static bool results_compare(struct pair *pair, const char *what, int real, int model)
{
    if (real != model) {
        return differ(pair, "%s returned %d, in the model %d: %s", what, real, model, pair->message.text);
    }
    return true;
}

static bool step_alloc(struct pair *pair, const struct alloc_pair_op *op, uint64_t stream)
{
    uint64_t real_addr = 0;
    uint64_t addr;
    int model = alloc_model_alloc(pair->model, op->bytes, stream, &addr);
    int real = varve_alloc_raw_alloc_with_stream(pair->alloc, op->bytes, stream, &real_addr, &pair->message);

    if (!results_compare(pair, "alloc", real, model)) {
        return false;
    }
    if (real == VARVE_OK && real_addr != addr) {
        return differ(pair, "address %" PRIx64 ", in the model %" PRIx64, real_addr, addr);
    }
    if (real == VARVE_OK && addr) {
        pair->live = alloc_model_grow(pair->live, pair->live_count, &pair->live_capacity, sizeof(*pair->live));
        pair->live[pair->live_count++] = addr;
    }
    return true;
}

static bool step_free(struct pair *pair, uint64_t addr)
{
    return results_compare(pair, "free", varve_alloc_raw_delete(pair->alloc, addr, &pair->message),
                           alloc_model_free(pair->model, addr));
}

static bool step_block(struct pair *pair, const struct alloc_pair_op *op, uint64_t stream)
{
    size_t index;
    uint64_t addr;

    if (pair->live_count == 0) {
        return true;
    }
    index = op->pick % pair->live_count;
    addr = pair->live[index];
    if (op->kind == ALLOC_PAIR_RECORD_STREAM) {
        return results_compare(pair, "record_stream",
                               varve_alloc_record_stream(pair->alloc, addr, stream, &pair->message),
                               alloc_model_record_stream(pair->model, addr, stream));
    }
    if (op->kind == ALLOC_PAIR_FREE_WRONG) {
        return step_free(pair, addr + 512);
    }
    pair->live_count--;
    memmove(&pair->live[index], &pair->live[index + 1], (pair->live_count - index) * sizeof(uint64_t));
    return step_free(pair, addr);
}

static bool step_pool(struct pair *pair, const struct alloc_pair_op *op)
{
    uint32_t number = op->pick % ALLOC_PAIR_POOLS;
    struct varve_pool_id id = {number / 2, number % 2 + 1};
    unsigned *mask = &filter_masks[op->stream % ALLOC_PAIR_FILTERS];
    bool (*filter)(void *, uint64_t) = *mask ? filter_stream : NULL;
    struct alloc_model *model = pair->model;
    struct model_private *private;

    if (op->kind == ALLOC_PAIR_BEGIN) {
        return results_compare(pair, "begin", varve_alloc_begin_allocate_to_pool(pair->alloc, id, filter, mask),
                               alloc_model_begin(model, id, filter, mask));
    }
    if (op->kind == ALLOC_PAIR_END) {
        return results_compare(pair, "end", varve_alloc_end_allocate_to_pool(pair->alloc, id) != 0,
                               alloc_model_end(model, id) != 0);
    }
    private = alloc_model_pool(model, id);
    if (private == NULL || (op->kind == ALLOC_PAIR_RELEASE && private->references == 1 &&
                            alloc_model_is_capturing(model, id))) { /* a pool goes after its scope has ended */
        return true;
    }
    if (op->kind == ALLOC_PAIR_NO_SPLIT) {
        private->is_no_split = true;
        return results_compare(pair, "no_split", varve_alloc_set_no_split(pair->alloc, id), VARVE_OK);
    }
    if (op->kind == ALLOC_PAIR_USE_ON_OOM) {
        private->is_use_on_oom = true;
        return results_compare(pair, "use_on_oom", varve_alloc_set_use_on_oom(pair->alloc, id), VARVE_OK);
    }
    return results_compare(pair, "release", varve_alloc_release_pool(pair->alloc, id) != 0,
                           alloc_model_release(model, id) != 0);
}

static bool step_other(struct pair *pair, const struct alloc_pair_op *op, uint64_t stream)
{
    static const enum varve_device_call calls[] = {VARVE_DEVICE_SEGMENT_ALLOC, VARVE_DEVICE_VMM_CREATE,
                                                   VARVE_DEVICE_VMM_RESERVE};
    enum varve_device_call call = calls[op->pick % 3];

    switch (op->kind) {
    case ALLOC_PAIR_COMPLETE:
        alloc_model_stream_complete(pair->model, stream);
        varve_sim_stream_complete(pair->device, stream);
        return true;
    case ALLOC_PAIR_EMPTY_CACHE:
        alloc_model_empty_cache(pair->model);
        return results_compare(pair, "empty_cache", varve_alloc_empty_cache(pair->alloc), VARVE_OK);
    case ALLOC_PAIR_LIMIT:
        pair->model->limit = op->bytes;
        return results_compare(pair, "limit", varve_alloc_set_memory_limit(pair->alloc, op->bytes), VARVE_OK);
    case ALLOC_PAIR_FRACTION:
        return results_compare(pair, "fraction", varve_alloc_set_memory_fraction(pair->alloc, (double)op->bytes / 1000),
                               alloc_model_set_fraction(pair->model, (double)op->bytes / 1000));
    case ALLOC_PAIR_FAIL:
        if (!alloc_model_fail(pair->model, call, op->nth, op->count, op->error)) {
            return true;
        }
        return results_compare(pair, "fail", varve_sim_fail(pair->device, call, op->nth, op->count, op->error),
                               VARVE_OK);
    case ALLOC_PAIR_RESET_PEAK:
        stats_reset(pair, true);
        varve_alloc_reset_peak_stats(pair->alloc);
        return true;
    default:
        stats_reset(pair, false);
        varve_alloc_reset_accumulated_stats(pair->alloc);
        return true;
    }
}

static bool step_run(struct pair *pair, const struct alloc_pair_op *op)
{
    uint64_t stream = stream_handles[op->stream % ALLOC_PAIR_STREAMS];
    bool is_equal;

    pair->salt = op->salt;
    pair->place_count = 0;
    pair->place_taken = 0;
    pair->event_count = 0;
    pair->missed_count = 0;
    pair->missed_taken = 0;
    pair->misses = 0;
    pair->misses_taken = 0;
    pair->message.text[0] = '\0';
    pair->model->event_count = 0;
    switch (op->kind) {
    case ALLOC_PAIR_ALLOC:
        is_equal = step_alloc(pair, op, stream);
        break;
    case ALLOC_PAIR_FREE:
    case ALLOC_PAIR_RECORD_STREAM:
    case ALLOC_PAIR_FREE_WRONG:
        is_equal = step_block(pair, op, stream);
        break;
    case ALLOC_PAIR_BEGIN:
    case ALLOC_PAIR_END:
    case ALLOC_PAIR_RELEASE:
    case ALLOC_PAIR_NO_SPLIT:
    case ALLOC_PAIR_USE_ON_OOM:
        is_equal = step_pool(pair, op);
        break;
    default:
        is_equal = step_other(pair, op, stream);
        break;
    }
    is_equal = is_equal && !pair->is_different && events_compare(pair);
    if (is_equal && pair->place_taken != pair->place_count) {
        is_equal =
            differ(pair, "the model took %zu new segments, the allocator %zu", pair->place_count, pair->place_taken);
    }
    if (is_equal && pair->misses != pair->misses_taken) {
        is_equal =
            differ(pair, "callbacks were called %u times, by the model %u times", pair->misses_taken, pair->misses);
    }
    return is_equal;
}

/* ---- the state ---- */

static bool stats_compare(struct pair *pair)
{
    struct varve_alloc_stats real, *expected = &pair->stats;
    const struct varve_alloc_stat *left = (struct varve_alloc_stat *)&real,
                                  *right = (struct varve_alloc_stat *)expected;

    if (varve_alloc_get_device_stats(pair->alloc, &real)) {
        return differ(pair, "no statistics");
    }
    expected->num_alloc_retries = pair->model->retries;
    expected->num_sync_all_streams = pair->model->syncs;
    expected->max_split_size = real.max_split_size;
    /* what is free beside used blocks no event tells: varve_alloc_check counts them */
    memcpy(expected->inactive_split, real.inactive_split, sizeof(real.inactive_split));
    memcpy(expected->inactive_split_bytes, real.inactive_split_bytes, sizeof(real.inactive_split_bytes));
    for (size_t i = 0; i < offsetof(struct varve_alloc_stats, num_alloc_retries) / sizeof(*left); i++) {
        if (memcmp(&left[i], &right[i], sizeof(*left)) != 0) {
            return differ(pair,
                          "figure %zu of the statistics: current %" PRId64 " peak %" PRId64 " allocated %" PRId64
                          " freed %" PRId64 "; by the events: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                          i, left[i].current, left[i].peak, left[i].allocated, left[i].freed, right[i].current,
                          right[i].peak, right[i].allocated, right[i].freed);
        }
    }
    if (memcmp(&real, expected, sizeof(real)) != 0) {
        return differ(pair, "counters: %" PRId64 " retries, %" PRId64 " synchronisations, %" PRId64 " out of memory",
                      real.num_alloc_retries, real.num_sync_all_streams, real.num_ooms);
    }
    return ((int64_t)pair->model->reserved == varve_alloc_memory_reserved(pair->alloc) &&
            pair->model->reserved == varve_sim_used(pair->device)) ||
           differ(pair, "%" PRIu64 " bytes reserved, in the model %" PRIu64, varve_sim_used(pair->device),
                  pair->model->reserved);
}

static bool is_block_equal(const struct varve_block_info *real, const struct model_block *model)
{
    static const enum varve_block_state states[] = {[MODEL_FREE] = VARVE_BLOCK_INACTIVE,
                                                    [MODEL_ALLOCATED] = VARVE_BLOCK_ACTIVE_ALLOCATED,
                                                    [MODEL_PENDING] = VARVE_BLOCK_ACTIVE_PENDING_FREE};

    return model != NULL && model->state != MODEL_UNMAPPED && real->bytes == model->size &&
           real->requested == model->requested && real->state == states[model->state] &&
           (real->allocation_id != 0) == (real->state != VARVE_BLOCK_INACTIVE);
}

static bool is_segment_equal(const struct varve_segment_info *segment, const struct model_block *first)
{
    const struct model_private *owner = first->pool->owner;
    const struct varve_pool_id pool = owner != NULL ? owner->id : (struct varve_pool_id){0, 0};

    return segment->addr == first->addr && segment->stream == first->stream && segment->pool.capture == pool.capture &&
           segment->pool.user == pool.user && segment->is_small == first->pool->is_small &&
           segment->is_expandable == (first->base != 0) &&
           (first->prev == NULL || first->prev->state == MODEL_UNMAPPED);
}

static bool segment_compare(struct pair *pair, const struct varve_segment_info *segment,
                            const struct varve_block_info *blocks)
{
    uint64_t bytes = 0, allocated = 0, active = 0, requested = 0, base, base_bytes;

    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *block = &blocks[i];
        const struct model_block *model = alloc_model_block(pair->model, block->addr);

        if (!is_block_equal(block, model) || (i == 0 && !is_segment_equal(segment, model)) ||
            block->addr != segment->addr + bytes) {
            return differ(pair, "segment %" PRIx64 ", block %" PRIx64 " is another one in the model", segment->addr,
                          block->addr);
        }
        if (model->state == MODEL_ALLOCATED &&
            (varve_alloc_get_base_allocation(pair->alloc, block->addr, &base, &base_bytes) != VARVE_OK ||
             base != segment->addr || base_bytes != segment->bytes)) {
            return differ(pair, "base allocation of block %" PRIx64, block->addr);
        }
        bytes += block->bytes;
        allocated += model->state == MODEL_ALLOCATED ? block->bytes : 0;
        active += model->state != MODEL_FREE ? block->bytes : 0;
        requested += model->state != MODEL_FREE ? block->requested : 0;
    }
    return (segment->bytes == bytes && segment->allocated_bytes == allocated && segment->active_bytes == active &&
            segment->requested_bytes == requested) ||
           differ(pair, "segment %" PRIx64 " has other sums than its blocks", segment->addr);
}

static bool state_compare(struct pair *pair)
{
    struct varve_alloc_snapshot real;
    size_t mapped = 0, seen = 0;
    bool is_equal = stats_compare(pair);

    if (varve_alloc_snapshot(pair->alloc, &real)) {
        return differ(pair, "no snapshot");
    }
    for (size_t i = 0; i < pair->model->blocks.count; i++) {
        mapped += pair->model->blocks.items[i]->state != MODEL_UNMAPPED;
    }
    for (size_t i = 0; i < real.segment_count && is_equal; i++) {
        const struct varve_segment_info *segment = &real.segments[i];

        is_equal = segment->first_block == seen && segment_compare(pair, segment, &real.blocks[seen]) &&
                   (i == 0 || segment[-1].addr + segment[-1].bytes <= segment->addr);
        seen += segment->block_count;
    }
    if (is_equal ? seen != mapped || real.block_count != mapped : !pair->is_different) {
        differ(pair, "%zu blocks, in the model %zu; or segments out of order", real.block_count, mapped);
    }
    varve_alloc_snapshot_free(&real);
    return !pair->is_different;
}

/* ---- runs ---- */

static bool pair_open(struct pair *pair, const struct alloc_pair_setup *setup)
{
    struct varve_sim_options sim = {.capacity_bytes = setup->capacity,
                                    .total_bytes = setup->capacity,
                                    .events_are_scripted = true,
                                    .segment_address = segment_address,
                                    .reservation_address = reservation_address,
                                    .address_context = pair};
    struct alloc_model_options model = {.config = setup->config,
                                        .memory_limit = setup->memory_limit,
                                        .capacity = setup->capacity,
                                        .total = setup->capacity,
                                        .place = address_choose,
                                        .gone = address_gone,
                                        .miss = setup->miss_frees ? miss_model : NULL,
                                        .context = pair};
    struct varve_alloc_options options;
    int error;

    pair->highest = UINT64_C(0x7f0000000000);
    pair->lowest = pair->highest;
    pair->recorder = (struct varve_alloc_recorder){.record = record_take, .context = pair, .folds = setup->folds};
    varve_emit_may_fold = setup->folds;
    pair->model = alloc_model_open(&model);
    error = varve_sim_open(&sim, &pair->device, &pair->message);
    if (error) {
        return differ(pair, "sim device: %s", pair->message.text);
    }
    varve_alloc_options_init(&options);
    options.device = pair->device;
    options.config = setup->config;
    options.memory_limit = setup->memory_limit;
    options.recorder = &pair->recorder;
    error = varve_alloc_open(&options, &pair->alloc, &pair->message);
    if (error) {
        return differ(pair, "open: %s", pair->message.text);
    }
    if (setup->miss_frees && varve_alloc_add_miss_callback(pair->alloc, miss_real, pair)) {
        return differ(pair, "no callback");
    }
    return true;
}

static void pair_close(struct pair *pair)
{
    if (pair->alloc) {
        varve_alloc_close(pair->alloc);
        if (varve_sim_used(pair->device) != 0) {
            differ(pair, "close left %" PRIu64 " bytes of the device in use", varve_sim_used(pair->device));
        }
    }
    if (pair->device) {
        pair->device->ops->close(pair->device);
    }
    alloc_model_close(pair->model);
    free(pair->live);
    free(pair->places);
    free(pair->holes);
    free(pair->events);
}

bool alloc_pair_run(const struct alloc_pair_setup *setup, const struct alloc_pair_op *ops, size_t count,
                    struct alloc_pair_difference *difference_out)
{
    struct pair pair = {.setup = setup, .difference = difference_out};
    bool is_equal = pair_open(&pair, setup);

    for (size_t i = 0; is_equal && i < count; i++) {
        bool is_last = i + 1 == count;

        pair.step = i;
        is_equal = step_run(&pair, &ops[i]);
        if (is_equal && (is_last || (i + 1) % setup->check_every == 0) &&
            varve_alloc_check(pair.alloc, &pair.message)) {
            is_equal = differ(&pair, "varve_alloc_check: %s", pair.message.text);
        }
        if (is_equal && (is_last || i % 64 == 63)) {
            is_equal = state_compare(&pair);
        }
    }
    pair_close(&pair);
    return !pair.is_different;
}

/* ---- readable lines ---- */

void alloc_pair_print_op(FILE *file, const struct alloc_pair_op *op)
{
    static const char *const names[] = {
#define PAIR_NAME(NAME, name) #name,
        ALLOC_PAIR_LIST(PAIR_NAME)
#undef PAIR_NAME
    };

    fprintf(file, "%s bytes %" PRIu64 " pick %u salt %u stream %u nth %u count %u error %d\n", names[op->kind],
            op->bytes, op->pick, op->salt, op->stream, op->nth, op->count, op->error);
}

void alloc_pair_print_setup(FILE *file, const struct alloc_pair_setup *setup)
{
    const struct varve_alloc_config *config = &setup->config;

    fprintf(file,
            "capacity %" PRIu64 ", limit %" PRIu64 ", max_split %" PRIu64 ", non_split_rounding %" PRIu64
            ", large_segment %" PRIu64 ", gc %.17g, expandable %d, callbacks free %u, divisions",
            setup->capacity, setup->memory_limit, config->max_split_size, config->max_non_split_rounding_size,
            config->large_segment_size, config->garbage_collection_threshold, config->expandable_segments,
            setup->miss_frees);
    for (unsigned i = 0; i < VARVE_ALLOC_DIVISIONS; i++) {
        fprintf(file, " %" PRIu64, config->roundup_power2_divisions[i]);
    }
    fprintf(file, "\n");
}
