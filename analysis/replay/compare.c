/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Record against event: every record of the allocator that PyTorch's history has too must be the event at the
 * cursor, in action, address, size and stream, and moves the cursor on. Here are also the addresses that the
 * simulated device gives to segments: those that the history has next.
 *
 * Records number streams in the order of their first appearance, the history has an order of its own; a
 * number is learned when it first appears, which is in a record of a request for that stream.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define PLACE_ALIGNMENT (UINT64_C(2) << 20)

static void action_text(char *buffer, size_t bytes, unsigned action, uint64_t addr, uint64_t size,
                        uint64_t stream)
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
    const struct history_event *event;

    if (index >= replay->trace->event_count) {
        snprintf(buffer, bytes, "the end of the history");
        return;
    }
    event = &replay->trace->events[index];
    action_text(buffer, bytes, event->action, event->addr, event->size,
                replay->history->streams[event->stream]);
}

void replay_differs(struct replay *replay, const char *format, ...)
{
    struct replay_mismatch *mismatch = &replay->mismatch;
    va_list arguments;

    if (mismatch->is_set) {
        return;
    }
    mismatch->is_set = true;
    mismatch->event = replay->cursor;
    replay_event_text(replay, replay->cursor, mismatch->expected, sizeof(mismatch->expected));
    va_start(arguments, format);
    vsnprintf(mismatch->got, sizeof(mismatch->got), format, arguments);
    va_end(arguments);
}

void replay_compare_open(struct replay *replay)
{
    size_t count = replay->history->stream_count;

    replay->stream_of = memory_resize(NULL, count * sizeof(*replay->stream_of));
    replay->number_of = memory_resize(NULL, count * sizeof(*replay->number_of));
    for (size_t i = 0; i < count; i++) {
        replay->stream_of[i] = 0;
        replay->number_of[i] = 0;
    }
    /* number 0 is the default stream on both sides */
    replay->stream_of[0] = 1;
    replay->number_of[0] = 1;
}

void replay_compare_close(struct replay *replay)
{
    free(replay->stream_of);
    free(replay->number_of);
}

/* The stream of the start's segment that holds an address. */
static uint16_t stream_at_start(const struct replay *replay, uint64_t addr)
{
    for (size_t i = 0; i < replay->start.segment_count; i++) {
        const struct varve_segment_info *segment = &replay->start.segments[i];

        if (addr - segment->addr < segment->bytes) {
            for (size_t stream = 0; stream < replay->history->stream_count; stream++) {
                if (replay->history->streams[stream] == segment->stream) {
                    return (uint16_t)stream;
                }
            }
        }
    }
    return 0;
}

/* The history's stream behind a number; REPLAY_NONE if the allocator mixes streams up. */
static size_t stream_of(struct replay *replay, unsigned number, uint64_t addr)
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

static void differ_by_record(struct replay *replay, const struct varve_record *record, unsigned action,
                             uint64_t size, size_t stream)
{
    char text[160];

    action_text(text, sizeof(text), action, record->addr, size,
                stream == REPLAY_NONE ? UINT64_MAX : replay->history->streams[stream]);
    replay_differs(replay, "%s", text);
}

void replay_take(void *context, const struct varve_record *record)
{
    struct replay *replay = context;
    unsigned action = history_action_of_kind(varve_record_kind(record));
    const struct history_event *event;
    uint64_t size;
    size_t stream;

    if (replay->options->sink != NULL) {
        replay_sink_take(replay, record);
    }
    if (action == HISTORY_ACTION_LIMIT || replay->mismatch.is_set) {
        return;
    }
    if (action == HISTORY_ALLOC) {
        replay->landed = (struct replay_landing){record->addr, record->arg >> 32, record->requested};
    } else if (action == HISTORY_SEGMENT_FREE || action == HISTORY_SEGMENT_UNMAP) {
        replay->landed = (struct replay_landing){.addr = record->addr};
    }
    stream = stream_of(replay, varve_record_stream(record), record->addr);
    if (replay->is_starting || !replay->options->follow) {
        return;
    }
    size = action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    event = &replay->trace->events[replay->cursor];
    if (replay->cursor >= replay->trace->event_count || event->action != action || event->size != size ||
        event->stream != stream || (event->addr != record->addr && action != HISTORY_OOM)) {
        differ_by_record(replay, record, action, size, stream);
        return;
    }
    replay->cursor = replay_decision(replay->trace, replay->cursor + 1);
}

/* Not following: segments of the start have their places, all others come behind them. */
static uint64_t count_up(struct replay *replay, uint64_t bytes)
{
    uint64_t addr = replay->next_addr;

    replay->next_addr += (bytes + PLACE_ALIGNMENT - 1) / PLACE_ALIGNMENT * PLACE_ALIGNMENT;
    return addr;
}

/* The device said no: not a memory limit, since that is tested before the device is asked. */
static bool is_refused(const struct replay *replay, const struct history_event *event)
{
    return replay->limit == 0 &&
           (event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP ||
            event->action == HISTORY_FREE_COMPLETED || event->action == HISTORY_OOM);
}

int replay_place_segment(void *context, uint64_t bytes, uint64_t stream,
                         const struct varve_device_place *place, uint64_t *addr_out)
{
    struct replay *replay = context;
    const struct history_event *event = &replay->trace->events[replay->cursor];

    (void)place;
    if (replay->is_starting) {
        while (replay->start.segments[replay->start_placed].is_expandable) {
            replay->start_placed++;
        }
        *addr_out = replay->start.segments[replay->start_placed++].addr;
        return VARVE_OK;
    }
    if (!replay->options->follow) {
        *addr_out = count_up(replay, bytes);
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

/* The next of the start's reservations in that place, if it has any. */
static bool find_start_place(struct replay *replay, const struct varve_device_place *wanted,
                             uint64_t *addr_out)
{
    for (size_t i = 0; i < replay->places.count; i++) {
        struct replay_place *place = &replay->places.items[i];

        if (place->is_start && !place->is_taken && place->is_small == wanted->is_small &&
            replay->history->streams[place->stream] == wanted->stream &&
            place->pool.capture == wanted->pool_id[0] && place->pool.user == wanted->pool_id[1]) {
            place->is_taken = true;
            *addr_out = place->base;
            return true;
        }
    }
    return false;
}

int replay_place_reservation(void *context, uint64_t bytes, uint64_t stream,
                             const struct varve_device_place *place, uint64_t *addr_out)
{
    struct replay *replay = context;
    const struct history_event *event = &replay->trace->events[replay->cursor];

    if (replay->is_starting) {
        return find_start_place(replay, place, addr_out) ? VARVE_OK : VARVE_ERROR_INVALID;
    }
    if (!replay->options->follow) {
        *addr_out = count_up(replay, bytes);
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
