/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace database read back as the history of its caching allocators: the events that PyTorch's own history
 * has, stream handles, call sites, settings, and the segments at the end, as stored or else as the events lead
 * to them. The state at its beginning is left out: it follows from the end.
 */
#include "analysis/history/history_database.h"

#include "analysis/history/history_read.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/segment_query.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record.h"
#include "trace/writer.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVENTS 65536
#define DEVICES 256
#define NUMBERS 65536 /* of streams, of pools */
#define DIVISIONS 16
#define KEY_BYTES 48
#define SEGMENT_FIELDS 13
#define BLOCK_FIELDS 6

/* ---- settings ---- */

void history_write_settings(struct varve_writer *writer, const struct history_settings *settings, int64_t begin_us)
{
    varve_writer_meta_integer(writer, "history.begin_us", begin_us);
    if (!settings->is_known) {
        return;
    }
    varve_writer_meta_text(writer, "allocator.conf", settings->text);
    varve_writer_meta_integer(writer, "allocator.max_split_size", settings->max_split_size);
    varve_writer_meta_integer(writer, "allocator.expandable_segments", settings->expandable_segments);
    char text[DIVISIONS * 24];
    snprintf(text, sizeof(text), "%.17g", settings->garbage_collection_threshold);
    varve_writer_meta_text(writer, "allocator.garbage_collection_threshold", text);
    size_t used = 0;
    for (size_t i = 0; i < DIVISIONS; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64, i > 0 ? " " : "", settings->divisions[i]);
    }
    varve_writer_meta_text(writer, "allocator.roundup_power2_divisions", text);
}

static void read_settings(struct database *database, struct history_settings *settings, int64_t *begin_us)
{
    char *text = database_meta(database, "allocator.conf");
    *begin_us = database_meta_integer(database, "history.begin_us", 0);
    *settings = (struct history_settings){.max_split_size = -1};
    if (text == NULL) {
        return;
    }
    settings->is_known = true;
    snprintf(settings->text, sizeof(settings->text), "%s", text);
    free(text);
    settings->max_split_size = database_meta_integer(database, "allocator.max_split_size", -1);
    settings->expandable_segments = database_meta_integer(database, "allocator.expandable_segments", 0) != 0;
    text = database_meta(database, "allocator.garbage_collection_threshold");
    settings->garbage_collection_threshold = text == NULL ? 0 : strtod(text, NULL);
    free(text);
    text = database_meta(database, "allocator.roundup_power2_divisions");
    if (text != NULL) {
        char *rest = text;
        for (size_t i = 0; i < DIVISIONS; i++) {
            settings->divisions[i] = strtoull(rest, &rest, 10);
        }
        free(text);
    }
}

/* ---- lines in a row of meta ---- */

void history_write_lines(struct varve_writer *writer, const char *key, FILE *out, char **text)
{
    memory_stream_end(out, text);
    varve_writer_meta_text(writer, key, *text);
    free(*text);
}

int history_read_lines(struct database *database, const char *key, bool (*take)(void *context, char *line),
                       void *context, bool *is_found_out, struct varve_message *message)
{
    char *text = database_meta(database, key);
    char *position = NULL;
    bool is_good = true;
    *is_found_out = text != NULL;
    for (char *line = text == NULL ? NULL : strtok_r(text, "\n", &position); line != NULL && is_good;
         line = strtok_r(NULL, "\n", &position)) {
        is_good = take(context, line);
    }
    free(text);
    return is_good ? VARVE_OK
                   : varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: meta.%s is damaged", database_path(database),
                                       key);
}

/* ---- the segments at the end, as stored ---- */

static uint32_t history_database_callsite_of(const uint32_t *callsites, uint32_t stack)
{
    return callsites == NULL ? 0 : callsites[stack];
}

void history_write_final(struct varve_writer *writer, const struct history *history, unsigned index,
                         const uint32_t *callsites)
{
    const struct history_device *device = &history->devices[index];
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    for (size_t i = 0; i < device->segment_count; i++) {
        const struct history_segment *segment = &device->segments[i];
        fprintf(out,
                "s %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %x %" PRIx64 " %" PRIx64 " %" PRIx64
                " %" PRIx32 " %x %x\n",
                segment->addr, segment->size, history->streams[segment->stream], segment->pool_id[0],
                segment->pool_id[1], segment->is_small, segment->is_expandable, segment->allocated, segment->active,
                segment->requested, history_database_callsite_of(callsites, segment->stack), segment->pool_is_list,
                segment->keys);
        for (size_t j = 0; j < segment->block_count; j++) {
            const struct history_block *block = &device->blocks[segment->first_block + j];
            fprintf(out, "b %" PRIx64 " %" PRIx64 " %" PRIx64 " %x %" PRIx32 " %x\n", block->addr, block->size,
                    block->requested, block->state, history_database_callsite_of(callsites, block->stack), block->keys);
        }
    }
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "history.segments.%u", index);
    history_write_lines(writer, key, out, &text);
}

/* Numbers of one line; false unless there are exactly `count`. */
static bool read_numbers(char *line, uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        numbers[i] = strtoull(line, &end, 16);
        if (end == line || (*end != ' ' && *end != '\0')) {
            return false;
        }
        line = end;
    }
    return *line == '\0';
}

struct final_reader {
    struct history *history;
    struct history_device *device;
    struct history_segment *segment; /* the last one */
    uint64_t end;                    /* of its blocks so far */
    struct history_stacks *stacks;
};

static bool read_segment(struct final_reader *reader, char *line)
{
    uint64_t n[SEGMENT_FIELDS];
    if (!read_numbers(line, n, SEGMENT_FIELDS) || n[1] == 0 || n[0] + n[1] < n[0] ||
        (reader->device->segment_count > 0 &&
         n[0] < reader->device->segments[reader->device->segment_count - 1].addr +
                    reader->device->segments[reader->device->segment_count - 1].size)) {
        return false;
    }
    struct history_segment *segment = history_add_segment(reader->device);
    reader->segment = segment;
    reader->end = n[0];
    *segment = (struct history_segment){
        .addr = n[0],
        .size = n[1],
        .pool_id = {n[3], n[4]},
        .is_small = n[5] != 0,
        .is_expandable = n[6] != 0,
        .allocated = n[7],
        .active = n[8],
        .requested = n[9],
        .first_block = reader->device->block_count,
        .stack = history_stacks_of(reader->stacks, n[10]),
        .pool_is_list = n[11] != 0,
        .keys = (uint16_t)n[12],
    };
    return history_stream(reader->history, n[2], &segment->stream) == VARVE_OK;
}

static bool history_database_read_block(struct final_reader *reader, char *line)
{
    struct history_segment *segment = reader->segment;
    uint64_t n[BLOCK_FIELDS];
    if (segment == NULL || !read_numbers(line, n, BLOCK_FIELDS) || n[0] < reader->end || n[1] == 0 ||
        n[3] > HISTORY_ACTIVE_PENDING_FREE || n[0] - segment->addr >= segment->size ||
        n[1] > segment->size - (n[0] - segment->addr)) {
        return false;
    }
    *history_add_block(reader->device) = (struct history_block){
        .addr = n[0],
        .size = n[1],
        .requested = n[2],
        .state = (uint8_t)n[3],
        .stack = history_stacks_of(reader->stacks, n[4]),
        .keys = (uint16_t)n[5],
    };
    reader->end = n[0] + n[1];
    segment->block_count++;
    return true;
}

static bool read_final_line(void *reader, char *line)
{
    return (line[0] == 's' && line[1] == ' ' && read_segment(reader, line + 2)) ||
           (line[0] == 'b' && line[1] == ' ' && history_database_read_block(reader, line + 2));
}

static int read_final(struct database *database, struct history *history, unsigned index, struct history_stacks *stacks,
                      bool *is_found_out, struct varve_message *message)
{
    struct final_reader reader = {.history = history, .device = &history->devices[index], .stacks = stacks};
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "history.segments.%u", index);
    return history_read_lines(database, key, read_final_line, &reader, is_found_out, message);
}

struct reader {
    struct database *database;
    struct history *history;
    int64_t process_id; /* whose allocators the database holds: a history is of one */
    struct progress *progress;
    struct varve_layout *layouts[DEVICES]; /* NULL: the end is stored, or the device has no events */
    bool is_stored[DEVICES];
    uint16_t *streams[DEVICES]; /* number in the history + 1 of each number in the database; 0 unknown */
    struct history_stacks *stacks;
    uint8_t *pools[DEVICES]; /* of what events name: number in history.pool_ids + 1 of each in the database; or NULL */
    int64_t begin_us;
    bool has_no_times;
    int64_t skip_until; /* events of the start state */
};

/* ---- the segments at the end, as the events lead to them ---- */

static int begin_segment(struct reader *reader, unsigned index, const struct varve_layout_block *block)
{
    struct history_device *device = &reader->history->devices[index];
    struct history_segment *segment = history_add_segment(device);
    const struct segments_part part = {.process_id = reader->process_id, .device = index};
    const struct pool_meaning pool = pool_of(reader->database, &part, block->pool);
    segment->addr = block->addr;
    segment->first_block = device->block_count;
    segment->is_expandable = block->is_expandable;
    segment->pool_id[0] = pool.has_ids ? (uint64_t)pool.capture_id : block->pool / 2U;
    segment->pool_id[1] = (uint64_t)pool.user_id;
    segment->is_small = pool.is_small;
    return history_stream(reader->history, (uint64_t)stream_handle(reader->database, &part, block->stream),
                          &segment->stream);
}

static int read_layout(struct reader *reader, unsigned index)
{
    static const uint8_t states[] = {
        [VARVE_LAYOUT_FREE] = HISTORY_INACTIVE,
        [VARVE_LAYOUT_USED] = HISTORY_ACTIVE_ALLOCATED,
        [VARVE_LAYOUT_PENDING] = HISTORY_ACTIVE_PENDING_FREE,
    };
    const struct varve_layout *layout = reader->layouts[index];
    struct history_device *device = &reader->history->devices[index];
    struct varve_layout_block block;
    uint32_t segment_number = 0;
    uint64_t end = 0;
    int result = VARVE_OK;
    for (uint64_t from = 0; result == VARVE_OK && varve_layout_block(layout, from, &block);
         from = block.addr + block.extent) {
        if (device->segment_count == 0 || block.segment != segment_number || block.addr != end) {
            result = begin_segment(reader, index, &block);
        }
        struct history_segment *segment = &device->segments[device->segment_count - 1];
        *history_add_block(device) = (struct history_block){
            .addr = block.addr, .size = block.extent, .requested = block.requested, .state = states[block.state]};
        segment_number = block.segment;
        end = block.addr + block.extent;
        segment->size = end - segment->addr;
        segment->block_count++;
        segment->allocated += block.state == VARVE_LAYOUT_USED ? block.extent : 0;
        segment->active += block.state != VARVE_LAYOUT_FREE ? block.extent : 0;
        segment->requested += block.state != VARVE_LAYOUT_FREE ? block.requested : 0;
    }
    return result;
}

/* ---- events, streams and call sites ---- */

static void *add_numbers(size_t bytes)
{
    return memset(memory_resize(NULL, NUMBERS * bytes), 0, NUMBERS * bytes);
}

/* Only a snapshot's events name their pools; else they are worked out again, as those of the snapshot itself. */
static void read_pools(struct reader *reader)
{
    struct history *history = reader->history;
    char *text = database_meta(reader->database, "history.pools");
    bool are_named = text != NULL && strcmp(text, "named") == 0;
    free(text);
    if (!are_named) {
        return;
    }
    struct cursor cursor;
    cursor_open(&cursor, reader->database,
                "SELECT device, number, capture_id, user_id FROM pool WHERE process_id = ?1");
    cursor_bind_integer(&cursor, 1, reader->process_id);
    while (cursor_next(&cursor)) {
        uint64_t device = (uint64_t)cursor_integer(&cursor, 0);
        uint64_t number = (uint64_t)cursor_integer(&cursor, 1);
        uint64_t id[2] = {(uint64_t)cursor_integer(&cursor, 2), (uint64_t)cursor_integer(&cursor, 3)};
        if (device < DEVICES && number < NUMBERS && reader->pools[device] == NULL) {
            reader->pools[device] = add_numbers(sizeof(uint8_t));
        }
        if (device < DEVICES && number < NUMBERS) {
            reader->pools[device][number] = history_pool(history, id);
        }
    }
    cursor_close(&cursor);
}

static int read_streams(struct reader *reader)
{
    struct cursor cursor;
    cursor_open(&cursor, reader->database, "SELECT device, number, handle FROM stream WHERE process_id = ?1");
    cursor_bind_integer(&cursor, 1, reader->process_id);
    int result = VARVE_OK;
    while (result == VARVE_OK && cursor_next(&cursor)) {
        uint64_t device = (uint64_t)cursor_integer(&cursor, 0);
        uint64_t number = (uint64_t)cursor_integer(&cursor, 1);
        uint16_t stream;
        if (device < DEVICES && number <= UINT16_MAX) {
            result = history_stream(reader->history, (uint64_t)cursor_integer(&cursor, 2), &stream);
            if (result == VARVE_OK && reader->streams[device] == NULL) {
                reader->streams[device] = add_numbers(sizeof(uint16_t));
            }
            if (result == VARVE_OK) {
                reader->streams[device][number] = (uint16_t)(stream + 1U);
            }
        }
    }
    cursor_close(&cursor);
    return result;
}

/* A number that the database does not explain stands for itself. */
static int history_database_stream_of(struct reader *reader, unsigned device, unsigned number, uint16_t *stream_out)
{
    const uint16_t *numbers = reader->streams[device];
    if (numbers != NULL && numbers[number] != 0) {
        *stream_out = (uint16_t)(numbers[number] - 1U);
        return VARVE_OK;
    }
    return history_stream(reader->history, number, stream_out);
}

static struct varve_record record_of(struct cursor *cursor)
{
    return (struct varve_record){
        .addr = (uint64_t)cursor_integer(cursor, 5),
        .size = (uint64_t)cursor_integer(cursor, 6),
        .requested = (uint64_t)cursor_integer(cursor, 7),
        .arg = (uint64_t)cursor_integer(cursor, 8),
        .id_stream = ((uint64_t)cursor_integer(cursor, 9) & UINT64_C(0xffffffffffff)) |
                     (uint64_t)cursor_integer(cursor, 3) << 48,
        .dev_seq_kind_flags =
            varve_record_tag(0, (enum varve_kind)cursor_integer(cursor, 2), (unsigned)cursor_integer(cursor, 12)),
        .callsite = (uint32_t)cursor_integer(cursor, 11),
        .pool = (uint16_t)cursor_integer(cursor, 4),
        .device = (uint8_t)cursor_integer(cursor, 1),
        .cause = (uint8_t)cursor_integer(cursor, 10),
    };
}

static int history_database_add_event(struct reader *reader, const struct varve_record *record, int64_t ts_ns)
{
    unsigned action = history_action_of_kind(varve_record_kind(record));
    uint16_t stream;
    int result = history_database_stream_of(reader, record->device, varve_record_stream(record), &stream);
    if (result != VARVE_OK) {
        return result;
    }
    struct history_event *event = history_add_event(&reader->history->devices[record->device]);
    event->action = (uint8_t)action;
    event->addr = record->addr;
    event->size = event->action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    event->stream = stream;
    event->pool = reader->pools[record->device] != NULL ? reader->pools[record->device][record->pool] : 0;
    event->stack = history_stacks_of(reader->stacks, record->callsite);
    event->time_us = reader->has_no_times ? 0 : reader->begin_us + ts_ns / 1000;
    return VARVE_OK;
}

static int begin_device(struct reader *reader, unsigned device, struct varve_message *message)
{
    if (device < reader->history->device_count && (reader->is_stored[device] || reader->layouts[device] != NULL)) {
        return VARVE_OK;
    }
    char key[KEY_BYTES];
    snprintf(key, sizeof(key), "history.inferred.%u", device);
    history_device(reader->history, device)->inferred = (uint16_t)database_meta_integer(reader->database, key, 0);
    int result =
        read_final(reader->database, reader->history, device, reader->stacks, &reader->is_stored[device], message);
    if (result == VARVE_OK && !reader->is_stored[device]) {
        reader->layouts[device] = varve_layout_new();
        if (reader->layouts[device] == NULL) {
            memory_exhausted();
        }
    }
    return result;
}

static int history_database_read_events(struct reader *reader, struct varve_message *message)
{
    uint64_t total = (uint64_t)database_integer(reader->database, "SELECT max(seq) FROM event_own", 0);
    struct cursor cursor;
    cursor_open(&cursor, reader->database, sql_history_events);
    int64_t count = 0;
    int result = VARVE_OK;
    while (result == VARVE_OK && cursor_next(&cursor)) {
        struct varve_record record = record_of(&cursor);
        int64_t seq = cursor_integer(&cursor, 0);
        if (reader->progress != NULL && count++ % PROGRESS_EVENTS == 0) {
            progress_step(reader->progress, "reading", (uint64_t)seq, total);
        }
        result = begin_device(reader, record.device, message);
        if (result == VARVE_OK && reader->layouts[record.device] != NULL) {
            result = varve_layout_apply(reader->layouts[record.device], &record);
        }
        if (result == VARVE_OK && seq > reader->skip_until &&
            history_action_of_kind(varve_record_kind(&record)) != HISTORY_ACTION_LIMIT) {
            result = history_database_add_event(reader, &record, cursor_integer(&cursor, 13));
        }
    }
    cursor_close(&cursor);
    return result;
}

/* Several processes have their own devices of the same number. */
static int check_processes(struct reader *reader, struct varve_message *message)
{
    int error = report_require_events(reader->database, false, message);
    int64_t count = database_integer(reader->database, sql_history_pids, 0);
    if (error != VARVE_OK) {
        return error;
    }
    if (count == 0 && database_meta_integer(reader->database, "history.begin_us", -1) < 0) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "%s has no events of a caching allocator",
                                 database_path(reader->database));
    }
    if (count > 1) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "%s has the allocators of %" PRId64 " processes; only one can be taken",
                                 database_path(reader->database), count);
    }
    return VARVE_OK;
}

static int read_requests(struct reader *reader, struct varve_message *message)
{
    read_settings(reader->database, &reader->history->settings, &reader->begin_us);
    reader->stacks = history_stacks_new(reader->database, reader->history);
    int result = history_read_requests(reader->database, reader->history, reader->stacks, reader->progress, message);
    VARVE_THEN(result, database_error(reader->database, message));
    return result == VARVE_OK ? history_stacks_error(reader->stacks, message) : result;
}

static int history_database_read_all(struct reader *reader, struct varve_message *message)
{
    struct history *history = reader->history;
    if (history_is_of_requests(reader->database)) {
        return read_requests(reader, message);
    }
    int result = check_processes(reader, message);
    if (result != VARVE_OK) {
        return result;
    }
    read_settings(reader->database, &history->settings, &reader->begin_us);
    reader->has_no_times = report_has_no_times(reader->database);
    reader->skip_until = database_integer(reader->database, sql_history_last_inherited, 0);
    reader->stacks = history_stacks_new(reader->database, history);
    reader->process_id =
        database_integer(reader->database, "SELECT max(process_id) FROM total_process WHERE domain = 'block'", 0);
    result = read_streams(reader);
    read_pools(reader);
    VARVE_THEN(result, history_database_read_events(reader, message));
    for (unsigned i = 0; i < history->device_count && result == VARVE_OK; i++) {
        if (reader->layouts[i] != NULL) {
            result = read_layout(reader, i);
        }
    }
    VARVE_THEN(result, history_read_rests(reader->database, history, reader->stacks, message));
    VARVE_THEN(result, database_error(reader->database, message));
    return result == VARVE_OK ? history_stacks_error(reader->stacks, message) : result;
}

int history_read_database(const char *path, struct history **history_out, struct progress *progress,
                          struct varve_message *message)
{
    struct database *database;
    struct varve_message reason = {""};
    int result = database_open(path, DATABASE_ANY, &database, &reason);
    *history_out = NULL;
    if (result != VARVE_OK) {
        return varve_message_set(message, result, "%s", reason.text);
    }
    struct reader *reader = memory_resize(NULL, sizeof(*reader));
    *reader = (struct reader){.database = database, .history = history_new(), .progress = progress};
    result = history_database_read_all(reader, &reason);
    if (result == VARVE_OK) {
        *history_out = reader->history;
    } else {
        history_free(reader->history);
        varve_message_set(message, result, "%s", reason.text[0] != '\0' ? reason.text : varve_strerror(result));
    }
    for (unsigned i = 0; i < DEVICES; i++) {
        varve_layout_free(reader->layouts[i]);
        free(reader->streams[i]);
        free(reader->pools[i]);
    }
    history_stacks_free(reader->stacks);
    free(reader);
    database_close(database);
    return result;
}
