/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a collector reads back when it continues the recording of another one that was killed: every event, in
 * the form that derive_event takes, and the small tables that hold its state. `varve recover` calls it.
 */
#include "trace/store/store_resume.h"

#include "base/grown_array.h"
#include "trace/model/model_event.h"
#include "trace/store/event_log.h"
#include "trace/store/store.h"
#include "trace/store/schema.h"
#include "trace/store/store_transaction.h"
#include "base/error.h"
#include "trace/collect.h"

#include "columns_generated.h"
#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

/* Run a query, whose parameter, if it has one, is `name`, and hand each row to `take`; its first value other than 0
 * ends that and is returned. */
static int query_each(struct store *store, const char *sql, const char *name,
                      int (*take)(sqlite3_stmt *row, void *context), void *context, struct varve_message *message)
{
    sqlite3_stmt *statement;
    int error = store_sync(store, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot read", message);
    }
    if (name != NULL) {
        sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    }
    int result = SQLITE_ROW;
    while (error == VARVE_OK && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        error = take(statement, context);
    }
    if (error == VARVE_OK && result != SQLITE_DONE) {
        error = schema_error(store->db, store->path, "cannot read", message);
    }
    sqlite3_finalize(statement);
    return error;
}

/* ---- events ---- */

struct event_reader {
    int (*take)(void *context, struct event *event, bool is_held);
    void *context;
    uint64_t seq;
};

static int store_resume_event_take(void *context, struct event *event, bool is_held)
{
    struct event_reader *reader = context;
    reader->seq = event->seq;
    return reader->take(reader->context, event, is_held);
}

int store_each_event(struct store *store, int (*take)(void *context, struct event *event, bool is_held), void *context,
                     struct varve_message *message)
{
    struct event_reader reader = {.take = take, .context = context};
    int error = event_log_each(store->event_log, store_resume_event_take, &reader, message);
    store->seq_last = reader.seq;
    return error == VARVE_ERROR_CORRUPT ? VARVE_OK : error; /* what is missing has a number: STORE_META_TAKEN */
}

/* ---- the small tables ---- */

/* The lists of columns_generated.h as assignments, of a row of all columns. */
#define COLUMN_READ(column, member) member = (__typeof__(member))sqlite3_column_int64(row, column);

/* Whom a row is handed to, with what it has of the row. */
struct reader {
    union {
        int (*position)(void *context, const struct store_ring_position *position);
        int (*anchor)(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns);
        int (*origin)(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t callsite, uint32_t count);
        int (*process)(void *context, uint32_t process_id, uint32_t parent_id);
        int (*stat)(void *context, int64_t idx, int64_t value);
    } take;
    void *context;
};

static int position_take(sqlite3_stmt *row, void *context)
{
    const struct reader *reader = context;
    struct store_ring_position *position = &(struct store_ring_position){0};
    RING_POSITION_MEMBERS(COLUMN_READ)
    position->is_final = sqlite3_column_int(row, RING_POSITION_COLUMNS) != 0;
    position->thread_id = (uint32_t)sqlite3_column_int64(row, RING_POSITION_COLUMNS + 1);
    position->process_id = (uint32_t)sqlite3_column_int64(row, RING_POSITION_COLUMNS + 2);
    position->ring = (uint32_t)sqlite3_column_int64(row, RING_POSITION_COLUMNS + 3);
    return reader->take.position(reader->context, position);
}

/* A ring of which nothing is stored has a row in `thread` and no position: NULL reads as 0. */
int store_each_ring_position(struct store *store, int (*take)(void *context, const struct store_ring_position *),
                             void *context, struct varve_message *message)
{
    struct reader reader = {.take.position = take, .context = context};
    return query_each(store, sql_positions, NULL, position_take, &reader, message);
}

static int anchor_take(sqlite3_stmt *row, void *context)
{
    const struct reader *reader = context;
    return reader->take.anchor(reader->context, (uint64_t)sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1),
                               sqlite3_column_int64(row, 2));
}

int store_each_clock_anchor(struct store *store,
                            int (*take)(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns), void *context,
                            struct varve_message *message)
{
    struct reader reader = {.take.anchor = take, .context = context};
    return query_each(store, sql_clock_anchors, NULL, anchor_take, &reader, message);
}

static int origin_take(sqlite3_stmt *row, void *context)
{
    const struct reader *reader = context;
    return reader->take.origin(reader->context, (uint32_t)sqlite3_column_int64(row, 0),
                               (uint32_t)sqlite3_column_int64(row, 1), (uint32_t)sqlite3_column_int64(row, 2),
                               (uint32_t)sqlite3_column_int64(row, 3));
}

int store_each_callsite_origin(struct store *store,
                               int (*take)(void *context, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                                           uint32_t count),
                               void *context, struct varve_message *message)
{
    struct reader reader = {.take.origin = take, .context = context};
    return query_each(store, sql_callsite_origins, NULL, origin_take, &reader, message);
}

struct integer {
    int64_t value;
    bool is_found;
};

static int integer_take(sqlite3_stmt *row, void *context)
{
    *(struct integer *)context = (struct integer){sqlite3_column_int64(row, 0), true};
    return VARVE_OK;
}

int store_meta_get_integer(struct store *store, const char *key, int64_t *value_out)
{
    struct integer integer = {0};
    int error = query_each(store, sql_meta_integer, key, integer_take, &integer, NULL);
    if (integer.is_found) {
        *value_out = integer.value;
    }
    return error == VARVE_OK && !integer.is_found ? VARVE_ERROR_NOT_FOUND : error;
}

struct text {
    char *text;
    size_t bytes;
};

static int text_take(sqlite3_stmt *row, void *context)
{
    const struct text *text = context;
    snprintf(text->text, text->bytes, "%s", (const char *)sqlite3_column_text(row, 0));
    return VARVE_OK;
}

int store_meta_get_text(struct store *store, const char *key, char *text, size_t bytes)
{
    struct text taken = {text, bytes};
    text[0] = '\0';
    return query_each(store, sql_meta_text, key, text_take, &taken, NULL);
}

static int process_take(sqlite3_stmt *row, void *context)
{
    const struct reader *reader = context;
    return reader->take.process(reader->context, (uint32_t)sqlite3_column_int64(row, 0),
                                (uint32_t)sqlite3_column_int64(row, 1));
}

int store_each_ended_process(struct store *store, int (*take)(void *context, uint32_t process_id, uint32_t parent_id),
                             void *context, struct varve_message *message)
{
    struct reader reader = {.take.process = take, .context = context};
    return query_each(store, sql_ended_processes, NULL, process_take, &reader, message);
}

static int stat_take(sqlite3_stmt *row, void *context)
{
    const struct reader *reader = context;
    return reader->take.stat(reader->context, sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1));
}

int store_each_stat(struct store *store, const char *name, int (*take)(void *context, int64_t idx, int64_t value),
                    void *context, struct varve_message *message)
{
    struct reader reader = {.take.stat = take, .context = context};
    return query_each(store, sql_stats, name, stat_take, &reader, message);
}

/* ---- sums ---- */

static int sum_take(sqlite3_stmt *row, void *context)
{
    struct store_sums *sums = context;
    uint64_t *const figures[] = {
        &sums->emitted,     &sums->stored,     &sums->spilled, &sums->lost,       &sums->lost_bytes,
        &sums->uncommitted, &sums->unreadable, &sums->damaged, &sums->unattached, &sums->unattached_bytes,
        &sums->threads,     &sums->processes,  &sums->images,
    };
    for (int i = 0; i < (int)(sizeof(figures) / sizeof(figures[0])); i++) {
        /* of damaged headers: a sum beyond 63 bits comes as a real number, which is cut to the largest */
        *figures[i] = (uint64_t)sqlite3_column_int64(row, i);
    }
    return VARVE_OK;
}

int store_sum(struct store *store, struct store_sums *sums_out, struct varve_message *message)
{
    *sums_out = (struct store_sums){0};
    return query_each(store, sql_sums, NULL, sum_take, sums_out, message);
}

int store_count_losses(struct store *store, uint64_t *count_out, struct varve_message *message)
{
    int64_t count = 0;
    int error = store_sync(store, message);
    VARVE_THEN(error, schema_query(store->db, store->path, sql_loss_count, &count, message));
    *count_out = (uint64_t)count;
    return error;
}

int store_peek_trace(const char *path, int64_t *trace_id_out)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int error = VARVE_ERROR_NOT_FOUND;
    bool is_empty = true;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        schema_verify(db, path, &is_empty, NULL) == VARVE_OK && !is_empty &&
        sqlite3_prepare_v2(db, sql_complete_trace, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        *trace_id_out = sqlite3_column_int64(statement, 0);
        error = VARVE_OK;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return error;
}

int store_peek_result(const char *path, struct varve_collect_result *result)
{
    uint64_t *const figures[] = {&result->events,    &result->lost,    &result->uncommitted,
                                 &result->processes, &result->threads, &result->allocations};
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    int error = VARVE_ERROR_NOT_FOUND;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql_result, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW) {
        for (int i = 0; i < (int)(sizeof(figures) / sizeof(figures[0])); i++) {
            *figures[i] = (uint64_t)sqlite3_column_int64(statement, i);
        }
        error = VARVE_OK;
    }
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return error;
}
