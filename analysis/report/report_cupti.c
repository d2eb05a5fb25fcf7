/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of CUPTI's recorder in each process, and whether it has the same allocations as the CUDA recorder where
 * both ran: a call that one of them missed shows here.
 */
#include "analysis/report/report.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/query/total_query.h"
#include "analysis/report/report_title.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DIFFERENCES_SHOWN 10

/* What the processes of one row said; `has_begun`: they had CUPTI's subscription by then. */
static void print_state(FILE *out, const char *state, bool has_begun, int64_t processes, int64_t sum, int64_t largest)
{
    char who[64];
    snprintf(who, sizeof(who), "%s process%s", format_count(processes).text, processes == 1 ? "" : "es");
    if (strcmp(state, "cupti_begin") == 0) {
        fprintf(out, "  it recorded in %s (API version %" PRId64 ")\n", who, largest);
    } else if (strcmp(state, "cupti_refused") == 0 && has_begun) {
        fprintf(out, "  %s got callbacks and no activity records, which only add kinds of memory\n", who);
    } else if (strcmp(state, "cupti_refused") == 0 && largest == 0) {
        fprintf(out, "  %s found no libcupti that would do\n", who);
    } else if (strcmp(state, "cupti_refused") == 0) {
        fprintf(out, "  %s did not get it (CUptiResult %" PRId64 "): another profiler may have held it\n", who,
                largest);
    } else if (strcmp(state, "cupti_fatal") == 0) {
        fprintf(out, "  it stopped in %s (CUptiResult %" PRId64 "): what came afterwards is missing\n", who, largest);
    } else if (strcmp(state, "cupti_dropped") == 0 && sum > 0) {
        fprintf(out, "  it dropped %s activity records; allocations come from callbacks, and are complete\n",
                format_count(sum).text);
    }
}

static void report_cupti_print_difference(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"pid", true}, {"GPU", true}, {"address", true}, {"bytes", true}, {"CUDA recorder", true}, {"CUPTI", true},
    };
    static const struct query query = {
        .sql = sql_cupti_differences_text,
        .columns = columns,
        .kinds = "nnxbcc",
    };
    int64_t cuda = report_figure(database, "by cuda", 0);
    int64_t cupti = report_figure(database, "by cupti", 0);
    int64_t differing = database_integer(database, "SELECT count(*) FROM cupti_difference", 0);
    if (differing == 0) {
        fprintf(out, "  CUDA recorder and CUPTI recorded the same %s allocations%s\n", format_count(cupti).text,
                cuda == cupti ? "" : ", as long as CUPTI was there");
        return;
    }
    fprintf(out, "  the CUDA recorder has %s allocations, CUPTI %s; they differ in %s:\n", format_count(cuda).text,
            format_count(cupti).text, format_count(differing).text);
    query_print(out, database, &query, DIFFERENCES_SHOWN);
}

bool report_cupti_is_checked(struct database *database)
{
    return report_figure(database, "by cupti", 0) > 0 && report_figure(database, "by cuda", 0) > 0;
}

bool report_cupti_agrees(struct database *database)
{
    return database_integer(database, "SELECT count(*) FROM cupti_difference", 0) == 0;
}

void report_cupti_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options)
{
    bool is_checked = report_cupti_is_checked(database);
    (void)options;
    if (!is_checked && report_figure(database, "cupti", 0) == 0) {
        return;
    }
    report_rule_print(out, section->title);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_cupti_states_counted);
    while (cursor_next(&cursor)) {
        print_state(out, cursor_name(&cursor, 0), cursor_integer(&cursor, 1) != 0, cursor_integer(&cursor, 2),
                    cursor_integer(&cursor, 3), cursor_integer(&cursor, 4));
    }
    cursor_close(&cursor);
    if (is_checked) {
        report_cupti_print_difference(out, database);
    }
}

struct cJSON *report_cupti_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    bool is_checked = report_cupti_is_checked(database);
    (void)options;
    json_add(object, "states", query_json(database, sql_cupti_states, 0));
    if (is_checked) {
        json_bool(object, "agree", report_cupti_agrees(database));
    } else {
        json_add(object, "agree", json_null_value());
    }
    json_integer(object, "by_cuda", report_figure(database, "by cuda", 0));
    json_integer(object, "by_cupti", report_figure(database, "by cupti", 0));
    json_add(object, "differences", is_checked ? query_json(database, sql_cupti_differences, 1000) : json_array());
    return object;
}
