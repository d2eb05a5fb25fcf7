/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether anything was lost, in the words of what happened. Every report begins with it, since figures over an
 * incomplete trace are lower bounds; record and recover end with it.
 */
#ifndef VARVE_ANALYSIS_QUERY_LOSS_NOTE_H
#define VARVE_ANALYSIS_QUERY_LOSS_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The interpreters whose frames the recorder reads: CPython 3.9 to 3.15. */
#define REPORT_PYTHON_FIRST 9
#define REPORT_PYTHON_LAST 15

struct cJSON;
struct database;
struct varve_collect_result;

/* Sums over the rings: emitted = stored + lost + uncommitted. The columns of sql_losses, in their order. */
struct report_loss {
    int64_t threads, emitted, stored, spilled, lost, lost_bytes, uncommitted, threads_with_loss;
    /* of the uncommitted, by what came in between; these are all of them */
    int64_t interrupted_by_kill, interrupted_by_exec, interrupted_by_stop, interrupted_by_end;
    int64_t running; /* processes that lived on when the recording stopped */
    int64_t killed,
        unknown;        /* processes that a signal ended; that ended without their exit handlers, nobody knows how */
    int64_t killed_by;  /* the signal of all of the killed, 0: of different ones */
    int64_t unrecorded; /* programs that could not be recorded */
    int64_t unrecorded_runs;      /* how often these ran */
    int64_t stat_rows;            /* rows of data_loss */
    int64_t other_rows;           /* of these, such as report_loss_words has no words for */
    int64_t not_derived;          /* events that a collector had added up which was killed */
    int64_t frees_unknown;        /* in no total, as the allocations of their blocks are among what was lost */
    int64_t unhooked_heaps;       /* processes whose heap no hook sees: their program brings its allocator */
    int64_t unhooked_libraries;   /* of programs that are recorded else */
    int64_t unattached;           /* events that no ring took */
    int64_t unattached_processes; /* processes of which nothing but a number is known */
    int64_t damaged;              /* rings of which it is not known what they held */
    int64_t unread_pythons;       /* processes with an interpreter whose frames are not read: no loss of events */
};

void report_loss_load(struct report_loss *loss, struct database *database);
bool report_is_lossless(const struct report_loss *loss);
/// Is there anything to be said above an answer? A loss, or call sites without lines of Python.
bool report_has_remarks(const struct report_loss *loss);
/// One line (and a line per kind of loss): what a reader of the figures must know.
void report_loss_print(FILE *out, struct database *database, const struct report_loss *loss);
/// The same in a few words for the end of a line: what was lost, who still runs, who was killed.
void report_loss_words(FILE *out, const struct report_loss *loss);
/// The programs that could not be recorded, the first few of them, if there are any: part of a line.
void report_unrecorded_print(FILE *out, struct database *database, const struct report_loss *loss);
/// For a command that has just made the database of `result`: the words, with a ';' before each.
void report_result_words(FILE *out, const struct varve_collect_result *result);
/// The events that were begun and never committed, and what interrupted them, if there are any: for its last line, with
/// a ';' before.
void report_result_interrupted(FILE *out, const struct varve_collect_result *result);
/// And a line with the programs that could not be recorded, if there are any.
void report_result_programs(FILE *out, const struct varve_collect_result *result);
struct cJSON *report_loss_json(struct database *database, const struct report_loss *loss);

/* A recording that began when its program ran already (`varve attach`): what it can't know. */

/// In a sentence; "" for a recording from the program's start.
void report_attached_words(char *text, size_t bytes, struct database *database);
/// attached_pid and frees_unknown; nothing for a recording from the start.
void report_attached_json(struct cJSON *object, struct database *database);

/*
 * What a recording did not keep on purpose (varve record --keep, --max-size), in words. Reports begin with it; what
 * needs events that are not there is refused with it. And that a history had no times.
 */

struct varve_message;

/// Every event has a row, or that of its allocation; but for short-lived ones of heap and Python.
bool report_keeps_events(struct database *database);
/// Of allocations, only those that were never freed have a row.
bool report_keeps_only_live(struct database *database);
/// Every allocation of the domain has a row; NULL: of each domain.
bool report_keeps_allocations(struct database *database, const char *domain);
/// A line of a large database: what it would have taken with totals alone. Nothing of others.
void report_result_size(FILE *out, const struct varve_collect_result *result);
/// A sentence without its full stop; "" if everything was kept.
void report_kept_words(char *text, size_t bytes, struct database *database);
/// `keep`, and where they apply `kept_events` and `callsites_joined`.
void report_kept_json(struct cJSON *object, struct database *database);
/// It is of a history without times, for which the order of its events stands; then a line that says so.
bool report_has_no_times(struct database *database);
void report_times_print(FILE *out, struct database *database);
void report_times_json(struct cJSON *object, struct database *database); /* `times`: "order" then, else nothing */
/// For what can't be worked out without all events, those of heap and Python or without them. VARVE_ERROR_UNSUPPORTED,
/// with the reason.
int report_require_events(struct database *database, bool of_heap, struct varve_message *message);

#endif
