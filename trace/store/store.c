/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace database: opened, filled in order of events, committed together with the ring positions that the events
 * came from, finished. Two locks are held: flock on the database file keeps collectors apart from the first moment, and
 * lasts between transactions; SQLite's own locks (fcntl) let readers look on. Closing any other descriptor of the file
 * would drop the latter, so lock_fd is closed last. collector/collector.c and import/ call it.
 */
#include "trace/store/store.h"

#include "trace/event_list.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "trace/model/derive.h"
#include "trace/store/event_log.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/page_image.h"
#include "trace/store/schema.h"
#include "trace/store/store_transaction.h"
#include "base/error.h"
#include "base/file_error.h"
#include "trace/writer.h"

#include "columns_generated.h"
#include "statements_generated.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* ---- events ---- */

/* Which columns an event has. */
enum event_use {
    USE_ADDR = 1,
    USE_SIZE = 2,
    USE_REQUESTED = 4,
    USE_ARG = 8,
    USE_DEVICE = 16, /* not what happens in the host's memory */
    USE_CALLSITE = 32,
    /* those above by its kind */
    USE_ID = 64,
    USE_RING = 128,   /* it is no sign of missing ones */
    USE_OTHERS = 256, /* its process and thread are not those of its row of `thread` */
};

/* sizeof of the description: "" has one byte. The groups differ in their first letters. */
#define USE_DEVICE_OF(group) (#group[0] == 'h' || #group[0] == 'p' ? 0 : USE_DEVICE)
#define USE_CALLSITE_OF(group) (#group[0] == 'p' ? 0 : USE_CALLSITE)
#define USE_ROW(code, NAME, name, group, addr, size, requested, arg, meaning)                                       \
    [code] = (sizeof(addr) > 1 ? USE_ADDR : 0) | (sizeof(size) > 1 ? USE_SIZE : 0) |                                \
             (sizeof(requested) > 1 ? USE_REQUESTED : 0) | (sizeof(arg) > 1 ? USE_ARG : 0) | USE_DEVICE_OF(group) | \
             USE_CALLSITE_OF(group),

/* A kind that is not in the list uses nothing, so that its row is NULL where its meaning is unknown. */
static const uint8_t event_uses[256] = {VARVE_EVENT_LIST(USE_ROW)};

#define LOG_SUFFIX "-events"

/* What a row takes, about. */
#define EVENT_ROW_BYTES 40U
#define ALLOCATION_ROW_BYTES 45U

/* Sizes beyond 63 bits are requests that failed; the largest integer stands for them. */
static int64_t size_column(uint64_t size)
{
    return size > INT64_MAX ? INT64_MAX : (int64_t)size;
}

static unsigned event_use(struct store *store, const struct event *event)
{
    unsigned uses = event_uses[event->kind];
    if (event->callsite == 0 && kind_gives_back(event->kind)) {
        uses &= ~(unsigned)USE_CALLSITE;
    }
    bool is_thread = rows_is_thread(store, event->thread_id, event->process_id, event->pid, event->tid);
    return uses | (event->id != 0 ? USE_ID : 0) | (event->ring_seq != 0 ? USE_RING : 0) | (is_thread ? 0 : USE_OTHERS);
}

/* As a row of its own; false if there is no space. */
static bool event_row_add(struct store *store, const struct event *event)
{
    unsigned uses = event_use(store, event);
    const int64_t size = (uses & USE_SIZE) != 0 ? size_column(event->size) : 0;
    _Static_assert(EVENT_COLUMNS <= COLUMNS_MAX, "a record has room for them");
    const int64_t values[EVENT_COLUMNS] = {
        [EVENT_SIZE] = size,
        [EVENT_RING_LAG] = (int64_t)event->seq - size_column(event->ring_seq),
        [EVENT_PADDING] = size - size_column(event->requested),
        EVENT_MEMBERS(COLUMN_VALUE) /* as they are */
    };
    uint32_t nulls = 1U << EVENT_SEQ EVENT_USES(COLUMN_NULL);
    unsigned count = record_columns(values, nulls, EVENT_DEFAULTS, EVENT_COLUMNS);
    return image_add(store->batch.image, IMAGE_EVENT, event->seq, values, nulls, 0, count);
}

/* Does its allocation's row say all of it? Then it has none of its own. */
static bool event_is_held(struct store *store, struct derive *derive, const struct event *event)
{
    bool is_held = store->keep != VARVE_KEEP_ALLOCATIONS && derive_can_hold(derive, event) &&
                   rows_is_thread(store, event->thread_id, event->process_id, event->pid, event->tid);
    if (is_held) {
        derive_hold(derive, event);
    }
    return is_held;
}

/* Of a database that has no log. */
static int event_row_append(struct store *store, const struct event *event, struct varve_message *message)
{
    if (!event_row_add(store, event)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: %llu events must be committed before", store->path,
                                 (unsigned long long)store->pending);
    }
    return image_is_full(store->batch.image, IMAGE_EVENT)
               ? varve_message_set(message, VARVE_ERROR_FULL, "%s: %llu events wait for a commit", store->path,
                                   (unsigned long long)store->pending)
               : VARVE_OK;
}

int store_append(struct store *store, struct derive *derive, const struct event *event, struct varve_message *message)
{
    assert(event->seq == store->seq_last + 1);
    int error = VARVE_OK;
    if (store->keep != VARVE_KEEP_TOTALS) {
        bool is_held = event_is_held(store, derive, event);
        if (store->event_log != NULL) {
            VARVE_TRY(event_log_append(store->event_log, event, is_held));
        } else if (!is_held) {
            error = event_row_append(store, event, message);
        }
    }
    if (error == VARVE_OK || error == VARVE_ERROR_FULL) {
        store->seq_last = event->seq;
        store->pending++;
    }
    return error;
}

/* Of short-lived allocations no event is kept, of the others those that their rows hold. */
static bool event_is_left_out(const struct store *store, const struct event *event)
{
    return store->keep_rows == VARVE_KEEP_ALLOCATIONS ||
           (store->keep_rows == VARVE_KEEP_LASTING && kind_is_of_heap(event->kind));
}

static bool event_row_pass(void *context, struct event *event)
{
    struct store *store = context;
    return event_is_left_out(store, event) ||
           (rows_has_callsite(store, event->callsite) && event_row_add(store, event));
}

int events_gather(struct store *store, struct varve_message *message)
{
    if (store->event_log == NULL) {
        return VARVE_OK;
    }
    VARVE_TRY(event_log_flush(store->event_log, message));
    return event_log_rest(store->event_log, event_row_pass, store, message);
}

int events_finish(struct store *store, struct varve_message *message)
{
    int error = VARVE_OK;
    while (error == VARVE_OK && store->event_log != NULL && event_log_waiting(store->event_log) > 0) {
        const uint64_t before = event_log_waiting(store->event_log);
        error = events_gather(store, message);
        VARVE_THEN(error, store_commit(store, NULL, 0, message));
        if (error == VARVE_OK && event_log_waiting(store->event_log) == before) {
            error = varve_message_set(message, VARVE_ERROR_CORRUPT, "%s: an event finds no place", store->path);
        }
    }
    return error;
}

void store_keep(struct store *store, enum varve_keep keep)
{
    store->keep = keep;
    store->keep_rows = keep != VARVE_KEEP_TOTALS ? keep : store->keep_rows;
}

void store_callsite_rows(struct store *store, const uint32_t *rows, size_t limit)
{
    store->callsite_rows = rows;
    store->callsite_limit = limit;
}

uint64_t store_bytes(struct store *store, const struct derive *derive)
{
    int64_t bytes = 0;
    (void)store_wait(store, NULL);
    (void)schema_query(store->db, store->path, sql_bytes, &bytes, NULL);
    const uint64_t events = store->event_log != NULL ? event_log_waiting(store->event_log) : 0;
    const uint64_t allocations = derive->scratch.count - store->allocations.passed;
    return (uint64_t)bytes + events * EVENT_ROW_BYTES + allocations * ALLOCATION_ROW_BYTES;
}

void store_continue_at(struct store *store, uint64_t seq)
{
    assert(seq >= store->seq_last);
    store->seq_last = seq;
}

bool store_is_complete(const struct store *store)
{
    return store->is_complete;
}

uint64_t store_pending(const struct store *store)
{
    return store->pending;
}

/* What was appended is in the log before a commit says so. */
static int log_commit(struct store *store, struct varve_message *message)
{
    if (store->event_log == NULL || store->pending == 0) {
        return VARVE_OK;
    }
    int error = event_log_flush(store->event_log, message);
    VARVE_THEN(error, store_meta_integer(store, STORE_META_LOG, (int64_t)event_log_bytes(store->event_log)));
    VARVE_THEN(error, store_meta_integer(store, STORE_META_TAKEN, (int64_t)store->seq_last));
    return error;
}

int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message)
{
    int error = store_wait(store, message);
    VARVE_THEN(error, log_commit(store, message));
    for (size_t i = 0; i < count && error == VARVE_OK; i++) {
        const struct store_ring_position *position = &positions[i];
        error = ROWS_WRITE(store, STATEMENT_POSITION, RING_POSITION_MEMBERS(ROW_VALUE));
    }
    if (error == VARVE_OK) {
        commit_begin(store);
        store->pending = 0;
    }
    return error;
}

/* ---- the last steps: indexes, statistics, and from two files one that opens read-only anywhere ---- */

static void store_report(store_progress progress, void *context, uint64_t done)
{
    if (progress != NULL) {
        progress(context, "summarising", done, 3);
    }
}

/* `*is_left_out`: the database has no log any more; false: it has a reader. */
static int journal_leave(struct store *store, bool *is_left_out, struct varve_message *message)
{
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_finalize(store->statements[i]);
        store->statements[i] = NULL;
    }
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(store->db, sql_journal_leave, -1, &statement, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot checkpoint the write-ahead log", message);
    }
    int result = sqlite3_step(statement);
    *is_left_out =
        result == SQLITE_ROW && sqlite3_stricmp((const char *)sqlite3_column_text(statement, 0), "delete") == 0;
    int error = result == SQLITE_ROW
                    ? VARVE_OK
                    : schema_error(store->db, store->path, "complete, but its -wal file must stay beside it", message);
    sqlite3_finalize(statement);
    return error;
}

/* Leave WAL. Only possible when no reader has the database open, so it waits for them, but not for ever. */
static int wal_fold(struct store *store, struct varve_message *message)
{
    if (store->is_settled) {
        store->is_settled = false;
        sqlite3_exec(store->db, sql_journal_unlock, NULL, NULL, NULL);
    }
    bool is_folded = false;
    int error = journal_leave(store, &is_folded, message);
    if (error == VARVE_OK && !is_folded) {
        error = varve_message_set(message, VARVE_ERROR_BUSY, "%s: complete, but its -wal file must stay beside it",
                                  store->path);
    }
    return error;
}

void store_settle(struct store *store)
{
    char lock[96];
    sqlite3_snprintf(sizeof(lock), lock, sql_journal_lock, VARVE_DATABASE_SCHEMA_VERSION);
    if (store->is_private || store->is_settled || store_wait(store, NULL) != VARVE_OK) {
        return;
    }
    sqlite3_busy_timeout(store->db, 0);
    bool is_left = false;
    if (journal_leave(store, &is_left, NULL) == VARVE_OK && is_left) {
        /* A reader that came later would make a commit fail: it is kept out to the end. */
        store->is_settled = sqlite3_exec(store->db, lock, NULL, NULL, NULL) == SQLITE_OK;
        if (!store->is_settled) {
            sqlite3_exec(store->db, sql_journal_log, NULL, NULL, NULL);
        }
    }
    sqlite3_busy_timeout(store->db, SCHEMA_BUSY_MS);
}

static int statistics_gather(struct store *store, struct varve_message *message)
{
    int error = writer_execute(store, "PRAGMA analysis_limit = 1000", message);
    sqlite3_stmt *statement = NULL;
    if (error == VARVE_OK && (sqlite3_prepare_v2(store->db, sql_analyze, -1, &statement, NULL) != SQLITE_OK ||
                              sqlite3_step(statement) != SQLITE_ROW)) {
        error = schema_error(store->db, store->path, "cannot gather statistics", message);
    }
    VARVE_THEN(error, writer_execute(store, (const char *)sqlite3_column_text(statement, 0), message));
    sqlite3_finalize(statement);
    VARVE_THEN(error, writer_execute(store, sql_analyze_numbered, message));
    return error;
}

/* In one transaction, so that a reader never finds a part of it. */
static int complete(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    int error = writer_execute(store, "BEGIN", message);
    if (error != VARVE_OK) {
        return error;
    }
    error = schema_index(store->db, store->path, message);
    store_report(progress, context, 1);
    VARVE_THEN(error, statistics_gather(store, message));
    VARVE_THEN(error, writer_execute(store, sql_complete, message));
    VARVE_THEN(error, writer_execute(store, "COMMIT", message));
    if (!sqlite3_get_autocommit(store->db)) {
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return error;
}

/* A path in the working directory gets "./", so that no name means anything special to SQLite. */
static int store_database_open(struct store *store, struct varve_message *message)
{
    char name[4096 + 2];
    snprintf(name, sizeof(name), "%s%s", store->path[0] == '/' ? "" : "./", store->path);
    if (sqlite3_open_v2(name, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK) {
        return schema_error(store->db, store->path, "cannot open", message);
    }
    return VARVE_OK;
}

int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message)
{
    if (store->is_complete) {
        return wal_fold(store, message); /* its collector died after the commit that ends this function */
    }
    if (!store->has_derived) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: derive_finish comes before", store->path);
    }
    store_report(progress, context, 0);
    int error = functions_write(store); /* while a thread writes what was committed before */
    VARVE_THEN(error, complete(store, progress, context, message));
    store_report(progress, context, 2);
    VARVE_THEN(error, wal_fold(store, message));
    if (error == VARVE_OK && store->event_log != NULL) {
        event_log_remove(store->event_log);
    }
    store_report(progress, context, 3);
    return error;
}

/* ---- open and close ---- */

static int open_error(const char *path, int reason, struct varve_message *message)
{
    switch (reason) {
    case EEXIST:
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: exists already; name another file", path);
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
        return varve_message_set(message, VARVE_ERROR_PERMISSION, "%s: cannot write: %s", path, strerror(reason));
    default:
        return varve_message_set(message, file_error(reason), "%s: %s", path, strerror(reason));
    }
}

/* Open or make the file and lock it; `*is_new_out` says that it is ours to remove again. */
static int file_lock(struct store *store, enum store_mode mode, bool *is_new_out, struct varve_message *message)
{
    int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; /* no link, and no pipe that is waited for */
    int fd = open(store->path, mode != STORE_RESUME ? flags | O_CREAT | O_EXCL : flags, 0666);
    int reason = errno;
    *is_new_out = fd >= 0 && mode != STORE_RESUME;
    if (fd < 0 && reason == EEXIST) {
        /* Whose is it? Another collector's is worth saying. */
        fd = open(store->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd < 0) {
        return open_error(store->path, reason, message);
    }
    store->lock_fd = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno == EWOULDBLOCK ? VARVE_ERROR_BUSY : VARVE_ERROR_IO;
        return varve_message_set(message, error, "%s: %s", store->path,
                                 error == VARVE_ERROR_BUSY ? "another recording writes it" : strerror(errno));
    }
    return mode != STORE_RESUME && !*is_new_out ? open_error(store->path, EEXIST, message) : VARVE_OK;
}

static int images_open(struct store *store)
{
    int result = image_open(store->db, "batch", &store->batch.image);
    return result == SQLITE_OK ? image_open(store->db, "batch_behind", &store->behind.batch.image) : result;
}

/* Tables of a new database, or where an old one ends. Nothing is written to a file that is not ours. */
static int database_begin(struct store *store, enum store_mode mode, struct varve_message *message)
{
    int64_t complete = 0;
    int64_t symbol_last = 0;
    bool is_empty = mode != STORE_RESUME;
    int error = mode == STORE_RESUME ? schema_verify(store->db, store->path, &is_empty, message) : VARVE_OK;
    if (error == VARVE_OK && !is_empty) {
        error = schema_verify_columns(store->db, store->path, message);
    }
    VARVE_THEN(error, schema_pragmas(store->db, store->path, store->is_private, message));
    if (error == VARVE_OK && is_empty) {
        error = schema_create(store->db, store->path, message);
    }
    VARVE_THEN(error, schema_query(store->db, store->path, sql_is_complete, &complete, message));
    VARVE_THEN(error, schema_query(store->db, store->path, sql_symbol_last, &symbol_last, message));
    if (error == VARVE_OK && images_open(store) != SQLITE_OK) {
        error = schema_error(store->db, store->path, "cannot prepare to write", message);
    }
    if (error == VARVE_OK && mode == STORE_RESUME && complete == 0) {
        /* All events come again, and with them all allocations and storages. */
        error = writer_execute(store, sql_rows_drop, message);
    }
    if (error == VARVE_OK && mode == STORE_RESUME) {
        error = rows_threads_read(store, message);
    }
    store->is_complete = complete != 0;
    store->symbol_last = (uint32_t)symbol_last;
    return error;
}

/* Of a log that is gone or was cut nothing more can be read than there is: who continues the recording counts what is
 * missing. */
static int log_begin(struct store *store, enum store_mode mode, struct varve_message *message)
{
    char path[4096 + 16];
    int64_t bytes = 0;
    snprintf(path, sizeof(path), "%s" LOG_SUFFIX, store->path);
    if (mode != STORE_RESUME) {
        return event_log_create(path, &store->event_log, message);
    }
    int error = schema_query(store->db, store->path, sql_log_bytes, &bytes, message);
    return error == VARVE_OK ? event_log_resume(path, (uint64_t)bytes, &store->event_log, message) : error;
}

static void files_remove(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", LOG_SUFFIX};
    char name[4096 + 16];
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
        unlink(name);
    }
}

int store_open(const char *path, enum store_mode mode, struct store **store_out, struct varve_message *message)
{
    struct store *store = calloc(1, sizeof(*store));
    if (store == NULL || (store->path = strdup(path)) == NULL) {
        free(store);
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to open %s", path);
    }
    store->lock_fd = -1;
    store->is_private = mode == STORE_CREATE_PRIVATE || mode == STORE_CREATE_DIRECT;
    schema_configure();
    bool is_new = false;
    int error = file_lock(store, mode, &is_new, message);
    VARVE_THEN(error, store_database_open(store, message));
    VARVE_THEN(error, database_begin(store, mode, message));
    if (error == VARVE_OK && mode != STORE_CREATE_DIRECT && !store->is_complete) {
        error = log_begin(store, mode, message);
    }
    if (error != VARVE_OK) {
        store_close(store);
        if (is_new) {
            files_remove(path);
        }
        return error;
    }
    *store_out = store;
    return VARVE_OK;
}

void store_close(struct store *store)
{
    if (store == NULL) {
        return;
    }
    /* What was not committed has no positions: its events will be read from the rings. */
    commit_end(store);
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_finalize(store->statements[i]);
    }
    sqlite3_close(store->db);
    image_close(store->batch.image);
    image_close(store->behind.batch.image);
    event_log_close(store->event_log);
    if (store->lock_fd >= 0) {
        close(store->lock_fd);
    }
    free(store->batch.rows.bytes);
    free(store->behind.batch.rows.bytes);
    free(store->allocations.is_open);
    hash_numbers_free(&store->symbols.numbers);
    functions_free(&store->functions);
    free(store->threads.ids);
    free(store->path);
    free(store);
}
