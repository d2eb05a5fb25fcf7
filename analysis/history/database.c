/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace database read back as the history of its caching allocators: the events that PyTorch's own history
 * has, stream handles, call sites, settings, and the segments at the end. Whatever made the database (a
 * recording, an import, a replay), the state at its beginning is left out: it follows from the end. Called by
 * read.c.
 */
#include "analysis/history/database.h"

#include "analysis/output/memory.h"
#include "analysis/output/progress.h"
#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PROGRESS_EVENTS 65536
#define DEVICES 256

struct reader {
    struct database *database;
    struct history *history;
    struct progress *progress;
    struct varve_layout *layouts[DEVICES]; /* NULL: the end is stored, or the device has no events */
    bool is_stored[DEVICES];
    uint16_t *streams[DEVICES]; /* number in the history + 1 of each number in the database; 0 unknown */
    uint32_t *stacks;           /* of the history, by call site */
    size_t stack_count;
    int64_t begin_us;
    int64_t skip_until; /* events of the start state */
};

/* Frames of all call sites, which come in order of call site and depth. */
static void read_stacks(struct reader *reader)
{
    struct history_frame *frames = NULL;
    size_t capacity = 0;
    uint32_t count = 0;
    int64_t current = 0;
    struct cursor cursor;

    reader->stack_count = (size_t)database_number_limit(
        reader->database, "SELECT max(id), count(*) FROM callsite WHERE id > 0");
    reader->stacks = memory_resize(NULL, reader->stack_count * sizeof(*reader->stacks));
    memset(reader->stacks, 0, reader->stack_count * sizeof(*reader->stacks));
    cursor_open(&cursor, reader->database,
                "SELECT callsite_id, function, file, line FROM frame ORDER BY callsite_id, depth");
    for (;;) {
        bool has_row = cursor_next(&cursor);
        int64_t callsite = has_row ? cursor_integer(&cursor, 0) : 0;

        if (callsite != current && current > 0 && (size_t)current < reader->stack_count) {
            reader->stacks[current] = history_add_stack(reader->history, frames, count);
        }
        if (!has_row) {
            break;
        }
        count = callsite == current ? count : 0;
        current = callsite;
        if (count == capacity) {
            capacity = capacity == 0 ? 64 : 2 * capacity;
            frames = memory_resize(frames, capacity * sizeof(*frames));
        }
        for (int column = 1; column <= 2; column++) {
            const char *text = cursor_text(&cursor, column);
            uint32_t number = text == NULL ? 0 : history_text(reader->history, text, strlen(text));

            *(column == 1 ? &frames[count].function : &frames[count].file) = number;
        }
        frames[count++].line = (uint32_t)cursor_integer(&cursor, 3);
    }
    cursor_close(&cursor);
    free(frames);
}

static int read_streams(struct reader *reader)
{
    struct cursor cursor;
    int result = VARVE_OK;

    cursor_open(&cursor, reader->database,
                "SELECT device, number, handle FROM stream WHERE process_id = " HISTORY_PROCESS);
    while (result == VARVE_OK && cursor_next(&cursor)) {
        uint64_t device = (uint64_t)cursor_integer(&cursor, 0);
        uint64_t number = (uint64_t)cursor_integer(&cursor, 1);
        uint16_t stream;

        if (device < DEVICES && number <= UINT16_MAX) {
            result = history_stream(reader->history, (uint64_t)cursor_integer(&cursor, 2), &stream);
            if (result == VARVE_OK && reader->streams[device] == NULL) {
                reader->streams[device] = memory_resize(NULL, 65536 * sizeof(uint16_t));
                memset(reader->streams[device], 0, 65536 * sizeof(uint16_t));
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
static int stream_of(struct reader *reader, unsigned device, unsigned number, uint16_t *stream_out)
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
        .dev_seq_kind_flags = varve_record_tag(0, (enum varve_kind)cursor_integer(cursor, 2),
                                               (unsigned)cursor_integer(cursor, 12)),
        .callsite = (uint32_t)cursor_integer(cursor, 11),
        .pool = (uint16_t)cursor_integer(cursor, 4),
        .device = (uint8_t)cursor_integer(cursor, 1),
        .cause = (uint8_t)cursor_integer(cursor, 10),
    };
}

static int add_event(struct reader *reader, const struct varve_record *record, int64_t ts_ns)
{
    unsigned action = history_action_of_kind(varve_record_kind(record));
    struct history_event *event;
    uint16_t stream;
    int result = stream_of(reader, record->device, varve_record_stream(record), &stream);

    if (result != VARVE_OK) {
        return result;
    }
    event = history_add_event(&reader->history->devices[record->device]);
    event->action = (uint8_t)action;
    event->addr = record->addr;
    event->size = event->action <= HISTORY_FREE_COMPLETED ? record->requested : record->size;
    event->stream = stream;
    event->stack = record->callsite < reader->stack_count ? reader->stacks[record->callsite] : 0;
    event->time_us = reader->begin_us + ts_ns / 1000;
    return VARVE_OK;
}

static int begin_device(struct reader *reader, unsigned device, struct varve_message *message)
{
    int result;

    if (device < reader->history->device_count &&
        (reader->is_stored[device] || reader->layouts[device] != NULL)) {
        return VARVE_OK;
    }
    history_device(reader->history, device);
    result = history_read_final(reader->database, reader->history, device, reader->stacks,
                                reader->stack_count, &reader->is_stored[device], message);
    if (result == VARVE_OK && !reader->is_stored[device]) {
        reader->layouts[device] = varve_layout_new();
        if (reader->layouts[device] == NULL) {
            memory_exhausted();
        }
    }
    return result;
}

static int read_events(struct reader *reader, struct varve_message *message)
{
    uint64_t total = (uint64_t)database_integer(reader->database, "SELECT max(seq) FROM event", 0);
    struct cursor cursor;
    int64_t count = 0;
    int result = VARVE_OK;

    cursor_open(&cursor, reader->database,
                "SELECT seq, device, kind, stream, pool, addr, size, requested, arg, id, cause, callsite_id, "
                "flags, ts_ns FROM event WHERE kind BETWEEN 1 AND 12 ORDER BY seq");
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
            result = add_event(reader, &record, cursor_integer(&cursor, 13));
        }
    }
    cursor_close(&cursor);
    return result;
}

/* Several processes have their own devices of the same number. */
static int check_processes(struct reader *reader, struct varve_message *message)
{
    int64_t count = database_integer(reader->database,
                                     "SELECT count(DISTINCT pid) FROM event WHERE kind BETWEEN 1 AND 12", 0);

    if (count == 0) {
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

static int read_all(struct reader *reader, struct varve_message *message)
{
    struct history *history = reader->history;
    int result = check_processes(reader, message);

    if (result != VARVE_OK) {
        return result;
    }
    history_read_settings(reader->database, &history->settings, &reader->begin_us);
    reader->skip_until =
        database_integer(reader->database, "SELECT max(seq) FROM event WHERE kind = 1 AND cause = 29", 0);
    read_stacks(reader);
    result = read_streams(reader);
    if (result == VARVE_OK) {
        result = read_events(reader, message);
    }
    for (unsigned i = 0; i < history->device_count && result == VARVE_OK; i++) {
        if (reader->layouts[i] != NULL) {
            result = history_take_layout(reader->database, history, i, reader->layouts[i]);
        }
    }
    if (result == VARVE_OK) {
        result = database_error(reader->database, message);
    }
    return result;
}

int history_read_database(const char *path, struct history **history_out, struct progress *progress,
                          struct varve_message *message)
{
    struct reader *reader;
    struct database *database;
    struct varve_message reason = {""};
    int result = database_open(path, DATABASE_ANY, &database, &reason);

    *history_out = NULL;
    if (result != VARVE_OK) {
        return varve_message_set(message, result, "%s", reason.text);
    }
    reader = memory_resize(NULL, sizeof(*reader));
    *reader = (struct reader){.database = database, .history = history_new(), .progress = progress};
    result = read_all(reader, &reason);
    if (result == VARVE_OK) {
        *history_out = reader->history;
    } else {
        history_free(reader->history);
        varve_message_set(message, result, "%s",
                          reason.text[0] != '\0' ? reason.text : varve_strerror(result));
    }
    for (unsigned i = 0; i < DEVICES; i++) {
        varve_layout_free(reader->layouts[i]);
        free(reader->streams[i]);
    }
    free(reader->stacks);
    free(reader);
    database_close(database);
    return result;
}
