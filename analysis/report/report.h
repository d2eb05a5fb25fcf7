/* SPDX-License-Identifier: Apache-2.0 */
/* `varve report`: the whole answer as text and as JSON. Loading ends early on a database error: see database_error. */
#ifndef VARVE_ANALYSIS_REPORT_REPORT_H
#define VARVE_ANALYSIS_REPORT_REPORT_H

#include "analysis/query/callsite_query.h"
#include "analysis/query/query_print.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct cJSON;
struct database;

#define REPORT_ENTRIES_ALL 10 /* of a list with --all */

struct report_options {
    int64_t top; /* entries of a list; < 0: as suits the report */
    enum group_by by;
    struct callsite_options stacks; /* is_all: every ranking and every section, whole */
};

void report_text(FILE *out, struct database *database, const struct report_options *options);
struct cJSON *report_json(struct database *database, const struct report_options *options);

/*
 * A section of a report: a row of the table in report.c, from which the text, the JSON and the page (../page) are made.
 * A plain one is a statement with its columns; one that a table can't say has functions of its own.
 */

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
    const struct query *table; /* ?1: the most rows, < 0: all */
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

/* The functions of the sections. */

report_section_text report_total_text, report_processes_text, report_ranks_text, report_domains_text,
    report_devices_text, report_calls_text, report_segments_text, report_unattributed_text, report_failures_text,
    report_cupti_text, report_storages_text, report_remat_text;
report_section_json report_total_json, report_domains_json, report_devices_json, report_segments_json,
    report_ladder_json, report_cupti_json, report_storages_json, report_remat_json;
/// Are there several?
bool report_has_processes(struct database *database);
/// Ranks of a distributed program: several?
bool report_has_ranks(struct database *database);
/// Lines in the heap and in Python's memory?
bool report_has_together(struct database *database);
/// Is there anything about GPUs in this database?
bool report_has_gpu(struct database *database);
/// Did a planner of rematerialization run?
bool report_has_remat(struct database *database);

/// Did CUPTI record allocations beside the CUDA recorder?
bool report_cupti_is_checked(struct database *database);
/// Do both have the same ones?
bool report_cupti_agrees(struct database *database);
/// CUDA's name of a CUresult, NULL if it is not one of the usual.
const char *report_cuda_result(int64_t result);

#endif
