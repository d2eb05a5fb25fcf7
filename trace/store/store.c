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
#include "trace/store/row_pages.h"
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
#define ROWS_SUFFIX "-rows"

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

/* As a row of its own; false without memory. */
static bool event_row_add(struct store *store, const struct event *event)
{
    unsigned uses = event_use(store, event);
    const int64_t size = (uses & USE_SIZE) != 0 ? size_column(event->size) : 0;
    _Static_assert(EVENT_COLUMNS <= COLUMNS_MAX, "a record has room for them");
    static const struct column_defaults defaults = COLUMN_DEFAULTS(EVENT_DEFAULTS);
    const int64_t values[EVENT_COLUMNS] = {
        [EVENT_SIZE] = size,
        [EVENT_RING_LAG] = (int64_t)event->seq - size_column(event->ring_seq),
        [EVENT_PADDING] = size - size_column(event->requested),
        EVENT_MEMBERS(COLUMN_VALUE) /* as they are */
    };
    uint32_t nulls = 1U << EVENT_SEQ EVENT_USES(COLUMN_NULL);
    unsigned count = record_columns(values, nulls, &defaults, EVENT_COLUMNS);
    return row_pages_add(store->pages, ROWS_EVENT, event->seq, values, nulls, count);
}

/* Would its allocation's row say all of it? */
static bool event_can_be_held(struct store *store, const struct derive *derive, const struct event *event)
{
    return store->keep != VARVE_KEEP_ALLOCATIONS && derive_can_hold(derive, event) &&
           rows_is_thread(store, event->thread_id, event->process_id, event->pid, event->tid);
}

/* Then it has none of its own. */
static bool event_is_held(struct store *store, struct derive *derive, const struct event *event)
{
    const bool is_held =
        (store->event_log != NULL || !derive_may_return(event)) && event_can_be_held(store, derive, event);
    if (is_held) {
        derive_hold(derive, event);
    }
    return is_held;
}

void store_hold_again(struct store *store, struct derive *derive, const struct event *event, bool is_held)
{
    const bool was_held =
        is_held ? derive_can_hold(derive, event) : derive_may_return(event) && event_can_be_held(store, derive, event);
    if (was_held) {
        derive_hold(derive, event);
    }
}

int store_append(struct store *store, struct derive *derive, const struct event *event, struct varve_message *message)
{
    assert(event->seq == store->seq_last + 1);
    if (store->keep != VARVE_KEEP_TOTALS) {
        bool is_held = event_is_held(store, derive, event);
        if (store->event_log != NULL) {
            VARVE_TRY(event_log_append(store->event_log, event, is_held && !derive_may_return(event)));
        } else if (!is_held && !event_row_add(store, event)) {
            return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "%s: no memory for events", store->path);
        }
    }
    store->seq_last = event->seq;
    store->pending++;
    return VARVE_OK;
}

/* Of short-lived allocations no event is kept, of the others those that their rows hold. */
static bool event_is_left_out(const struct store *store, const struct event *event)
{
    return store->keep_rows == VARVE_KEEP_ALLOCATIONS ||
           (store->keep_rows == VARVE_KEEP_LASTING && kind_is_of_heap(event->kind));
}

struct events_pass {
    struct store *store;
    const struct derive *derive;
};

/* What was freed by a realloc did not come back: its row holds that. */
static bool event_row_pass(void *context, struct event *event)
{
    const struct events_pass *pass = context;
    return event_is_left_out(pass->store, event) ||
           (derive_may_return(event) && derive_holds_free(pass->derive, event)) || event_row_add(pass->store, event);
}

int events_finish(struct store *store, const struct derive *derive, struct varve_message *message)
{
    struct events_pass pass = {.store = store, .derive = derive};
    if (store->event_log == NULL) {
        return VARVE_OK;
    }
    int error = event_log_flush(store->event_log, message);
    VARVE_THEN(error, event_log_rest(store->event_log, event_row_pass, &pass, message));
    return error == VARVE_OK && event_log_waiting(store->event_log) > 0
               ? varve_message_set(message, VARVE_ERROR_NO_MEMORY, "%s: no memory for events", store->path)
               : error;
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
    return (uint64_t)bytes + row_pages_bytes(store->pages) + events * EVENT_ROW_BYTES +
           derive->scratch.count * ALLOCATION_ROW_BYTES;
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

/* A commit writes what was appended into the log before it says so. Without a log it is in pages, which should not pile
 * up. */
static int log_commit(struct store *store, struct varve_message *message)
{
    if (store->event_log == NULL) {
        int error = row_pages_flush(store->pages);
        return error != VARVE_OK
                   ? varve_message_set(message, error, "%s: cannot write: %s", store->path, varve_strerror(error))
                   : VARVE_OK;
    }
    if (store->pending == 0) {
        return VARVE_OK;
    }
    int error = event_log_seal(store->event_log);
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
        commit_hand_over(store);
        store->pending = 0;
    }
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

int store_pages_open(const struct store *store, struct row_pages **pages_out, struct varve_message *message)
{
    char path[4096 + 16];
    snprintf(path, sizeof(path), "%s" ROWS_SUFFIX, store->path);
    return row_pages_open(path, pages_out, message);
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
        VARVE_THEN(error, schema_query(store->db, store->path, sql_is_complete, &complete, message));
    }
    if (error == VARVE_OK && complete == 0) {
        error = schema_pragmas(store->db, store->path, store->is_private, message);
    }
    if (error == VARVE_OK && is_empty) {
        error = schema_create(store->db, store->path, message);
    }
    VARVE_THEN(error, schema_query(store->db, store->path, sql_symbol_last, &symbol_last, message));
    VARVE_THEN(error, store_pages_open(store, &store->pages, message));
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
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal", LOG_SUFFIX, ROWS_SUFFIX};
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
    VARVE_THEN(error, schema_open(store->path, &store->db, message));
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
    commit_join(store);
    (void)allocations_finish(store, NULL, NULL, NULL);
    for (unsigned i = 0; i < STATEMENT_LIMIT; i++) {
        sqlite3_finalize(store->statements[i]);
    }
    sqlite3_close(store->db);
    row_pages_close(store->pages);
    row_pages_close(store->allocations.pages);
    event_log_close(store->event_log);
    if (store->lock_fd >= 0) {
        close(store->lock_fd);
    }
    free(store->rows.bytes);
    free(store->behind.rows.bytes);
    hash_numbers_free(&store->symbols.numbers);
    functions_free(&store->functions);
    free(store->threads.ids);
    free(store->path);
    free(store);
}
