/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether anything was lost, in the words of what happened. Every report begins with it, since figures over an
 * incomplete trace are lower bounds; record and recover end with it.
 */
#ifndef VARVE_ANALYSIS_QUERY_LOSS_NOTE_H
#define VARVE_ANALYSIS_QUERY_LOSS_NOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The interpreters whose frames the recorder reads: CPython 3.9 to 3.15. */
#define REPORT_PYTHON_FIRST 9
#define REPORT_PYTHON_LAST 15

struct cJSON;
struct database;
struct varve_collect_result;

/* Sums over the rings: emitted = stored + lost + uncommitted. */
struct report_loss {
    int64_t emitted, stored, spilled, lost, lost_bytes, uncommitted;
    /* of the uncommitted, by what came in between; these are all of them */
    int64_t interrupted_by_kill, interrupted_by_exec, interrupted_by_end, interrupted_by_stop;
    int64_t not_derived;   /* events that a collector had added up which was killed */
    int64_t frees_unknown; /* in no total, as the allocations of their blocks are among what was lost */
    int64_t threads, threads_with_loss;
    int64_t stat_rows;  /* rows of data_loss */
    int64_t other_rows; /* of these, such as report_loss_words has no words for */
    int64_t unattached; /* events that no ring took */
    int64_t damaged;    /* rings of which it is not known what they held */
    int64_t running;    /* processes that lived on when the recording stopped */
    int64_t killed,
        unknown;        /* processes that a signal ended; that ended without their exit handlers, nobody knows how */
    int64_t killed_by;  /* the signal of all of the killed, 0: of different ones */
    int64_t unrecorded; /* programs that could not be recorded */
    int64_t unrecorded_runs;      /* how often these ran */
    int64_t unattached_processes; /* processes of which nothing but a number is known */
    int64_t unhooked_heaps;       /* processes whose heap no hook sees: their program brings its allocator */
    int64_t unhooked_libraries;   /* of programs that are recorded else */
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

#endif
