/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state behind `struct store`: the connection, prepared statements, and the rows that are committed.
 *
 * Rows of large tables become pages (row_pages.h), which the end appends to the database. Those of the small tables
 * wait packed after each other. A commit hands them to a thread, which inserts them in one transaction, and goes on
 * with an empty batch. A commit must be repeatable: when the disk is full SQLite throws the whole transaction away, and
 * the rings hand their slots back only after a commit. So a batch is kept until it is in the database.
 */
#ifndef VARVE_TRACE_STORE_STORE_TRANSACTION_H
#define VARVE_TRACE_STORE_STORE_TRANSACTION_H

#include "base/error.h"
#include "trace/collect.h"
#include "trace/store/function_totals.h"
#include "trace/store/hash_numbers.h"
#include "trace/store/row_pages.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Name, table, SQL, which gets the table and, where it asks for them, a mark for each value. */
#define STATEMENT_LIST(X)                                         \
    X(META, "meta", sql_row_replace)                              \
    X(PROCESS, "process", sql_row_replace)                        \
    X(RSS, "rss_sample", sql_row_replace)                         \
    X(THREAD, "thread", sql_row_replace)                          \
    X(THREAD_GONE, "thread", sql_thread_gone)                     \
    X(THREAD_CUT, "thread", sql_thread_cut)                       \
    X(STAT, "stats", sql_row_replace)                             \
    X(ANCHOR, "clock_anchor", sql_row_replace)                    \
    X(UNRECORDED, "unrecorded_program", sql_unrecorded)           \
    X(UNRECORDED_NONE, "unrecorded_program", sql_unrecorded_none) \
    X(ORIGIN, "callsite_origin", sql_row_replace)                 \
    X(DEVICE, "device", sql_row_replace)                          \
    X(STREAM, "stream", sql_row_replace)                          \
    X(POOL, "pool", sql_row_replace)                              \
    X(POSITION, "ring_position", sql_row_replace)                 \
    X(MODULE, "module", sql_row_replace)                          \
    X(SYMBOL, "symbol", sql_row_insert)                           \
    X(MAIN_END, "process", sql_main_end)                          \
    X(CALLSITE_SHARE, "callsite_share", sql_callsite_share)       \
    X(TOTAL_STAT, "total_stat", sql_row_insert)                   \
    X(SIZE_STAT, "size_stat", sql_row_insert)                     \
    X(WORK, "work", sql_work)                                     \
    X(HOST_PEAK, "host_peak", sql_row_insert)                     \
    X(GROWTH, "callsite_growth", sql_growth)                      \
    X(SAMPLE, "sample", sql_row_insert)                           \
    X(SEGMENT, "segment", sql_row_insert)                         \
    X(LADDER_PEAK, "ladder_peak_stat", sql_row_insert)            \
    X(OOM, "oom", sql_row_insert)                                 \
    X(MARK, "mark", sql_row_insert)                               \
    X(KEYFRAME, "keyframe", sql_row_insert)                       \
    X(PROCESS_DEVICE, "process_device", sql_row_replace)          \
    X(DEVICE_CALL, "device_call_stat", sql_row_insert)            \
    X(DEVICE_MEMORY, "device_memory", sql_row_insert)             \
    X(STREAM_STAT, "stream_stat", sql_row_insert)                 \
    X(DEVICE_EVENT, "device_event", sql_row_insert)               \
    X(REMAT_EVENT, "remat_event", sql_row_insert)                 \
    X(OPERATOR, "operator_stat", sql_row_insert)                  \
    X(EVICTION, "eviction_stat", sql_row_insert)                  \
    X(REMAT_STORAGE, "remat_storage_stat", sql_row_insert)        \
    X(REMAT_BUDGET, "remat_budget", sql_row_insert)               \
    X(REMAT_FAILURE, "remat_failure_stat", sql_row_insert)        \
    X(REMAT_BLOCKED, "remat_blocked_stat", sql_row_insert)        \
    X(FUNCTION_STAT, "function_stat", sql_row_replace)

#define STATEMENT_NAME(name, table, sql) STATEMENT_##name,
enum store_statement {
    STATEMENT_LIST(STATEMENT_NAME) /* each a name */
    STATEMENT_LIMIT,
};

struct store_value {
    const char *text; /* NULL: an integer */
    const void *blob; /* `integer` bytes */
    int64_t integer;
    bool is_null;
};

#define VALUE_NULL ((struct store_value){.is_null = true})
/* Of an integer, or of a text. */
#define VALUE(value) _Generic((value), char * : value_text, const char * : value_text, default : value_integer)(value)

static inline struct store_value value_integer(int64_t value)
{
    return (struct store_value){.integer = value};
}

static inline struct store_value value_text(const char *text)
{
    return (struct store_value){.text = text, .is_null = text == NULL};
}

/* Less than `least` stands for NULL. */
static inline struct store_value value_least(int64_t least, int64_t value)
{
    return (struct store_value){.integer = value, .is_null = value < least};
}

/* Rows of small tables that wait, in their order: what one commit writes; packed, see store_transaction.c. */
struct store_rows {
    char *bytes;
    size_t used;
    size_t capacity;
};

/* The symbols that have rows: number k is row first + k. */
struct store_symbols {
    struct hash_numbers numbers;
    uint32_t first;
};

/* What a row of `thread` says of who wrote an event. */
struct thread_ids {
    uint32_t process_id; /* 0: there is no row */
    int32_t pid, tid;
    bool is_used; /* by rows that say no more than the thread */
};

struct store_threads {
    struct thread_ids *ids; /* by number */
    size_t limit;
};

/* The rows of `allocation` while a thread makes them, see allocation_store.c. */
struct store_allocations {
    struct row_pages *pages; /* NULL: none yet */
    struct derive *derive;
    uint64_t addr_base;
    pthread_t thread;
    bool is_begun;
    bool is_running; /* there is a thread to be joined */
    uint64_t done;   /* rows, for whoever shows it */
    int error;
};

/* The commit under way: a thread inserts its rows while others are added, and has the connection until it ends. Whoever
 * needs the connection waits for it (store_wait). */
struct store_behind {
    struct store_rows rows;
    bool is_due;     /* they are not known to be in the database */
    bool is_running; /* there is a thread to be joined */
    bool is_done;    /* by the thread, when it ends */
    pthread_t thread;
    int error; /* of the last attempt, with its reason */
    struct varve_message message;
};

struct derive;
struct event_log;

struct store {
    sqlite3 *db;
    char *path;
    int lock_fd;             /* holds flock(LOCK_EX) on the database file; closed after db, see store_close */
    struct row_pages *pages; /* rows of large tables but allocations */
    struct store_rows rows;  /* what was written to the others since the last commit was begun */
    struct store_behind behind;
    sqlite3_stmt *statements[STATEMENT_LIMIT]; /* prepared on first use */
    bool is_private;               /* nobody else reads it, and there is no rollback: the first error stays */
    bool is_complete;              /* found so when it was opened to be resumed */
    enum varve_keep keep;          /* see store_keep */
    enum varve_keep keep_rows;     /* the last one with rows: of what was taken before */
    bool has_derived;              /* derive_finish succeeded */
    uint64_t seq_last;             /* of the last event appended */
    uint64_t pending;              /* events appended since the last commit was begun */
    struct event_log *event_log;   /* NULL: events become rows at once */
    const uint32_t *callsite_rows; /* see store_callsite_rows; NULL: each is its own */
    size_t callsite_limit;
    struct store_threads threads;
    struct store_allocations allocations;
    struct store_symbols symbols;
    uint32_t symbol_last;
    struct function_totals functions;
    struct varve_message failure; /* of the last small row: those functions take no message */
};

/// The statement, prepared for so many values; NULL on failure.
sqlite3_stmt *rows_statement(struct store *store, enum store_statement statement, unsigned count);
/// A row of a small table. A commit may be begun, where nothing waits for positions.
int rows_write(struct store *store, enum store_statement statement, const struct store_value *values, unsigned count);
/* The same with the values themselves. */
#define ROWS_WRITE(store, statement, ...)                                   \
    rows_write(store, statement, (const struct store_value[]){__VA_ARGS__}, \
               sizeof((const struct store_value[]){__VA_ARGS__}) / sizeof(struct store_value))
/// Equal for equal symbols; their rank follows from the rest.
struct wide_hash symbol_hash(const struct store_symbol *symbol);
/* All of a list of columns_generated.h, as such values. */
#define ROW_VALUE(column, member) VALUE(member),
/// Whether row `thread_id` of `thread`, as the database has it or will with the next commit, is of these;
/// it stays so then.
bool rows_is_thread(struct store *store, uint32_t thread_id, uint32_t process_id, int32_t pid, int32_t tid);
/// A file for rows of the store, see row_pages_open.
int store_pages_open(const struct store *store, struct row_pages **pages_out, struct varve_message *message);
/// The threads that a database has which is to be continued.
int rows_threads_read(struct store *store, struct varve_message *message);
/// What rows name for this call site.
static inline uint32_t rows_callsite(const struct store *store, uint32_t callsite)
{
    return store->callsite_rows != NULL && callsite < store->callsite_limit ? store->callsite_rows[callsite] : callsite;
}

/// Bind and step each row, in the open transaction. False: SQLite has the reason.
bool rows_insert(struct store *store, const struct store_rows *rows);
/// Hand the rows to a thread, or write them here if there is none; the one before was waited for.
void commit_hand_over(struct store *store);
/// No thread has the connection any more; what could not be written is not tried again.
void commit_join(struct store *store);
/// All that was written is in the database when this returns VARVE_OK; positions of rings it says nothing of.
int store_sync(struct store *store, struct varve_message *message);
/// Statements that do not wait, after all rows that do.
int writer_execute(struct store *store, const char *sql, struct varve_message *message);

#endif
