/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to sqlite_*.c */
/*
 * The database behind `struct store`. One thread, the collector's, owns it.
 *
 * A commit must be repeatable: when the disk is full SQLite throws the whole transaction away, and the rings
 * hand their slots back only after a commit. So everything since the last commit is kept in memory: events in
 * chunks, rows of the small tables in a log. After a rollback (`must_replay`) the next statement of a new
 * transaction is preceded by all of it. What derive_finish and sites_finish write is not kept: when one of
 * them or store_finish fails, all three are called again.
 */
#ifndef VARVE_SQLITE_INTERNAL_H
#define VARVE_SQLITE_INTERNAL_H

#include "trace/collect_internal.h"

#include <sqlite3.h>

extern const char store_schema_sql[];
extern const char store_views_sql[];

/* ---- sqlite_vtab.c: arrays of structs as tables that `INSERT … SELECT` reads ---- */

/* Rows as the tables of the same names have them. */
struct store_allocation {
    uint64_t id;
    int32_t pid, tid;
    uint32_t process_id, callsite;
    uint64_t addr, size, requested;
    uint64_t alloc_seq, free_seq; /* free_seq 0: live, free_ns is not used */
    int64_t alloc_ns, free_ns;
    uint8_t domain, source, temporary;
};

struct store_callsite_stat {
    uint32_t callsite;
    uint32_t domain;
    uint64_t allocations, frees, bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary;
    int64_t lifetime_ns;
};

struct store_sample {
    uint32_t process_id;
    uint32_t domain;
    uint64_t seq;
    int64_t ts_ns;
    uint64_t allocated, allocated_max, live;
};

enum store_source {
    SOURCE_EVENT,      /* struct event */
    SOURCE_ALLOCATION, /* struct store_allocation */
    SOURCE_CALLSITE_STAT,
    SOURCE_SAMPLE,
    SOURCE_LIMIT,
};

struct store_vtab; /* what the virtual tables read at present; owned by the store */

int vtab_register(sqlite3 *db, struct store_vtab **vtab_out);
void vtab_free(struct store_vtab *vtab);
/// The rows that the next `SELECT` from the virtual table of `source` gives. Borrowed until the next call.
void vtab_set_rows(struct store_vtab *vtab, enum store_source source, const void *rows, size_t count);

/* ---- sqlite_schema.c: connection, schema, vocabulary, errors ---- */

/// Message and code for the failure that the connection reports; full disks are VARVE_ERROR_FULL.
int schema_error(sqlite3 *db, const char *path, const char *what, struct varve_message *message);
/// Settings that SQLite accepts only before its first use; a later call has no effect.
void schema_configure(void);
int schema_pragmas(sqlite3 *db, const char *path, struct varve_message *message);
/// Tables, views and the vocabulary of a new database.
int schema_create(sqlite3 *db, const char *path, struct varve_message *message);
/// An existing database is ours, of this program's version, and not complete. `*is_empty_out`: it has no
/// tables at all, since its collector died before it made them.
int schema_verify(sqlite3 *db, const char *path, bool *is_empty_out, struct varve_message *message);
/// The one integer that a query gives, 0 for NULL; `*value_out` is untouched if there is no row.
int schema_query(sqlite3 *db, const char *path, const char *sql, int64_t *value_out,
                 struct varve_message *message);
int schema_index(sqlite3 *db, const char *path, struct varve_message *message);

/* ---- sqlite_rows.c: prepared statements of the small tables ---- */

enum store_statement {
    STATEMENT_META,
    STATEMENT_PROCESS,
    STATEMENT_THREAD,
    STATEMENT_STAT,
    STATEMENT_ANCHOR,
    STATEMENT_ORIGIN,
    STATEMENT_POSITION,
    /* Those above are kept for a replay, those below are not. */
    STATEMENT_MODULE,
    STATEMENT_SYMBOL,
    STATEMENT_CALLSITE,
    STATEMENT_FRAME,
    STATEMENT_TOTAL_STAT,
    STATEMENT_EVENTS, /* from the virtual tables; SOURCE_EVENT twice, the second for heap events alone */
    STATEMENT_HEAP_EVENTS,
    STATEMENT_ALLOCATIONS,
    STATEMENT_CALLSITE_STATS,
    STATEMENT_SAMPLES,
    STATEMENT_LIMIT,
};

struct store_value {
    const char *text; /* NULL: an integer */
    int64_t integer;
    bool is_null;
};

#define VALUE_INTEGER(value) ((struct store_value){.integer = (int64_t)(value)})
#define VALUE_NULL ((struct store_value){.is_null = true})

static inline struct store_value value_text(const char *text)
{
    return (struct store_value){.text = text, .is_null = text == NULL};
}

/* Negative or zero stands for NULL. */
static inline struct store_value value_not_negative(int64_t value)
{
    return (struct store_value){.integer = value, .is_null = value < 0};
}

/* A row of a small table that is not committed yet, in `log`: this, then its values, texts with their NUL. */
struct store_log {
    char *bytes;
    size_t used;
    size_t capacity;
};

struct symbol_slot {
    uint64_t hash[2];
    uint32_t id; /* 0: empty */
};

/* One INSERT takes so many: few enough that they are still in the CPU's cache when SQLite reads them. */
#define CHUNK_EVENTS 4096U

struct store_chunk {
    struct store_chunk *next;
    size_t count;
    bool is_inserted; /* in the open transaction */
    bool has_other;   /* events that are not of group heap, which need more columns */
    struct event events[CHUNK_EVENTS];
};

struct store {
    sqlite3 *db;
    char *path;
    int lock_fd; /* holds flock(LOCK_EX) on the database file; closed after db, see store_close */
    struct store_vtab *vtab;
    sqlite3_stmt *statements[STATEMENT_LIMIT]; /* prepared on first use */
    bool is_in_transaction;
    bool must_replay;
    bool has_derived;  /* derive_finish succeeded, in the open transaction */
    uint64_t seq_last; /* of the last event appended */
    uint64_t pending;
    struct store_chunk *first; /* chunks since the last commit, oldest first */
    struct store_chunk *last;
    struct store_log log;
    struct symbol_slot *symbols;
    size_t symbol_capacity; /* a power of two, 0 before the first */
    uint32_t symbol_count;
    uint32_t symbol_last;
    struct varve_message failure; /* of the last small row: those functions take no message */
};

/// The statement, prepared; NULL on failure.
sqlite3_stmt *rows_statement(struct store *store, enum store_statement statement);
/// Bind, step and reset, in the open transaction, which is begun if there is none.
int rows_write(struct store *store, enum store_statement statement, const struct store_value *values,
               unsigned count);
int rows_replay(struct store *store, struct varve_message *message);
/// The symbols handed out are not all in the database any more.
void rows_forget_symbols(struct store *store);

/* ---- sqlite_writer.c ---- */

/// Begin a transaction if there is none, and repeat in it what a rollback took away.
int writer_begin(struct store *store, struct varve_message *message);
/// After an error: roll back, and remember to repeat. Returns its code.
int writer_fail(struct store *store, const char *what, struct varve_message *message);
int writer_insert_rows(struct store *store, enum store_statement statement, enum store_source source,
                       const void *rows, size_t count, struct varve_message *message);
int writer_execute(struct store *store, const char *sql, struct varve_message *message);

#endif
