/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What grew, what is new and what went between two runs, or between two moments of one: by domain, by size class and by
 * the user's line (or its function or module, or by whole stacks), in bytes and allocations, in all, at the peak and
 * live at the end. Lines are the same where their function, file and number are. Called by cli/command_diff.c.
 */
#ifndef VARVE_ANALYSIS_REPORT_DIFF_GROWTH_H
#define VARVE_ANALYSIS_REPORT_DIFF_GROWTH_H

#include "analysis/report/diff_stacks.h"

#include <stdint.h>
#include <stdio.h>

struct database;
struct progress;
struct varve_message;

enum growth_metric {
    GROWTH_PEAK,      /* bytes live at the peak of the domain */
    GROWTH_ALLOCATED, /* bytes allocated in all */
    GROWTH_LEAKED,    /* bytes live at the end */
    GROWTH_COUNT,     /* allocations */
};

/* A trace, or its beginning up to an event. */
struct growth_side {
    struct database *database;
    int64_t seq; /* the last event that counts; -1: the whole trace. A beginning has no peak. */
};

struct growth_options {
    enum growth_metric metric;
    enum diff_by by;
    const char *domain; /* NULL: all, but for those that repeat another */
    int64_t top;        /* rows of each list; < 0: all, unchanged ones too */
    int64_t frames;     /* of each stack; < 0: as suits the format, with other entries than stacks none */
};

struct growth {
    struct growth_side a, b;
    struct growth_options options;
    struct database *two; /* both, and the tables of the comparison */
};

extern const char *const growth_by_names[]; /* of enum diff_by; ends with NULL */
extern const char *const growth_metric_names[];

/// Compare growth->a and growth->b as growth->options say; both are whole or both are not. Errors: those
/// of the databases.
int growth_compare(struct growth *growth, struct progress *progress, struct varve_message *message);
/// What reads ends early on an error of one of the three databases: growth_error.
void growth_text(FILE *out, const struct growth *growth);
void growth_json(FILE *out, const struct growth *growth);
int growth_error(const struct growth *growth, struct varve_message *message);
void growth_close(struct growth *growth); /* the two databases stay the caller's */

#endif
