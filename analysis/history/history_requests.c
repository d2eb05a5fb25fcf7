/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of allocations has each with its beginning and its end, also where a log contradicts itself; its rows are
 * in the order of their beginnings. So ends and failures are what must be sorted in.
 */
#include "analysis/history/history_database.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/history/history.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/record.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DOMAIN_DEVICE 3
#define DOMAIN_BLOCK 4
#define DEVICES 256
#define PROGRESS_ROWS 65536

/* An alloc, a free or a failure, by the number of its event. */
struct request {
    int64_t seq;
    struct history_event event;
    uint8_t device;
};

struct reader {
    struct database *database;
    struct history *history;
    struct history_stacks *stacks;
    struct request *items;
    size_t count, capacity;
    int64_t domain, process;
};

static int64_t domain_of(struct database *database)
{
    char *text = database_meta(database, "history.requests");
    int64_t domain = text != NULL && strcmp(text, "block") == 0 ? DOMAIN_BLOCK : DOMAIN_DEVICE;
    free(text);
    return domain;
}

bool history_is_of_requests(struct database *database)
{
    char *text = database_meta(database, "history.requests");
    bool is_said = text != NULL;
    free(text);
    return is_said || (database_integer(database, "SELECT count(*) FROM total WHERE domain = 'block'", 0) == 0 &&
                       database_integer(database, "SELECT sum(allocations) FROM total WHERE domain = 'device'", 0) > 0);
}

static struct request *history_requests_add(struct reader *reader, int64_t seq, int64_t device)
{
    reader->items = memory_grow(reader->items, &reader->capacity, reader->count, sizeof(*reader->items));
    reader->items[reader->count] = (struct request){.seq = seq, .device = (uint8_t)device};
    return &reader->items[reader->count++];
}

/* The handle behind a number, which stands for itself where the database does not say. */
static int history_requests_stream_of(struct reader *reader, int64_t handle, uint16_t *stream_out)
{
    return history_stream(reader->history, (uint64_t)handle, stream_out);
}

static int read_allocations(struct reader *reader, struct progress *progress)
{
    uint64_t total = (uint64_t)database_integer(reader->database, "SELECT max(id) FROM allocation", 0);
    struct cursor cursor;
    cursor_open(&cursor, reader->database, sql_history_allocations);
    cursor_bind_integer(&cursor, 1, reader->domain);
    cursor_bind_integer(&cursor, 2, reader->process);
    int result = VARVE_OK;
    while (result == VARVE_OK && cursor_next(&cursor)) {
        struct request *request = history_requests_add(reader, cursor_integer(&cursor, 6), cursor_integer(&cursor, 1));
        struct history_event event = {.addr = (uint64_t)cursor_integer(&cursor, 2),
                                      .size = (uint64_t)cursor_integer(&cursor, 3),
                                      .time_us = cursor_integer(&cursor, 7) / 1000,
                                      .action = HISTORY_ALLOC};
        result = history_requests_stream_of(reader, cursor_integer(&cursor, 4), &event.stream);
        event.stack = history_stacks_of(reader->stacks, (uint64_t)cursor_integer(&cursor, 5));
        request->event = event;
        if (!cursor_is_null(&cursor, 8)) {
            event.action = HISTORY_FREE_REQUESTED;
            event.time_us = cursor_integer(&cursor, 9) / 1000;
            event.stack = 0;
            history_requests_add(reader, cursor_integer(&cursor, 8), request->device)->event = event;
        }
        if (progress != NULL && reader->count % PROGRESS_ROWS == 0) {
            progress_step(progress, "reading", (uint64_t)cursor_integer(&cursor, 0), total);
        }
    }
    cursor_close(&cursor);
    return result;
}

static int read_failures(struct reader *reader)
{
    struct cursor cursor;
    cursor_open(&cursor, reader->database, sql_history_failed_requests);
    cursor_bind_integer(&cursor, 1, reader->domain == DOMAIN_BLOCK ? VARVE_KIND_OOM : VARVE_KIND_DEV_OOM);
    cursor_bind_integer(&cursor, 2, reader->process);
    int result = VARVE_OK;
    while (result == VARVE_OK && cursor_next(&cursor)) {
        struct request *request = history_requests_add(reader, cursor_integer(&cursor, 0), cursor_integer(&cursor, 1));
        request->event.action = HISTORY_OOM;
        request->event.size = (uint64_t)cursor_integer(&cursor, 2);
        request->event.time_us = cursor_integer(&cursor, 5) / 1000;
        request->event.stack = history_stacks_of(reader->stacks, (uint64_t)cursor_integer(&cursor, 4));
        result = history_requests_stream_of(reader, cursor_integer(&cursor, 3), &request->event.stream);
    }
    cursor_close(&cursor);
    return result;
}

/* What an event ends comes before what it begins. */
static int history_requests_compare(const void *a, const void *b)
{
    const struct request *one = a;
    const struct request *two = b;
    if (one->seq != two->seq) {
        return one->seq < two->seq ? -1 : 1;
    }
    return (one->event.action == HISTORY_ALLOC) - (two->event.action == HISTORY_ALLOC);
}

static void give_events(struct reader *reader)
{
    if (reader->count > 0) { /* qsort takes no NULL */
        qsort(reader->items, reader->count, sizeof(*reader->items), history_requests_compare);
    }
    for (size_t i = 0; i < reader->count; i++) {
        struct history_device *device = history_device(reader->history, reader->items[i].device);
        *history_add_event(device) = reader->items[i].event;
        if (reader->items[i].event.action == HISTORY_FREE_REQUESTED) {
            struct history_event *completed = history_add_event(device);
            *completed = reader->items[i].event;
            completed->action = HISTORY_FREE_COMPLETED;
        }
    }
}

int history_read_requests(struct database *database, struct history *history, struct history_stacks *stacks,
                          struct progress *progress, struct varve_message *message)
{
    struct reader reader = {.database = database, .history = history, .stacks = stacks, .domain = domain_of(database)};
    int64_t processes = database_integer_of(database, sql_history_processes_of, reader.domain);
    if (processes > 1) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "%s has the requests of %" PRId64 " processes; only one can be taken",
                                 database_path(database), processes);
    }
    reader.process = database_integer_of(database, sql_history_last_process_of, reader.domain);
    history->has_requests_only = true;
    int error = read_allocations(&reader, progress);
    VARVE_THEN(error, read_failures(&reader));
    if (error == VARVE_OK) {
        give_events(&reader);
    }
    free(reader.items);
    return error;
}
