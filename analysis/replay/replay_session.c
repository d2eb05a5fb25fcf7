/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing here is global, and memory that is not there is an error: sessions of one inference may run on any
 * number of threads.
 */
#include "analysis/replay/replay_session.h"

#include "analysis/replay/replay_emit.h"

#include <stdlib.h>

#define GIB (UINT64_C(1) << 30)
#define ADDR_FIRST UINT64_C(0x7f0000000000)

static void note_uses(struct replay *replay)
{
    const uint16_t *pools = replay->inferred->pools.of_event;
    const struct history_event *events = replay->trace->events;
    for (size_t i = 0; pools != NULL && i < replay->trace->event_count; i++) {
        if (events[i].action == HISTORY_ALLOC || events[i].action == HISTORY_OOM) {
            replay->pools[pools[i]].used_until = i + 1;
        }
    }
}

static int make_tables(struct replay *replay)
{
    size_t streams = replay->history->stream_count;
    replay->stream_of = calloc(streams, sizeof(*replay->stream_of));
    replay->number_of = calloc(streams, sizeof(*replay->number_of));
    replay->pools = calloc(replay->inferred->pools.count + 1, sizeof(*replay->pools));
    replay->is_reserved = calloc(replay->inferred->reservations.count + 1, sizeof(*replay->is_reserved));
    if (replay->stream_of == NULL || replay->number_of == NULL || replay->pools == NULL ||
        replay->is_reserved == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    note_uses(replay);
    /* number 0 is the default stream on both sides */
    replay->stream_of[0] = 1;
    replay->number_of[0] = 1;
    return VARVE_OK;
}

static int replay_session_open_device(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    bool is_placed = options->follow || replay->inferred->start.segment_count > 0;
    struct varve_sim_options sim = {
        .index = (int)replay->index,
        .capacity_bytes = options->follow ? 0 : options->capacity,
        .total_bytes = replay->inferred->total,
        .has_latency = true, /* what the calls would have taken is what its clock says in the end */
        .events_are_scripted = true,
        .places_as_cuda = !options->counts_addresses,
        .segment_address = is_placed ? replay_segment_addr : NULL,
        .reservation_address = is_placed ? replay_reservation_addr : NULL,
        .grant = options->follow ? replay_grant : NULL,
        .address_context = replay,
    };
    replay->next_addr = ADDR_FIRST;
    for (size_t i = 0; i < replay->inferred->start.segment_count; i++) {
        uint64_t end = replay->inferred->start.segments[i].addr + replay->inferred->start.segments[i].bytes;

        /* leave what an expandable segment may grow to */
        end += replay->inferred->start.segments[i].is_expandable ? 2 * replay->inferred->total : 0;
        replay->next_addr = end > replay->next_addr ? (end + GIB) / GIB * GIB : replay->next_addr;
    }
    return varve_sim_open(&sim, &replay->device, message);
}

static int replay_session_open_allocator(struct replay *replay, struct varve_message *message)
{
    const struct replay_options *options = replay->options;
    struct varve_alloc_options alloc;
    varve_alloc_options_init(&alloc);
    int result = replay_config(replay->history, options->conf, &alloc.config, message);
    VARVE_THEN(result, replay_session_open_device(replay, message));
    if (result != VARVE_OK) {
        return result;
    }
    if (options->capacity == 0 && options->conf == NULL) {
        alloc.config.memory_fraction = 1; /* of what, is not known */
    }
    replay->releases_lock = alloc.config.release_lock_on_cudamalloc;
    replay->limit = options->memory_limit;
    if (replay->limit == 0 && alloc.config.memory_fraction < 1) {
        replay->limit = (uint64_t)(alloc.config.memory_fraction * (double)replay->inferred->total);
    }
    if (replay->limit == 0 && options->follow) {
        replay->limit = replay->inferred->limit.used;
    }
    replay->recorder.record = options->emit != NULL ? replay_emit_record : replay_compare_record;
    replay->recorder.context = replay;
    alloc.device = replay->device;
    alloc.policy = options->policy;
    alloc.plan = options->plans != NULL ? &options->plans[replay->index] : NULL;
    alloc.memory_limit = replay->limit;
    alloc.recorder =
        options->follow || options->output.record != NULL || options->emit != NULL ? &replay->recorder : NULL;
    return varve_alloc_open(&alloc, &replay->alloc, message);
}

int replay_session_open(struct replay *replay, const struct history *history, unsigned index,
                        const struct replay_device *inferred, const struct replay_options *options,
                        struct varve_message *message)
{
    *replay = (struct replay){
        .history = history, .index = index, .inferred = inferred, .trace = &inferred->trace, .options = options};
    int result = make_tables(replay);
    return result == VARVE_OK ? replay_session_open_allocator(replay, message) : result;
}

void replay_session_close(struct replay *replay)
{
    if (replay->alloc != NULL) {
        varve_alloc_close(replay->alloc);
    }
    if (replay->device != NULL) {
        replay->device->ops->close(replay->device);
    }
    free(replay->stream_of);
    free(replay->number_of);
    free(replay->pools);
    free(replay->is_reserved);
    free(replay->predicted.items);
    free(replay->cached.items);
    free(replay->emptied);
}

int replay_pool_enter(struct replay *replay, uint16_t pool)
{
    if (pool == 0) {
        return VARVE_OK;
    }
    return varve_alloc_begin_allocate_to_pool(replay->alloc, replay->inferred->pools.ids[pool], NULL, NULL);
}

int replay_pool_leave(struct replay *replay, uint16_t pool)
{
    if (pool == 0) {
        return VARVE_OK;
    }
    struct replay_pool_state *left = &replay->pools[pool];
    struct varve_pool_id id = replay->inferred->pools.ids[pool];
    int result = varve_alloc_end_allocate_to_pool(replay->alloc, id);
    if (result != VARVE_OK || !left->is_made || left->is_freeable) {
        left->is_made = true;
        left->is_freeable = false; /* the reference of this visit keeps it */
        return result;
    }
    return varve_alloc_release_pool(replay->alloc, id);
}
