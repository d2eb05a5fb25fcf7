/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records number streams in the order of their first appearance, the history has an order of its own; a number is
 * learned when it first appears, which is in a record of a request for that stream.
 */
#include "analysis/replay/replay_session.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/replay/history_writer.h"
#include "analysis/history/infer_device.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define SEGMENT_ALIGNMENT (UINT64_C(2) << 20)

static void action_text(char *buffer, size_t bytes, unsigned action, uint64_t addr, uint64_t size, uint64_t stream)
{
    if (action == HISTORY_OOM) {
        snprintf(buffer, bytes, "oom of %" PRIu64 " bytes on stream 0x%" PRIx64, size, stream);
        return;
    }
    snprintf(buffer, bytes, "%s at 0x%" PRIx64 " of %" PRIu64 " bytes on stream 0x%" PRIx64,
             history_action_name(action), addr, size, stream);
}

void replay_event_text(const struct replay *replay, size_t index, char *buffer, size_t bytes)
{
    if (index >= replay->trace->event_count) {
        snprintf(buffer, bytes, "the end of the history");
        return;
    }
    const struct history_event *event = &replay->trace->events[index];
    action_text(buffer, bytes, event->action, event->addr, event->size, replay->history->streams[event->stream]);
}

void replay_differs(struct replay *replay, const char *format, ...)
{
    struct replay_mismatch *mismatch = &replay->mismatch;
    if (mismatch->is_set) {
        return;
    }
    mismatch->is_set = true;
    mismatch->event = replay->cursor;
    replay_event_text(replay, replay->cursor, mismatch->expected, sizeof(mismatch->expected));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mismatch->got, sizeof(mismatch->got), format, arguments);
    va_end(arguments);
}

/* The stream of the start's segment that holds an address. */
static uint16_t stream_at_start(const struct replay *replay, uint64_t addr)
{
    for (size_t i = 0; i < replay->inferred->start.segment_count; i++) {
        const struct varve_segment_info *segment = &replay->inferred->start.segments[i];
        if (addr - segment->addr < segment->bytes) {
            return history_find_stream(replay->history, segment->stream);
        }
    }
    return 0;
}

/* The history's stream behind a number; REPLAY_NONE if the allocator mixes streams up. */
static size_t replay_compare_stream_of(struct replay *replay, unsigned number, uint64_t addr)
{
    if (number >= replay->history->stream_count) {
        return REPLAY_NONE; /* more streams than the history has */
    }
    if (replay->stream_of[number] == 0) {
        uint16_t stream = replay->is_starting ? stream_at_start(replay, addr) : replay->stream;
        if (replay->number_of[stream] != 0) {
            return REPLAY_NONE; /* that stream has a number */
        }
        replay->stream_of[number] = stream + 1U;
        replay->number_of[stream] = number + 1U;
    }
    return replay->stream_of[number] - 1U;
}

/* What a request does that was refused: it waits for all streams, gives back, fails. */
static bool is_of_refusal(unsigned action)
{
    return action == HISTORY_FREE_COMPLETED || action == HISTORY_SEGMENT_FREE || action == HISTORY_SEGMENT_UNMAP ||
           action == HISTORY_OOM;
}

/* A free block served the request, or mapped memory beside one, and in the history something else. */
static bool passes_over(const struct replay *replay, const struct varve_record *record, unsigned action)
{
    const struct history_event *event = &replay->trace->events[replay->cursor];
    if (replay->cursor >= replay->trace->event_count || event->addr == record->addr) {
        return false;
    }
    return action == HISTORY_ALLOC ? event->action == HISTORY_ALLOC || event->action == HISTORY_SEGMENT_ALLOC ||
                                         event->action == HISTORY_SEGMENT_MAP
                                   : action == HISTORY_SEGMENT_MAP && event->action == HISTORY_SEGMENT_MAP;
}

static void differ_by_record(struct replay *replay, const struct varve_record *record, unsigned action, uint64_t size,
                             size_t stream)
{
    char text[160];
    action_text(text, sizeof(text), action, record->addr, size,
                stream == REPLAY_NONE ? UINT64_MAX : replay->history->streams[stream]);
    replay_differs(replay, "%s", text);
}

/* The free block that served the request: of one that was given out whole the record has the rounded size. */
static uint64_t found_units(const struct varve_record *record)
{
    uint64_t whole = record->size / VARVE_ALLOC_FOUND_UNIT, noted = record->arg >> 32;
    return noted < whole ? whole : noted;
}

static void count_reserved(struct replay *replay, const struct history_event *event)
{
    const uint16_t *pools = replay->inferred->pools.of_event;
    if (pools == NULL) {
        return;
    }
    int64_t *reserved = &replay->pools[pools[replay->cursor]].reserved;
    if (event->action == HISTORY_SEGMENT_ALLOC || event->action == HISTORY_SEGMENT_MAP) {
        *reserved += (int64_t)event->size;
    } else if (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP) {
        *reserved -= (int64_t)event->size;
    }
}

void replay_compare_record(void *context, const struct varve_record *record)
{
    struct replay *replay = context;
    unsigned action = history_action_of_kind(varve_record_kind(record));
    if (replay->options->output.record != NULL) {
        replay->options->output.record(replay->options->output.context, replay, record);
    }
    if (action == HISTORY_ACTION_LIMIT || replay->mismatch.is_set) {
        return;
    }
    if (action == HISTORY_ALLOC) {
        replay->landed = (struct replay_landing){record->addr, found_units(record), record->requested};
    } else if (action == HISTORY_SEGMENT_FREE || action == HISTORY_SEGMENT_UNMAP) {
        replay->landed = (struct replay_landing){.addr = record->addr};
    }
    size_t stream = replay_compare_stream_of(replay, varve_record_stream(record), record->addr);
    if (replay->is_starting || !replay->options->follow) {
        return;
    }
    uint64_t size = action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    const struct history_event *event = &replay->trace->events[replay->cursor];
    if (replay->cursor >= replay->trace->event_count || event->action != action || event->size != size ||
        event->stream != stream || (event->addr != record->addr && action != HISTORY_OOM)) {
        differ_by_record(replay, record, action, size, stream);
        replay->passes_over = passes_over(replay, record, action);
        replay->limit_is_small =
            is_of_refusal(action) && (replay->cursor >= replay->trace->event_count || !is_of_refusal(event->action));
        return;
    }
    count_reserved(replay, event);
    replay->cursor = replay_decision(replay->trace, replay->cursor + 1);
}

/* Not following: segments of the start have their addresses, all others come behind them. */
static uint64_t replay_compare_count_up(struct replay *replay, uint64_t bytes)
{
    uint64_t addr = replay->next_addr;
    replay->next_addr += (bytes + SEGMENT_ALIGNMENT - 1) / SEGMENT_ALIGNMENT * SEGMENT_ALIGNMENT;
    return addr;
}

/* The device said no: not a memory limit, since that is tested before the device is asked. */
static bool is_refused(const struct replay *replay, const struct history_event *event)
{
    return replay->limit == 0 && (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP ||
                                  event->action == HISTORY_FREE_COMPLETED || event->action == HISTORY_OOM);
}

int replay_segment_addr(void *context, uint64_t bytes, uint64_t stream,
                        const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    struct replay *replay = context;
    const struct history_event *event = &replay->trace->events[replay->cursor];
    (void)reservation;
    if (replay->is_starting) {
        while (replay->inferred->start.segments[replay->start_placed].is_expandable) {
            replay->start_placed++;
        }
        *addr_out = replay->inferred->start.segments[replay->start_placed++].addr;
        return VARVE_OK;
    }
    if (!replay->options->follow) {
        *addr_out = replay_compare_count_up(replay, bytes);
        return VARVE_OK;
    }
    if (replay->cursor < replay->trace->event_count) {
        if (event->action == HISTORY_SEGMENT_ALLOC && event->size == bytes &&
            replay->history->streams[event->stream] == stream) {
            *addr_out = event->addr;
            return VARVE_OK;
        }
        if (is_refused(replay, event)) {
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    replay_differs(replay, "segment_alloc of %" PRIu64 " bytes on stream 0x%" PRIx64, bytes, stream);
    return VARVE_ERROR_CORRUPT;
}

int replay_grant(void *context)
{
    struct replay *replay = context;
    bool follows = replay->options->follow && !replay->is_starting && replay->cursor < replay->trace->event_count;
    return follows && is_refused(replay, &replay->trace->events[replay->cursor]) ? VARVE_ERROR_NO_MEMORY : VARVE_OK;
}

/* The next of the start's reservations of that pool, stream and class, if it has any. */
static bool find_start_reservation(struct replay *replay, const struct varve_device_reservation *wanted,
                                   uint64_t *addr_out)
{
    for (size_t i = 0; i < replay->inferred->reservations.count; i++) {
        const struct replay_reservation *reservation = &replay->inferred->reservations.items[i];
        if (reservation->is_start && !replay->is_reserved[i] && reservation->is_small == wanted->is_small &&
            replay->history->streams[reservation->stream] == wanted->stream &&
            reservation->pool.capture == wanted->pool_id[0] && reservation->pool.user == wanted->pool_id[1]) {
            replay->is_reserved[i] = true;
            *addr_out = reservation->base;
            return true;
        }
    }
    return false;
}

int replay_reservation_addr(void *context, uint64_t bytes, uint64_t stream,
                            const struct varve_device_reservation *reservation, uint64_t *addr_out)
{
    struct replay *replay = context;
    const struct history_event *event = &replay->trace->events[replay->cursor];
    if (replay->is_starting) {
        return find_start_reservation(replay, reservation, addr_out) ? VARVE_OK : VARVE_ERROR_INVALID;
    }
    if (!replay->options->follow) {
        *addr_out = replay_compare_count_up(replay, bytes);
        return VARVE_OK;
    }
    if (replay->cursor < replay->trace->event_count) {
        if (event->action == HISTORY_SEGMENT_MAP && replay->history->streams[event->stream] == stream) {
            *addr_out = event->addr;
            return VARVE_OK;
        }
        if (is_refused(replay, event)) {
            return VARVE_ERROR_NO_MEMORY;
        }
    }
    replay_differs(replay, "a new expandable segment on stream 0x%" PRIx64, stream);
    return VARVE_ERROR_CORRUPT;
}

static bool differ(struct replay_result *result, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool differ(struct replay_result *result, const char *format, ...)
{
    va_list arguments;
    if (result->difference[0] == '\0') {
        va_start(arguments, format);
        vsnprintf(result->difference, sizeof(result->difference), format, arguments);
        va_end(arguments);
    }
    return false;
}

static const char *state_text(unsigned state)
{
    static const char *const texts[] = {
        [HISTORY_INACTIVE] = "inactive",
        [HISTORY_ACTIVE_ALLOCATED] = "active_allocated",
        [HISTORY_ACTIVE_PENDING_FREE] = "active_pending_free",
    };
    return state < sizeof(texts) / sizeof(texts[0]) ? texts[state] : "unknown";
}

static unsigned replay_compare_state_of(enum varve_block_state state)
{
    switch (state) {
    case VARVE_BLOCK_ACTIVE_ALLOCATED:
        return HISTORY_ACTIVE_ALLOCATED;
    case VARVE_BLOCK_ACTIVE_PENDING_FREE:
        return HISTORY_ACTIVE_PENDING_FREE;
    default:
        return HISTORY_INACTIVE;
    }
}

static bool equal_block(const struct replay *replay, const struct history_block *want,
                        const struct varve_block_info *got, struct replay_result *result)
{
    bool is_free = want->state == HISTORY_INACTIVE;
    bool is_known = !replay->history->rests.is_known || (want->keys & HISTORY_HAS_REQUESTED) != 0;
    bool compares_request = is_known && (!is_free || replay->inferred->start.segment_count == 0);
    if (want->addr == got->addr && want->size == got->bytes && want->state == replay_compare_state_of(got->state) &&
        (!compares_request || want->requested == got->requested)) {
        return true;
    }
    return differ(result,
                  "block 0x%" PRIx64 ", %" PRIu64 " bytes (%" PRIu64 " requested), %s; the replay has 0x%" PRIx64
                  ", %" PRIu64 " bytes (%" PRIu64 " requested), %s",
                  want->addr, want->size, want->requested, state_text(want->state), got->addr, got->bytes,
                  got->requested, state_text(replay_compare_state_of(got->state)));
}

static bool equal_segment(const struct replay *replay, const struct history_segment *want,
                          const struct varve_segment_info *got, const struct varve_alloc_snapshot *snapshot,
                          struct replay_result *result)
{
    if (want->addr != got->addr || want->size != got->bytes || replay->history->streams[want->stream] != got->stream ||
        want->is_small != got->is_small || want->is_expandable != got->is_expandable) {
        return differ(result,
                      "segment 0x%" PRIx64 ", %" PRIu64 " bytes; the replay has 0x%" PRIx64 ", %" PRIu64
                      " bytes there, or another stream or kind",
                      want->addr, want->size, got->addr, got->bytes);
    }
    if (want->block_count != got->block_count) {
        return differ(result, "segment 0x%" PRIx64 ": %zu blocks; the replay has %zu", want->addr, want->block_count,
                      got->block_count);
    }
    for (size_t i = 0; i < want->block_count; i++) {
        if (!equal_block(replay, &replay->trace->blocks[want->first_block + i], &snapshot->blocks[got->first_block + i],
                         result)) {
            return false;
        }
    }
    return true;
}

int replay_final(struct replay *replay, struct replay_result *result)
{
    const struct history_device *trace = replay->trace;
    struct varve_alloc_snapshot snapshot;
    int error = varve_alloc_snapshot(replay->alloc, &snapshot);
    if (error != VARVE_OK) {
        return error;
    }
    bool is_equal = true;
    for (size_t i = 0; i < trace->segment_count && i < snapshot.segment_count && is_equal; i++) {
        is_equal = equal_segment(replay, &trace->segments[i], &snapshot.segments[i], &snapshot, result);
    }
    if (is_equal && trace->segment_count != snapshot.segment_count) {
        is_equal = differ(result, "%zu segments; the replay has %zu", trace->segment_count, snapshot.segment_count);
    }
    result->segments_equal &= is_equal;
    varve_alloc_snapshot_free(&snapshot);
    return VARVE_OK;
}
