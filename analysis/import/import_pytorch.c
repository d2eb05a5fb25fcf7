/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history of PyTorch's allocator as events of a trace database. The snapshot has no block sizes before
 * its end, so an event has the requested bytes instead, and `meta` says so; what was allocated before
 * the history began comes first, marked as inherited. Devices have rings of their own: their events are put
 * in one order by time. Called by cli/command_import.c.
 */
#include "analysis/import/import.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/history_database.h"
#include "analysis/base/input_stream.h"
#include "analysis/snapshot/snapshot_read.h"
#include "analysis/history/history_read.h"
#include "analysis/base/progress.h"
#include "analysis/replay/history_writer.h"
#include "analysis/history/infer_device.h"
#include "base/error.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>

#define PROGRESS_EVENTS 65536
#define SMALL_MAX (UINT64_C(1) << 20)
#define SMALL_SEGMENT (UINT64_C(2) << 20)
#define LARGE_SEGMENT (UINT64_C(20) << 20)

struct import {
    const struct history *history;
    struct varve_writer *writer;
    struct history_writer *out; /* call sites and times */
    uint64_t dev_seq[256];
    struct history_numbers moved[256]; /* events that get another time */
    struct import_pools *pools;
};

static struct varve_record new_record(struct import *import, unsigned device, enum varve_kind kind, uint16_t stream)
{
    return (struct varve_record){
        .id_stream = (uint64_t)stream << 48,
        .dev_seq_kind_flags = varve_record_tag(++import->dev_seq[device], kind, 0),
        .device = (uint8_t)device,
    };
}

/* Small and large pool, as far as sizes show: bit 0 of the number. */
static bool import_pytorch_is_small(const struct history_event *event)
{
    switch (event->action) {
    case HISTORY_SEGMENT_ALLOC:
    case HISTORY_SEGMENT_FREE:
        return event->size == SMALL_SEGMENT;
    case HISTORY_SEGMENT_MAP:
    case HISTORY_SEGMENT_UNMAP:
        return event->size % LARGE_SEGMENT != 0;
    default:
        return event->size <= SMALL_MAX;
    }
}

static enum varve_cause import_pytorch_cause_of(const struct history_device *device, size_t index)
{
    if (device->events[index].action != HISTORY_ALLOC) {
        return VARVE_CAUSE_NONE;
    }
    return index > 0 && (device->events[index - 1].action == HISTORY_SEGMENT_ALLOC ||
                         device->events[index - 1].action == HISTORY_SEGMENT_MAP)
               ? VARVE_CAUSE_NEW_SEGMENT
               : VARVE_CAUSE_CACHE;
}

static void note_moved(struct history_numbers *moved, size_t index)
{
    *MEMORY_ADD(moved->items, moved->count, moved->capacity) = index;
}

static void import_pytorch_write_event(struct import *import, unsigned number, size_t index)
{
    const struct history_device *device = &import->history->devices[number];
    const struct history_event *event = &device->events[index];
    if (history_action_kind(event->action) == VARVE_KIND_NONE) {
        return; /* a snapshot was taken */
    }
    struct varve_record record = new_record(import, number, history_action_kind(event->action), event->stream);
    record.addr = event->action == HISTORY_OOM ? 0 : event->addr;
    record.size = event->size;
    record.requested = event->action <= HISTORY_SEGMENT_ALLOC ? event->size : 0;
    record.pool = import_pools_of_event(import->pools, number, index, import_pytorch_is_small(event));
    record.cause = (uint8_t)import_pytorch_cause_of(device, index);
    import_pools_write(import->pools, import->writer, number, record.pool);
    record.callsite = history_writer_callsite(import->out, event->stack);
    int64_t ts_ns = history_writer_time(import->out, event);
    if (!history_writer_has_no_times(import->out) &&
        history_writer_begin_us(import->out) + ts_ns / 1000 != event->time_us) {
        note_moved(&import->moved[number], index);
    }
    varve_writer_event(import->writer, &record, ts_ns);
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

static void write_start_segment(struct import *import, unsigned number, const struct varve_alloc_snapshot *start,
                                const struct varve_segment_info *segment)
{
    const struct history_device *device = &import->history->devices[number];
    uint16_t stream = stream_number(import->history, segment->stream);
    uint16_t pool = import_pools_of_segment(import->pools, number, segment);
    import_pools_write(import->pools, import->writer, number, pool);
    struct varve_record record =
        new_record(import, number, segment->is_expandable ? VARVE_KIND_SEGMENT_MAP : VARVE_KIND_SEGMENT_ALLOC, stream);
    record.addr = segment->addr;
    record.size = segment->bytes;
    record.requested = segment->is_expandable ? 0 : segment->bytes;
    record.pool = pool;
    record.cause = VARVE_CAUSE_INHERITED;
    record.callsite = history_writer_start_callsite(import->out, device, VARVE_KIND_SEGMENT_ALLOC, segment->addr);
    varve_writer_event(import->writer, &record, 0);
    for (size_t i = 0; i < segment->block_count; i++) {
        const struct varve_block_info *block = &start->blocks[segment->first_block + i];
        if (block->state == VARVE_BLOCK_INACTIVE) {
            continue;
        }
        record = new_record(import, number, VARVE_KIND_ALLOC, stream);
        record.addr = block->addr;
        record.size = block->requested;
        record.requested = block->requested;
        record.pool = pool;
        record.cause = VARVE_CAUSE_INHERITED;
        record.callsite = history_writer_start_callsite(import->out, device, VARVE_KIND_ALLOC, block->addr);
        varve_writer_event(import->writer, &record, 0);
    }
}

static int write_start(struct import *import, unsigned number, struct import_result *result,
                       struct varve_message *message)
{
    const struct history_device *device = &import->history->devices[number];
    uint64_t reserved;
    int error = replay_reserved_at_start(device, &reserved, message);
    if (error != VARVE_OK || reserved == 0) {
        return error;
    }
    struct varve_alloc_snapshot start = {0};
    const struct varve_alloc_snapshot *known = import_pools_start(import->pools, number);
    if (known == NULL) {
        error = replay_start_of(import->history, device, &start, message);
        known = &start;
    }
    for (size_t i = 0; i < known->segment_count && error == VARVE_OK; i++) {
        write_start_segment(import, number, known, &known->segments[i]);
    }
    result->starts_late = true;
    free(start.segments);
    free(start.blocks);
    return error;
}

/* The device whose next event is the earliest. */
static size_t earliest(const struct history *history, const size_t *next)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < history->device_count; i++) {
        if (next[i] < history->devices[i].event_count &&
            (best == SIZE_MAX ||
             history->devices[i].events[next[i]].time_us < history->devices[best].events[next[best]].time_us)) {
            best = i;
        }
    }
    return best;
}

static void import_pytorch_write_events(struct import *import, struct progress *progress)
{
    const struct history *history = import->history;
    uint64_t total = 0;
    for (size_t i = 0; i < history->device_count; i++) {
        total += history->devices[i].event_count;
    }
    size_t next[256] = {0};
    uint64_t done = 0;
    for (size_t device = earliest(history, next); device != SIZE_MAX; device = earliest(history, next)) {
        import_pytorch_write_event(import, (unsigned)device, next[device]++);
        if (progress != NULL && ++done % PROGRESS_EVENTS == 0) {
            progress_step(progress, "importing", done, total);
        }
    }
}

static void import_pytorch_write_end(struct import *import, struct import_result *result)
{
    const struct history *history = import->history;
    const uint32_t *callsites = history_writer_callsites(import->out);
    for (unsigned i = 0; i < history->device_count; i++) {
        varve_writer_device(import->writer, i, NULL, 0);
        for (size_t stream = 0; stream < history->stream_count; stream++) {
            varve_writer_stream(import->writer, i, (unsigned)stream, history->streams[stream]);
        }
        history_write_final(import->writer, history, i, callsites);
        result->segments += history->devices[i].segment_count;
    }
    history_write_rests(import->writer, history, callsites, import->moved);
    result->callsites = history->stack_count - 1;
    result->events = varve_writer_events(import->writer);
}

int import_pytorch(const struct history *history, struct varve_writer *writer, struct progress *progress,
                   struct import_result *result, struct varve_message *message)
{
    struct import import = {.history = history, .writer = writer, .out = history_writer_new(writer, history)};
    *result = (struct import_result){0};
    history_inferred_words(history, result->inferred, sizeof(result->inferred));
    if (result->inferred[0] != '\0') {
        varve_writer_meta_text(writer, "history.inferred", result->inferred);
    }
    varve_writer_meta_text(writer, "block_sizes", "requested");
    history_write_settings(writer, &history->settings, history_writer_begin_us(import.out));
    import.pools = import_pools_new(history, progress);
    if (history->pool_count > 0) {
        varve_writer_meta_text(writer, "history.pools", "named"); /* by each event, and not worked out */
    }
    int error = VARVE_OK;
    for (unsigned i = 0; i < history->device_count && error == VARVE_OK; i++) {
        error = write_start(&import, i, result, message);
        if (history->devices[i].inferred != 0) {
            char key[32];
            snprintf(key, sizeof(key), "history.inferred.%u", i);
            varve_writer_meta_integer(writer, key, history->devices[i].inferred);
        }
        if (history->devices[i].has_overflowed) {
            varve_writer_meta_integer(writer, "history.has_overflowed", 1);
        }
    }
    if (error == VARVE_OK) {
        /* All at once: a call site between events would wait for them. */
        history_writer_callsites(import.out);
        import_pytorch_write_events(&import, progress);
        import_pytorch_write_end(&import, result);
    }
    history_writer_free(import.out);
    for (size_t i = 0; i < sizeof(import.moved) / sizeof(import.moved[0]); i++) {
        free(import.moved[i].items);
    }
    import_pools_free(import.pools);
    return error;
}

int import_pytorch_begin(const struct history *history, const char *path, const char *output, bool may_replace,
                         struct progress *progress, struct import_result *result, struct varve_writer **writer_out,
                         struct varve_message *message)
{
    struct varve_writer *writer;
    int error = varve_writer_open(output, may_replace, &writer, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct varve_message reason = {""};
    varve_writer_meta_text(writer, "import.source", path);
    error = import_pytorch(history, writer, progress, result, &reason);
    if (error != VARVE_OK) {
        varve_writer_abandon(writer);
        return varve_message_set(message, error, "%s: %s", path, reason.text);
    }
    *writer_out = writer;
    return VARVE_OK;
}

int import_pytorch_stream(struct input_stream *input, const char *path, const char *output, bool may_replace,
                          struct progress *progress, struct import_result *result, struct varve_message *message)
{
    struct history *history;
    struct varve_writer *writer = NULL;
    int error = history_read_pytorch_stream(input, &history, progress, message);
    VARVE_THEN(error, import_pytorch_begin(history, path, output, may_replace, progress, result, &writer, message));
    history_free(history);
    VARVE_THEN(error, varve_writer_finish(writer, progress_step, progress, message));
    return error;
}

int import_pytorch_file(const char *path, const char *output, bool may_replace, struct progress *progress,
                        struct import_result *result, struct varve_message *message)
{
    struct input_stream *input;
    int error = input_stream_open(path, &input, message);
    return error != VARVE_OK ? error
                             : import_pytorch_stream(input, path, output, may_replace, progress, result, message);
}
