/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A section of a report: a row of the table in report.c, from which the text, the JSON and the page (../page) are made.
 * A plain one is a statement with its columns; one that a table can't say has functions of its own.
 */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_SECTION_H
#define VARVE_ANALYSIS_REPORT_REPORT_SECTION_H

#include "analysis/query/query_print.h"
#include "analysis/report/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SECTION_ROWS_TEXT 20
#define SECTION_ROWS_JSON 10000

struct report_section;

typedef void report_section_text(FILE *out, struct database *database, const struct report_section *section,
                                 const struct report_options *options);
typedef struct cJSON *report_section_json(struct database *database, const struct report_options *options);

struct report_section {
    const char *group; /* the member of the JSON in which `key` is one; NULL: the answer itself */
    const char *key;   /* in JSON, where it may be added but never renamed, and in the page */
    const char *title;
    const char *explanation; /* a sentence or two: what a row is, and what it is good for */
    const char *absent;      /* a sentence: why there may be no rows */
    /* NULL: always. Where it says no, the section is in no answer, but for its sentence in the page. */
    bool (*is_there)(struct database *database);
    struct query table;        /* ?1: the most rows, < 0: all; without `sql` the page has no table */
    bool is_short;             /* it is also in the report without --all */
    report_section_text *text; /* NULL: the title, the explanation and the table */
    const char *json_sql;      /* ?1: as of `table`; NULL: that of the table */
    report_section_json *json; /* instead of rows; NULL as its result: no member */
    bool is_in_other_json;     /* what it has is in the JSON of another section */
};

/// The title, and the first rows of the table; nothing if there are none.
void report_section_table(FILE *out, struct database *database, const struct report_section *section);
/// As report_section_text and report_section_json: what the section says, by whichever way.
void report_section_print(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options);
/// Adds the member of the section to the answer.
void report_section_add(struct cJSON *answer, struct database *database, const struct report_section *section,
                        const struct report_options *options);
/// All of them, in the order of the answers.
extern const struct report_section report_sections[];
extern const size_t report_section_count;

#endif
