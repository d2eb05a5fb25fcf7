/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See pair.h. The model takes each step first and decides where new segments come to lie:
 * after all others, below all others, or where memory was given back, so that ties by address across segments
 * occur. The sim device then asks for the same places in the same order.
 */
#include "support/alloc/pair_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Ordered as unsigned numbers, the last above INT64_MAX. */
static const uint64_t stream_handles[ALLOC_PAIR_STREAMS] = {0, 7, 0x5580c0de, UINT64_C(0x7f1200000010),
                                                            UINT64_C(0x8000000000000001)};
/* Which streams a pool is for; 0: no filter at all. */
static unsigned filter_masks[ALLOC_PAIR_FILTERS] = {0, 0x1, 0x6, 0x1e};

bool alloc_pair_fail(struct pair *pair, const char *format, ...)
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

/* ---- events ---- */

static bool is_compared(unsigned kind)
{
    return (kind >= VARVE_KIND_ALLOC && kind <= VARVE_KIND_SEGMENT_UNMAP) || kind == VARVE_KIND_OOM;
}

static void record_take(void *context, const struct varve_record *record)
{
    struct pair *pair = context;
    unsigned kind = varve_record_kind(record);

    if (!is_compared(kind)) {
        return;
    }
    pair->events =
        alloc_pair_grow(pair->events, pair->event_count, &pair->event_capacity, sizeof(*pair->events));
    pair->events[pair->event_count++] =
        (struct alloc_model_event){kind, record->addr, record->size, record->requested};
}

static bool is_event_equal(const struct alloc_model_event *a, const struct alloc_model_event *b)
{
    bool is_plain = a->kind <= VARVE_KIND_MERGE;
    bool is_oom = a->kind == VARVE_KIND_OOM;

    return a->kind == b->kind && a->size == b->size && (is_oom || a->addr == b->addr) &&
           (!(is_plain || is_oom) || a->requested == b->requested);
}

static void event_print(char *text, size_t size, const struct alloc_model_event *events, size_t count,
                        size_t index)
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
    size_t count;
    const struct alloc_model_event *events = alloc_model_events(pair->model, &count);
    char real[120], model[120];

    for (size_t i = 0; i < count || i < pair->event_count; i++) {
        if (i >= count || i >= pair->event_count || !is_event_equal(&events[i], &pair->events[i])) {
            event_print(real, sizeof(real), pair->events, pair->event_count, i);
            event_print(model, sizeof(model), events, count, i);
            return alloc_pair_fail(pair, "event %zu of the step: %s; in the model: %s", i, real, model);
        }
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
static bool miss_real(void *context)
{
    struct pair *pair = context;
    bool has_freed = pair->missed_taken < pair->missed_count;

    pair->misses_taken++;
    while (pair->missed_taken < pair->missed_count) {
        varve_alloc_raw_delete(pair->alloc, pair->missed[pair->missed_taken++], &pair->message);
    }
    return has_freed;
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
        return alloc_pair_fail(pair, "%s returned %d, in the model %d: %s", what, real, model,
                               pair->message.text);
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
        return alloc_pair_fail(pair, "address %" PRIx64 ", in the model %" PRIx64, real_addr, addr);
    }
    if (real == VARVE_OK && addr) {
        pair->live = alloc_pair_grow(pair->live, pair->live_count, &pair->live_capacity, sizeof(*pair->live));
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

    if (op->kind == ALLOC_PAIR_BEGIN) {
        return results_compare(pair, "begin",
                               varve_alloc_begin_allocate_to_pool(pair->alloc, id, filter, mask),
                               alloc_model_begin(model, id, filter, mask));
    }
    if (op->kind == ALLOC_PAIR_END) {
        return results_compare(pair, "end", varve_alloc_end_allocate_to_pool(pair->alloc, id) != 0,
                               alloc_model_end(model, id) != 0);
    }
    if (!alloc_model_is_pool(model, id)) {
        return true;
    }
    if (op->kind == ALLOC_PAIR_NO_SPLIT) {
        return results_compare(pair, "no_split", varve_alloc_set_no_split(pair->alloc, id),
                               alloc_model_set_no_split(model, id));
    }
    if (op->kind == ALLOC_PAIR_USE_ON_OOM) {
        return results_compare(pair, "use_on_oom", varve_alloc_set_use_on_oom(pair->alloc, id),
                               alloc_model_set_use_on_oom(model, id));
    }
    if (alloc_model_references(model, id) == 1 && alloc_model_is_capturing(model, id)) {
        return true; /* a pool goes after its scope has ended */
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
        alloc_model_set_limit(pair->model, op->bytes);
        return results_compare(pair, "limit", varve_alloc_set_memory_limit(pair->alloc, op->bytes), VARVE_OK);
    case ALLOC_PAIR_FRACTION:
        return results_compare(pair, "fraction",
                               varve_alloc_set_memory_fraction(pair->alloc, (double)op->bytes / 1000),
                               alloc_model_set_fraction(pair->model, (double)op->bytes / 1000));
    case ALLOC_PAIR_FAIL:
        if (!alloc_model_fail(pair->model, call, op->nth, op->count, op->error)) {
            return true;
        }
        return results_compare(pair, "fail",
                               varve_sim_fail(pair->device, call, op->nth, op->count, op->error), VARVE_OK);
    case ALLOC_PAIR_RESET_PEAK:
        alloc_model_reset_peak(pair->model);
        varve_alloc_reset_peak_stats(pair->alloc);
        return true;
    default:
        alloc_model_reset_accumulated(pair->model);
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
    alloc_model_events_clear(pair->model);
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
        is_equal = alloc_pair_fail(pair, "the model took %zu new segments, the allocator %zu",
                                   pair->place_count, pair->place_taken);
    }
    if (is_equal && pair->misses != pair->misses_taken) {
        is_equal = alloc_pair_fail(pair, "callbacks were called %u times, by the model %u times",
                                   pair->misses_taken, pair->misses);
    }
    return is_equal;
}

/* ---- runs ---- */

static bool pair_open(struct pair *pair, const struct alloc_pair_setup *setup)
{
    struct varve_sim_options sim = {.capacity_bytes = setup->capacity,
                                    .total_bytes = setup->capacity,
                                    .events_are_scripted = true,
                                    .segment_address = alloc_pair_segment_address,
                                    .reservation_address = alloc_pair_reservation_address,
                                    .address_context = pair};
    struct alloc_model_options model = {.config = setup->config,
                                        .memory_limit = setup->memory_limit,
                                        .capacity = setup->capacity,
                                        .total = setup->capacity,
                                        .place = alloc_pair_address_choose,
                                        .gone = alloc_pair_address_gone,
                                        .miss = setup->miss_frees ? miss_model : NULL,
                                        .context = pair};
    struct varve_alloc_options options;
    int error;

    pair->highest = UINT64_C(0x7f0000000000);
    pair->lowest = pair->highest;
    pair->recorder = (struct varve_alloc_recorder){.record = record_take, .context = pair};
    pair->model = alloc_model_open(&model);
    error = varve_sim_open(&sim, &pair->device, &pair->message);
    if (error) {
        return alloc_pair_fail(pair, "sim device: %s", pair->message.text);
    }
    varve_alloc_options_init(&options);
    options.device = pair->device;
    options.config = setup->config;
    options.memory_limit = setup->memory_limit;
    options.recorder = &pair->recorder;
    error = varve_alloc_open(&options, &pair->alloc, &pair->message);
    if (error) {
        return alloc_pair_fail(pair, "open: %s", pair->message.text);
    }
    if (setup->miss_frees && varve_alloc_add_free_callback(pair->alloc, miss_real, pair)) {
        return alloc_pair_fail(pair, "no callback");
    }
    return true;
}

static void pair_close(struct pair *pair)
{
    if (pair->alloc) {
        varve_alloc_close(pair->alloc);
        if (varve_sim_used(pair->device) != 0) {
            alloc_pair_fail(pair, "close left %" PRIu64 " bytes of the device in use",
                            varve_sim_used(pair->device));
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
            is_equal = alloc_pair_fail(&pair, "varve_alloc_check: %s", pair.message.text);
        }
        if (is_equal && (is_last || i % 64 == 63)) {
            alloc_model_check(pair.model);
            is_equal = alloc_pair_compare_state(&pair);
        }
    }
    pair_close(&pair);
    return !pair.is_different;
}
