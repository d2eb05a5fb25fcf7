/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a recording beside limits: its peak, what it allocated and left, by number and beside another recording,
 * and the leak score of each line. Figures are those of the report (view `total`) and of `varve leaks`. Called by
 * cli/command_check.c; limit_print.h prints what was found.
 */
#ifndef VARVE_ANALYSIS_REPORT_LIMIT_CHECK_H
#define VARVE_ANALYSIS_REPORT_LIMIT_CHECK_H

#include "analysis/query/callsite_query.h"
#include "analysis/query/loss_note.h"
#include "analysis/report/leak_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMIT_LEAKS_MAX 10         /* lines that are named */
#define LIMIT_GROWTH_ONE 10000     /* as much again: 100 % */
#define LIMIT_GROWTH_MAX 100000000 /* a million percent */

struct database;
struct varve_message;

enum limit_figure {
    LIMIT_PEAK,        /* bytes live at the peak of the domain */
    LIMIT_LIVE,        /* bytes live at the end */
    LIMIT_ALLOCATED,   /* bytes in all */
    LIMIT_ALLOCATIONS, /* their number */
    LIMIT_FIGURES,
};

/* What is asked for. */
struct limits {
    const char *domain;             /* NULL: heap and mmap together; else that of the other commands */
    int64_t figures[LIMIT_FIGURES]; /* at most; < 0: any */
    int64_t leak_score;             /* of a line at most, in hundredths; < 0: any */
    struct database *base;          /* beside which nothing may grow more than this; NULL: none */
    int64_t growth;                 /* of LIMIT_GROWTH_ONE */
};

enum limit_unit {
    LIMIT_IN_BYTES,
    LIMIT_IN_ALLOCATIONS,
    LIMIT_IN_HUNDREDTHS,
};

struct limit_verdict {
    const char *name;   /* static: "peak", "live at the end", "allocated", "allocations", "leak" */
    const char *domain; /* the check's; of a leak its line's */
    enum limit_unit unit;
    int64_t value, most;
    int64_t base; /* the figure of the other recording; -1: the limit is a number */
    bool is_broken;
    const struct callsite_row *line; /* the check's: that has most of it, or leaks; NULL: none */
    int64_t line_bytes, line_allocations;
};

struct limit_check {
    const char *domain;      /* static, or the limits' */
    const char *leak_domain; /* likewise: that of `varve leaks` */
    const char *base;        /* name of the other recording; NULL: none */
    struct limit_verdict *verdicts;
    size_t count, broken;
    int64_t leaks_left_out; /* lines with a score above the limit beyond LIMIT_LEAKS_MAX */
    struct report_loss loss;
    struct callsite_list lists[LIMIT_FIGURES]; /* of one row each */
    struct leak_list leaks;
};

/// Owner: the caller, by limit_check_free, after an error too. Errors: VARVE_ERROR_NOT_FOUND (no such domain), those of
/// leak_list_load and of the base; reading ends early on an error of the database: database_error.
int limit_check_load(struct limit_check *check, struct database *database, const struct limits *limits,
                     struct varve_message *message);
void limit_check_free(struct limit_check *check);

#endif
