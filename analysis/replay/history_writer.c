/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a replay go to a database: all of them, also the splits and merges that the history never
 * told, at the times and with the call sites of the events that they belong to. What stream and pool numbers
 * mean is noted as they appear. Called by compare.c with each record.
 */
#include "analysis/replay/replay.h"

#include "analysis/output/memory.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS 65536

struct replay_sink {
    struct varve_writer *writer; /* borrowed; its errors stick until it finishes */
    const struct history *history;
    uint32_t *callsites;      /* of the history's stacks; 0: not written yet */
    uint8_t pools[NUMBERS];   /* numbers of this device that have been told */
    int64_t begin_us, now_us; /* times do not go back in the database */
};

static int64_t first_time(const struct history *history)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < history->device_count; i++) {
        const struct history_device *device = &history->devices[i];
        size_t index = 0;

        while (index < device->event_count && device->events[index].time_us == 0) {
            index++;
        }
        if (index < device->event_count && device->events[index].time_us < first) {
            first = device->events[index].time_us;
        }
    }
    return first == INT64_MAX ? 0 : first;
}

struct replay_sink *replay_sink_new(struct varve_writer *writer, const struct history *history)
{
    struct replay_sink *sink = memory_resize(NULL, sizeof(*sink));
    size_t bytes = (history->stack_count + 1) * sizeof(*sink->callsites);

    *sink = (struct replay_sink){.writer = writer, .history = history, .begin_us = first_time(history)};
    sink->callsites = memory_resize(NULL, bytes);
    memset(sink->callsites, 0, bytes);
    return sink;
}

void replay_sink_free(struct replay_sink *sink)
{
    free(sink->callsites);
    free(sink);
}

uint32_t replay_sink_callsite(struct replay_sink *sink, uint32_t stack)
{
    const struct history *history = sink->history;
    const struct history_stack *frames;
    uint32_t *symbols;

    if (stack == 0 || stack >= history->stack_count) {
        return 0;
    }
    if (sink->callsites[stack] != 0) {
        return sink->callsites[stack];
    }
    frames = &history->stacks[stack];
    symbols = memory_resize(NULL, (frames->frame_count + 1) * sizeof(*symbols));
    for (uint32_t i = 0; i < frames->frame_count; i++) {
        const struct history_frame *frame = &history->frames[frames->first_frame + i];
        const char *file = history->texts[frame->file];
        size_t length = strlen(file);
        struct varve_writer_symbol symbol = {
            .function = history->texts[frame->function],
            .file = file,
            .line = frame->line,
            .is_python = length > 3 && strcmp(file + length - 3, ".py") == 0,
        };

        symbols[i] = varve_writer_symbol(sink->writer, &symbol);
    }
    sink->callsites[stack] = varve_writer_callsite(sink->writer, symbols, frames->frame_count);
    free(symbols);
    return sink->callsites[stack];
}

int64_t replay_sink_begin(const struct replay_sink *sink)
{
    return sink->begin_us;
}

const uint32_t *replay_sink_callsites(struct replay_sink *sink)
{
    for (size_t i = 1; i < sink->history->stack_count; i++) {
        replay_sink_callsite(sink, (uint32_t)i);
    }
    return sink->callsites;
}

int64_t replay_sink_time(struct replay_sink *sink, const struct history_event *event)
{
    int64_t time_us = event->time_us - sink->begin_us;

    if (event->time_us != 0 && time_us > sink->now_us && time_us < INT64_MAX / 1000) {
        sink->now_us = time_us;
    }
    return sink->now_us * 1000;
}

static struct varve_pool_id pool_id_at_start(const struct replay *replay, uint64_t addr)
{
    for (size_t i = 0; i < replay->start.segment_count; i++) {
        if (addr - replay->start.segments[i].addr < replay->start.segments[i].bytes) {
            return replay->start.segments[i].pool;
        }
    }
    return (struct varve_pool_id){0, 0};
}

/* A private pool's number first appears in a record of a request to it. */
static void tell_pool(struct replay *replay, const struct varve_record *record)
{
    struct replay_sink *sink = replay->options->sink;
    struct varve_pool_id id = {0, 0};

    sink->pools[record->pool] = 1;
    if (record->pool > 1) {
        id = replay->is_starting ? pool_id_at_start(replay, record->addr)
                                 : replay->pools.pools[replay->pool].id;
    }
    varve_writer_pool(sink->writer, replay->index, record->pool, id.capture, id.user, record->pool % 2 != 0);
}

void replay_sink_take(struct replay *replay, const struct varve_record *record)
{
    struct replay_sink *sink = replay->options->sink;
    const struct history_device *trace = replay->trace;
    struct varve_record copy = *record;
    size_t index = replay->cursor;
    int64_t ts_ns = sink->now_us * 1000;

    /* a merge belongs to the event that was just played, everything else to the one that is due */
    if (varve_record_kind(record) == VARVE_KIND_MERGE && replay->options->follow && index > 0) {
        index--;
    }
    copy.callsite = 0;
    if (index < trace->event_count && !replay->is_starting) {
        ts_ns = replay_sink_time(sink, &trace->events[index]);
        copy.callsite = replay_sink_callsite(sink, trace->events[index].stack);
    }
    if (sink->pools[copy.pool] == 0) {
        tell_pool(replay, record);
    }
    varve_writer_event(sink->writer, &copy, ts_ns);
}

void replay_sink_end(struct replay *replay)
{
    struct replay_sink *sink = replay->options->sink;

    varve_writer_device(sink->writer, replay->index, NULL, replay->options->capacity);
    for (unsigned number = 0; number < replay->history->stream_count; number++) {
        if (replay->stream_of[number] != 0) {
            varve_writer_stream(sink->writer, replay->index, number,
                                replay->history->streams[replay->stream_of[number] - 1U]);
        }
    }
    memset(sink->pools, 0, sizeof(sink->pools));
}
