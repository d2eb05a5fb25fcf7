/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two traces of one run, event by event. The key of an event is its process, its ring and its number in that
 * ring, which every sink stores; the order of the rows is none, since sinks may break ties of two rings as
 * they like. The traces are called A and B, as on the command line.
 *
 *   cli/diff.c ─► rings.c    which numbers of each ring are where: the first reading of both
 *                 ├─► events.c   what is in both, compared: the second reading
 *                 │     ├─► pairs.c    row numbers: equal up to renaming
 *                 │     ├─► sites.c    stacks
 *                 │     └─► result.c   what was found
 *                 ├─► tables.c   processes and threads
 *                 └─► text.c (list.c), json.c: the answer, with names from names.c
 *
 * Both readings take their rows from rows.c, which reads B in a thread of its own; everything else is
 * called by one thread. What reads ends early on a database error: see database_error.
 *
 * Memory: 8 bytes for each allocation, 16 for each call site, 16 for each run of numbers without a gap, and
 * the events of B that lie before others which A has earlier.
 */
#ifndef VARVE_ANALYSIS_QUERY_DIFF_DIFF_H
#define VARVE_ANALYSIS_QUERY_DIFF_DIFF_H

#include "analysis/history/input/prefetch.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct progress;

enum diff_side {
    DIFF_A,
    DIFF_B,
    DIFF_SIDES,
};

/* What is compared of an event, X(NAME, column of the table). */
/* clang-format off */
#define DIFF_COLUMN_LIST(X) \
    X(TS_NS, ts_ns) X(PID, pid) X(TID, tid) X(DEVICE, device) X(DEV_SEQ, dev_seq) X(KIND, kind) X(STREAM, stream) \
    X(POOL, pool) X(ID, id) X(ADDR, addr) X(SIZE, size) X(REQUESTED, requested) X(ARG, arg) X(CAUSE, cause) \
    X(CALLSITE_ID, callsite_id) X(FLAGS, flags)
/* clang-format on */

enum diff_field {
#define DIFF_FIELD_ENUM(NAME, column) DIFF_FIELD_##NAME,
    DIFF_COLUMN_LIST(DIFF_FIELD_ENUM)
#undef DIFF_FIELD_ENUM
        DIFF_FIELD_FRAMES, /* no column: the stack that callsite_id stands for */
    DIFF_FIELD_LIMIT,
};

#define DIFF_COLUMNS DIFF_FIELD_FRAMES
#define DIFF_KINDS (VARVE_KIND_LIMIT + 1) /* the last one: kinds that the list of events has not */

struct diff_event {
    int64_t values[DIFF_COLUMNS]; /* of NULL: 0 */
    uint32_t nulls;               /* bit i: values[i] is NULL */
    uint32_t ring;                /* index in diff.rings */
    int64_t number;               /* in its ring */
    int64_t thread_id;
    int64_t seq; /* row, to find it again */
    bool has_number;
};

/* ---- rows.c: rows of the table event ---- */

enum diff_reading {
    DIFF_READING_NUMBERS, /* number and thread_id only, of the rows that have a number */
    DIFF_READING_EVENTS,
};

struct diff_rows {
    struct cursor cursor; /* the thread's, if there is one */
    void (*read)(struct diff_rows *rows, struct diff_event *event);
    uint32_t nulls[DIFF_KINDS]; /* of the last event of each kind */
    struct prefetch *ahead;     /* NULL: no thread */
    struct diff_event *buffer;
    size_t at, count;
    bool is_ended;
};

/// `is_ahead`: read by a thread, which has the database to itself until diff_rows_close. `rows` must stay
/// where it is.
void diff_rows_open(struct diff_rows *rows, struct database *database, enum diff_reading reading,
                    bool is_ahead);
/// The next row, without its ring, until the next call; NULL at the end and on a database error.
const struct diff_event *diff_rows_next(struct diff_rows *rows);
void diff_rows_close(struct diff_rows *rows);

/* ---- rings.c: rings, and which numbers of them each side has ---- */

#define DIFF_NO_RING UINT32_MAX

struct diff_run {
    int64_t first, last;
};

/* What one side has of a ring. Numbers grow with the rows; one that does not is no number (out_of_order). */
struct diff_numbers {
    struct diff_run *runs; /* ascending, never touching */
    size_t count, capacity;
    size_t at;    /* the run that the second reading of the other side has come to */
    int64_t last; /* number of the last event, of the reading that goes on */
};

struct diff_open_run {
    int64_t last; /* 0: none yet */
    size_t entry; /* its entry in the list, 1, 2, …; 0: the list was full */
};

struct diff_ring {
    int64_t process_id, ring;
    struct diff_numbers numbers[DIFF_SIDES];
    uint32_t head, tail;                    /* events of B that A has not come to: see events.c */
    struct diff_open_run alone[DIFF_SIDES]; /* the last run of events that only this side has */
};

struct diff_thread {
    int64_t id; /* row */
    uint32_t ring;
};

/* ---- the comparison ---- */

/* Row numbers of one table in A and in B, one to one. */
struct diff_pages {
    uint32_t **pages; /* by number; NULL: nothing in it */
    size_t count;
};

struct diff_pairs {
    struct diff_pages partners[DIFF_SIDES]; /* by number of that side; 0: none yet */
};

struct diff_site {
    int64_t id;
    uint64_t hash; /* of all frames */
};

struct diff_sites {
    struct diff_site *rows; /* ascending */
    size_t count, capacity;
};

/* One trace. events = compared + alone + without_number + without_thread + out_of_order. */
struct diff_trace {
    struct database *database;
    struct diff_thread *threads; /* ascending */
    size_t thread_count, thread_last;
    struct diff_sites sites;
    int64_t events; /* all rows but gap_rows */
    int64_t lost_rows,
        lost_events; /* that tell of dropped events, and how many these were; compared like others */
    int64_t gap_rows, gap_events; /* the same of rows without a number, which stand for missing events */
    int64_t without_number, without_thread, out_of_order;
};

struct diff_kind_count {
    uint32_t kind; /* below DIFF_KINDS */
    int64_t events;
};

/* An event that differs. */
struct diff_detail {
    struct diff_event events[DIFF_SIDES];
    uint32_t fields;                   /* bit i: enum diff_field */
    int64_t id_partners[DIFF_SIDES];   /* of each side's id before: the other side's; 0: none */
    int64_t site_partners[DIFF_SIDES]; /* the same of callsite_id */
};

enum diff_what {
    DIFF_ONLY_A = DIFF_A,
    DIFF_ONLY_B = DIFF_B,
    DIFF_DIFFERS,
};

/* One line of the list: a run of events that only one side has, or an event that differs. */
struct diff_entry {
    enum diff_what what;
    uint32_t ring;
    int64_t first, last; /* numbers */
    int64_t seq;         /* row of the first, in its own trace (of DIFFERS: in A) */
    struct diff_kind_count *kinds;
    size_t kind_count;
    struct diff_detail *detail; /* of DIFFERS */
};

struct diff_totals {
    int64_t both, alone[DIFF_SIDES], differing;
};

/* A row of process or thread that differs, as text. */
struct diff_remark {
    const char *table;        /* "process", "thread" */
    int64_t process_id, ring; /* ring -1: of `process` */
    const char *column;       /* NULL: one side has no such row */
    char *values[DIFF_SIDES]; /* NULL: NULL, or no such row */
};

struct diff_remarks {
    struct diff_remark *items;
    size_t count, capacity;
};

enum diff_runs {
    DIFF_RUNS_UNKNOWN, /* one of the traces does not say which run it is of */
    DIFF_RUNS_SAME,
    DIFF_RUNS_OTHER,
};

struct diff {
    struct diff_trace traces[DIFF_SIDES];
    enum diff_runs runs;
    struct diff_ring *rings; /* by process_id and ring */
    size_t ring_count;
    struct diff_pairs allocations, segments, callsites;
    struct diff_pairs callsites_odd; /* those met together although their frames differ */
    /* what was found */
    struct diff_totals kinds[DIFF_KINDS];
    int64_t fields[DIFF_FIELD_LIMIT];   /* events that differ there */
    int64_t site_pairs, site_pairs_odd; /* of callsites and callsites_odd */
    struct diff_entry *entries;         /* the first entry_limit */
    size_t entry_count, entry_capacity, entry_limit;
    int64_t entries_all;
    struct diff_remarks remarks;
    /* how */
    bool with_tables;    /* remarks are differences too */
    bool stops_at_first; /* only whether they differ is asked */
    struct progress *progress;
    uint64_t rows_read, rows_all;
};

/// Load the threads of both sides and read which numbers of each ring they have.
void diff_rings_scan(struct diff *diff);
void diff_rings_free(struct diff *diff);
/// Index of the ring of a row of `thread`, DIFF_NO_RING if there is no such row.
uint32_t diff_ring_find(struct diff_trace *trace, int64_t thread_id);
/// Take the number of the next row of this ring: false if it does not grow.
bool diff_number_take(struct diff_numbers *numbers, int64_t number);
/// Does the side of `numbers` have it? Asked in ascending order.
bool diff_number_is_there(struct diff_numbers *numbers, int64_t number);
/// Rings of which either side has an event.
int64_t diff_rings_used(const struct diff *diff);
void diff_progress(struct diff *diff, const char *stage);

/* ---- events.c ---- */

/// Compare what both have, in the order of A; count and list what one has. Errors: VARVE_ERROR_BUSY (a
/// database was changed meanwhile), those of the databases.
int diff_events_compare(struct diff *diff, struct varve_message *message);

/* ---- pairs.c ---- */

enum diff_pair {
    DIFF_PAIR_KNOWN, /* these two belong together */
    DIFF_PAIR_NEW,   /* … from now on: neither was seen before */
    DIFF_PAIR_WRONG, /* one of them belongs to another */
};

/// Numbers from 1 on. Those from 2^32 on are no row numbers: they must be equal.
enum diff_pair diff_pairs_take(struct diff_pairs *pairs, int64_t a, int64_t b);
/// What `number` of this side belongs to, 0 if it was not seen.
int64_t diff_pairs_partner(const struct diff_pairs *pairs, enum diff_side side, int64_t number);
void diff_pairs_free(struct diff_pairs *pairs);

/* ---- sites.c ---- */

void diff_sites_load(struct diff_sites *sites, struct database *database);
void diff_sites_free(struct diff_sites *sites);
/// Do two call sites have the same frames? One that is not in the table has none.
bool diff_sites_are_equal(const struct diff_sites *a, int64_t a_id, const struct diff_sites *b, int64_t b_id);

/* ---- result.c ---- */

void diff_result_alone(struct diff *diff, enum diff_side side, const struct diff_event *event);
void diff_result_differs(struct diff *diff, const struct diff_detail *detail);
struct diff_totals diff_result_totals(const struct diff *diff); /* of all kinds */
/// Events that could not be compared, of one side.
int64_t diff_result_unkeyed(const struct diff_trace *trace);
bool diff_result_is_equal(const struct diff *diff);
void diff_result_free(struct diff *diff);

/* ---- tables.c ---- */

/// Compare process by id, thread by process and ring; adds remarks.
void diff_tables_compare(struct diff *diff);
void diff_remarks_free(struct diff_remarks *remarks);

/* ---- names.c: events as text ---- */

struct diff_value {
    char text[80];
};

const char *diff_field_name(enum diff_field field);
/// Index of an event's kind, below DIFF_KINDS, and the name of such an index.
uint32_t diff_kind_of(const struct diff_event *event);
const char *diff_kind_name(uint32_t kind);
/// As people read it: kinds and causes by name, addresses in hexadecimal.
struct diff_value diff_value_text(const struct diff_event *event, enum diff_field field);
/// The name that stands for the number, NULL if it is a plain number (kind, cause).
const char *diff_value_name(const struct diff_event *event, enum diff_field field);

/* ---- text.c, list.c, json.c ---- */

void diff_print_text(FILE *out, const struct diff *diff);
void diff_print_list(FILE *out, const struct diff *diff); /* the entries alone */
void diff_print_json(FILE *out, const struct diff *diff);

#ifdef __cplusplus
}
#endif

#endif
