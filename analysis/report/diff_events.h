/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two traces of one run, event by event. The key of an event is its process, its ring and its number in that ring,
 * which every sink stores; the order of the rows is none, since sinks may break ties of two rings as they like. The
 * traces are called A and B, as on the command line. Called by cli/command_diff.c; diff_events_print.h prints what was
 * found.
 */
#ifndef VARVE_ANALYSIS_REPORT_DIFF_EVENTS_H
#define VARVE_ANALYSIS_REPORT_DIFF_EVENTS_H

#include "base/error.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct database;
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
    int64_t seq;                  /* row */
};

/* One trace. events = compared + alone + without_number + without_thread + out_of_order. */
struct diff_trace {
    struct database *database;
    int64_t events; /* all rows but gap_rows */
    int64_t lost_rows,
        lost_events; /* rows that stand for dropped events, and how many these were; compared like others */
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
    uint32_t fields;                       /* bit i: enum diff_field */
    int64_t id_partners[DIFF_SIDES];       /* of each side's id before: the other side's; 0: none */
    int64_t callsite_partners[DIFF_SIDES]; /* the same of callsite_id */
};

enum diff_what {
    DIFF_ONLY_A = DIFF_A,
    DIFF_ONLY_B = DIFF_B,
    DIFF_DIFFERS,
};

/* One line of the list: a run of events that only one side has, or an event that differs. */
struct diff_entry {
    enum diff_what what;
    int64_t process_id, ring;
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
    char *table;              /* "process", "thread" */
    int64_t process_id, ring; /* ring -1: of `process` */
    char *column;             /* NULL: one side has no such row */
    char *values[DIFF_SIDES]; /* NULL: NULL, or no such row */
};

struct diff_remarks {
    struct diff_remark *items;
    size_t count;
};

enum diff_runs {
    DIFF_RUNS_UNKNOWN, /* one of the traces does not say which run it is of */
    DIFF_RUNS_SAME,
    DIFF_RUNS_OTHER,
};

struct diff {
    struct diff_trace traces[DIFF_SIDES];
    enum diff_runs runs;
    int64_t rings; /* of which either side has an event */
    struct diff_totals kinds[DIFF_KINDS];
    int64_t fields[DIFF_FIELD_LIMIT];           /* events that differ there */
    int64_t callsite_pairs, callsite_pairs_odd; /* call sites met together, with equal and with other frames */
    struct diff_entry *entries;                 /* the first entry_limit */
    size_t entry_count, entry_limit;
    int64_t entries_all;
    struct diff_remarks remarks;
    bool with_tables; /* remarks are differences too */
};

/// Compare diff->traces, whose databases are open. Errors: VARVE_ERROR_VERSION (events without numbers), those of the
/// databases.
int diff_events_compare(struct diff *diff, struct progress *progress, struct varve_message *message);
struct diff_totals diff_totals_all(const struct diff *diff); /* of all kinds */
/// Events that could not be compared, of one side.
int64_t diff_unkeyed(const struct diff_trace *trace);
bool diff_is_equal(const struct diff *diff);
void diff_free(struct diff *diff); /* what was found; the databases are the caller's */

/* events as text */

struct diff_value {
    char text[80];
};

const char *diff_field_name(enum diff_field field);
/// Index of a kind, below DIFF_KINDS, and the name of such an index.
uint32_t diff_kind_index(int64_t kind);
const char *diff_kind_name(uint32_t kind);
/// As people read it: kinds and causes by name, addresses in hexadecimal.
struct diff_value diff_value_text(const struct diff_event *event, enum diff_field field);
/// The name that stands for the number, NULL if it is a plain number (kind, cause).
const char *diff_value_name(const struct diff_event *event, enum diff_field field);

#endif
