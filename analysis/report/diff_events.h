/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two traces of one run, event by event. The key of an event is its process, its ring and its number in that ring,
 * which every sink stores; the order of the rows is none, since sinks may break ties of two rings as they like. The
 * traces are called A and B, as on the command line. Called by cli/command_diff.c; diff_events_print.h prints what was
 * found.
 */
#ifndef VARVE_ANALYSIS_REPORT_DIFF_EVENTS_H
#define VARVE_ANALYSIS_REPORT_DIFF_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct database;
struct progress;
struct varve_message;

enum diff_side {
    DIFF_A,
    DIFF_B,
    DIFF_SIDES,
};

struct diff {
    struct database *traces[DIFF_SIDES]; /* the caller's */
    int64_t limit;                       /* differences that are listed */
    bool with_tables;                    /* what differs of processes and threads is a difference too */
    /* what was found: tables and views of diff_events.sql and diff_words.sql */
    struct database *two;
    bool is_equal, is_other_run;
};

/// Compare diff->traces, which are open. Errors: VARVE_ERROR_VERSION (events without numbers), those of the databases.
int diff_events_compare(struct diff *diff, struct progress *progress, struct varve_message *message);
/// The first error of any of the three databases since they were opened, or 0.
int diff_error(const struct diff *diff, struct varve_message *message);
void diff_free(struct diff *diff); /* what was found */

#endif
