/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was live at a moment, by the line of the user's code: rows of the view leak_line, the most leak-like first.
 *
 * The score is defined in the view (trace/store/views.sql): how evenly the number (or the bytes) that stayed grew with
 * the program's work, whether it still grew in the last of it, and how many blocks say so. Lists are in the order of
 * the score as it is printed; of equal ones the user's own lines come first, then those with more bytes. Lines whose
 * score is printed as 0.00 are counted only, unless they are asked for, and so are those that a suppression matches.
 */
#ifndef VARVE_ANALYSIS_REPORT_LEAK_LIST_H
#define VARVE_ANALYSIS_REPORT_LEAK_LIST_H

#include "analysis/query/callsite_query.h"
#include "analysis/report/leak_moment.h"
#include "analysis/query/line_together.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LEAK_TENTHS 10

struct cJSON;
struct database;
struct varve_message;

struct leak_line {
    /* the user's line; id: call site of the largest block, 0: no stack was recorded; no figures */
    struct callsite_row row;
    char *domain, *pattern;
    char *evidence; /* why it is where it is: a sentence without its full stop, all of whose figures are of this line */
    int64_t allocations;        /* of the line in the whole recording; -1: not of this process, or of another time */
    int64_t live[LEAK_TENTHS];  /* blocks at the end of each tenth; of the last: at the moment */
    struct together together;   /* bytes of the line in the heap and in Python's memory */
    int64_t bytes[LEAK_TENTHS]; /* the same */
    int64_t first_ns, last_ns;  /* when the first and the last of the live ones were allocated */
    double score;               /* 0 to 1, in hundredths */
    bool by_bytes;              /* it is the bytes that grow, not the number */
    bool is_library;            /* no line of the user's code */
};

struct leak_query {
    const char *domain;         /* NULL: heap, and python where the recording has it, each line in one of them */
    int64_t pid, top;           /* 0: all processes */
    const char *at, *from, *to; /* NULL: the default */
    const char *suppress;       /* a file; NULL: the settings of the user only */
    bool is_all;                /* lines of score 0.00 too */
};

struct leak_list {
    struct leak_moment moment;
    struct leak_line *rows;
    size_t count;
    int64_t count_all;                    /* rows that a list without limit would have */
    int64_t unlikely;                     /* lines of score 0.00 that are not among them */
    int64_t suppressed, suppressed_bytes; /* lines that are not either */
    int64_t allocations, bytes;           /* of all of them */
    int64_t objects, object_bytes;        /* of the default domains, those of python apart */
    int64_t shared_bytes;                 /* of these, what is in the heap as well */
};

/// What a query without a domain is about: NULL, or, of a trace without heap, what there is instead. Or `domain`.
const char *leak_list_domain(struct database *database, const char *domain);
/// Owner: the caller, by leak_list_free, after an error too. Errors: of leak_moment_make; loading ends early on
/// a database error.
int leak_list_load(struct leak_list *list, struct database *database, const struct leak_query *query,
                   struct varve_message *message);
void leak_list_free(struct leak_list *list);
/// frames: of each stack; < 0: the stack in a line, as JSON all; 0: none.
void leak_list_print(FILE *out, struct database *database, const struct leak_list *list, const struct leak_query *query,
                     int64_t frames);
struct cJSON *leak_list_json(struct database *database, const struct leak_list *list, const struct leak_query *query,
                             int64_t frames);
void leak_list_csv(FILE *out, const struct leak_list *list);

#endif
