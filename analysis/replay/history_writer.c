/* SPDX-License-Identifier: Apache-2.0 */
/* What stream and pool numbers mean is noted as they appear. */
#include "analysis/replay/history_writer.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/replay/replay_session.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <stdlib.h>
#include <string.h>

#define NUMBERS 65536

struct history_writer {
    struct varve_writer *database; /* borrowed; its errors stick until it finishes */
    const struct history *history;
    uint32_t *callsites;      /* of the history's stacks; 0: not written yet */
    uint32_t *symbols;        /* room for those of the deepest stack */
    uint8_t pools[NUMBERS];   /* numbers of this device that are in the database */
    int64_t begin_us, now_us; /* times do not go back in the database */
    bool has_no_times;        /* the order of events stands for them */
    const struct history_event *last;
    /* by address, of what was there before the history of this device and still is at its end */
    const struct history_device *started;
    struct map block_stacks, segment_stacks;
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
    return first;
}

struct history_writer *history_writer_new(struct varve_writer *database, const struct history *history)
{
    struct history_writer *writer = memory_resize(NULL, sizeof(*writer));
    size_t bytes = (history->stack_count + 1) * sizeof(*writer->callsites);
    int64_t first_us = first_time(history);
    bool has_no_times = first_us == INT64_MAX;
    *writer = (struct history_writer){.database = database,
                                      .history = history,
                                      .begin_us = has_no_times ? 0 : first_us,
                                      .has_no_times = has_no_times};
    if (has_no_times) {
        varve_writer_meta_text(database, "history.times", "order");
    }
    writer->callsites = memory_resize(NULL, bytes);
    memset(writer->callsites, 0, bytes);
    size_t depth = 0;
    for (size_t i = 0; i < history->stack_count; i++) {
        depth = history->stacks[i].frame_count > depth ? history->stacks[i].frame_count : depth;
    }
    writer->symbols = memory_resize(NULL, (depth + 1) * sizeof(*writer->symbols));
    return writer;
}

void history_writer_free(struct history_writer *writer)
{
    free(writer->callsites);
    free(writer->symbols);
    map_free(&writer->block_stacks);
    map_free(&writer->segment_stacks);
    free(writer);
}

uint32_t history_writer_callsite(struct history_writer *writer, uint32_t stack)
{
    const struct history *history = writer->history;
    if (stack == 0 || stack >= history->stack_count) {
        return 0;
    }
    if (writer->callsites[stack] != 0) {
        return writer->callsites[stack];
    }
    const struct history_stack *frames = &history->stacks[stack];
    for (uint32_t i = 0; i < frames->frame_count; i++) {
        const struct history_frame *frame = &history->frames[frames->first_frame + i];
        const char *file = history->texts[frame->file];
        struct varve_writer_symbol symbol = {
            .function = history->texts[frame->function],
            .file = file,
            .line = frame->line,
            .is_python = history_file_is_python(file),
        };
        writer->symbols[i] = varve_writer_symbol(writer->database, &symbol);
    }
    writer->callsites[stack] = varve_writer_callsite(writer->database, writer->symbols, frames->frame_count);
    return writer->callsites[stack];
}

static void note_stack(struct map *stacks, const struct map *begun, uint64_t addr, uint32_t stack)
{
    if (stack != 0 && map_find(begun, addr) == MAP_NONE) {
        map_put(stacks, addr, stack);
    }
}

/* Of what the history has no beginning, the state at its end has the stack. */
static void note_start_stacks(struct history_writer *writer, const struct history_device *device)
{
    struct map blocks = {0};
    struct map segments = {0};
    map_free(&writer->block_stacks);
    map_free(&writer->segment_stacks);
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        if (event->action == HISTORY_ALLOC || event->action == HISTORY_SEGMENT_ALLOC) {
            map_put(event->action == HISTORY_ALLOC ? &blocks : &segments, event->addr, 1);
        }
    }
    for (size_t i = 0; i < device->segment_count; i++) {
        note_stack(&writer->segment_stacks, &segments, device->segments[i].addr, device->segments[i].stack);
    }
    for (size_t i = 0; i < device->block_count; i++) {
        if (device->blocks[i].state != HISTORY_INACTIVE) {
            note_stack(&writer->block_stacks, &blocks, device->blocks[i].addr, device->blocks[i].stack);
        }
    }
    map_free(&blocks);
    map_free(&segments);
    writer->started = device;
}

uint32_t history_writer_start_callsite(struct history_writer *writer, const struct history_device *device,
                                       enum varve_kind kind, uint64_t addr)
{
    if (writer->started != device) {
        note_start_stacks(writer, device);
    }
    uint64_t stack = map_find(kind == VARVE_KIND_ALLOC ? &writer->block_stacks : &writer->segment_stacks, addr);
    return stack != MAP_NONE ? history_writer_callsite(writer, (uint32_t)stack) : 0;
}

int64_t history_writer_begin_us(const struct history_writer *writer)
{
    return writer->begin_us;
}

const uint32_t *history_writer_callsites(struct history_writer *writer)
{
    for (size_t i = 1; i < writer->history->stack_count; i++) {
        history_writer_callsite(writer, (uint32_t)i);
    }
    return writer->callsites;
}

bool history_writer_has_no_times(const struct history_writer *writer)
{
    return writer->has_no_times;
}

int64_t history_writer_time(struct history_writer *writer, const struct history_event *event)
{
    int64_t time_us = event->time_us - writer->begin_us;
    if (writer->has_no_times) {
        writer->now_us += event != writer->last;
        writer->last = event;
    } else if (event->time_us != 0 && time_us > writer->now_us && time_us < INT64_MAX / 1000) {
        writer->now_us = time_us;
    }
    return writer->now_us * 1000;
}

static struct varve_pool_id pool_id_at_start(const struct replay *replay, uint64_t addr)
{
    for (size_t i = 0; i < replay->inferred->start.segment_count; i++) {
        if (addr - replay->inferred->start.segments[i].addr < replay->inferred->start.segments[i].bytes) {
            return replay->inferred->start.segments[i].pool;
        }
    }
    return (struct varve_pool_id){0, 0};
}

/* A private pool's number first appears in a record of a request to it. */
static void history_writer_write_pool(struct history_writer *writer, const struct replay *replay,
                                      const struct varve_record *record)
{
    struct varve_pool_id id = {0, 0};
    writer->pools[record->pool] = 1;
    if (record->pool > 1) {
        id = replay->is_starting ? pool_id_at_start(replay, record->addr) : replay->inferred->pools.ids[replay->pool];
    }
    varve_writer_pool(writer->database, replay->index, record->pool, id.capture, id.user, record->pool % 2 != 0);
}

static void history_writer_record(void *context, struct replay *replay, const struct varve_record *record)
{
    struct history_writer *writer = context;
    const struct history_device *trace = replay->trace;
    struct varve_record copy = *record;
    size_t index = replay->cursor;
    int64_t ts_ns = writer->now_us * 1000;

    /* a merge belongs to the event that was just played, everything else to the one that is due */
    if (varve_record_kind(record) == VARVE_KIND_MERGE && replay->options->follow && index > 0) {
        index--;
    }
    copy.callsite =
        replay->is_starting
            ? history_writer_start_callsite(writer, trace, (enum varve_kind)varve_record_kind(record), record->addr)
            : 0;
    if (index < trace->event_count && !replay->is_starting) {
        ts_ns = history_writer_time(writer, &trace->events[index]);
        copy.callsite = history_writer_callsite(writer, trace->events[index].stack);
    }
    if (writer->pools[copy.pool] == 0) {
        history_writer_write_pool(writer, replay, record);
    }
    varve_writer_event(writer->database, &copy, ts_ns);
}

static void history_writer_end(void *context, struct replay *replay)
{
    struct history_writer *writer = context;
    varve_writer_device(writer->database, replay->index, NULL, replay->options->capacity);
    for (unsigned number = 0; number < replay->history->stream_count; number++) {
        if (replay->stream_of[number] != 0) {
            varve_writer_stream(writer->database, replay->index, number,
                                replay->history->streams[replay->stream_of[number] - 1U]);
        }
    }
    memset(writer->pools, 0, sizeof(writer->pools));
}

struct replay_output history_writer_output(struct history_writer *writer)
{
    return (struct replay_output){.record = history_writer_record, .end = history_writer_end, .context = writer};
}
