/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a memory budget cost: time of recomputations by operator, what was evicted and why, what most often, and which
 * storages were in the way when an operator did not get its memory. All processes together; the JSON has each.
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
#include <stdbool.h>
#include <stdio.h>

#define ROWS_SHOWN 5
#define ROWS_JSON 1000

bool report_has_remat(struct database *database)
{
    return report_figure(database, "operators", 0) != 0;
}

/* ---- text ---- */

static void print_budget(FILE *out, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_remat_budgets);
    if (cursor_next(&cursor) && cursor_integer(&cursor, 3) > 0) {
        fprintf(out, "  budget %s", format_bytes_exact(cursor_integer(&cursor, 0)).text);
        if (cursor_integer(&cursor, 0) != cursor_integer(&cursor, 1)) {
            fprintf(out, " to %s", format_bytes_exact(cursor_integer(&cursor, 1)).text);
        }
        if (cursor_integer(&cursor, 2) > 1) {
            fprintf(out, " in %s processes", format_count(cursor_integer(&cursor, 3)).text);
        }
    } else {
        fputs("  no budget", out);
    }
    fputc('\n', out);
    cursor_close(&cursor);
}

static void report_remat_print_costs(FILE *out, struct database *database)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_remat_work);
    if (cursor_next(&cursor)) {
        int64_t runs = cursor_integer(&cursor, 0), run_ns = cursor_integer(&cursor, 1);
        int64_t remats = cursor_integer(&cursor, 2), remat_ns = cursor_integer(&cursor, 4);
        fprintf(out, "  %s run%s of operators took %s, recomputation %s more: an overhead of %s\n",
                format_count(runs).text, format_plural(runs, "", "s"), format_duration(run_ns).text,
                format_duration(remat_ns).text, format_share(remat_ns, run_ns).text);
        fprintf(out, "  %s storage%s recomputed because needed, %s beside, up to %" PRId64 " deep\n",
                format_count(remats).text, format_plural(remats, "", "s"),
                format_count(cursor_integer(&cursor, 3)).text, cursor_integer(&cursor, 5));
    }
    cursor_close(&cursor);
}

static void print_evictions(FILE *out, struct database *database)
{
    int64_t evictions = report_figure(database, "evictions", 0);
    int64_t bytes = report_figure(database, "evicted bytes", 0);
    int64_t wasted = report_figure(database, "wasted", 0);
    const char *before = ": ";
    fprintf(out, "  %s eviction%s", format_count(evictions).text, format_plural(evictions, "", "s"));
    struct cursor cursor;
    cursor_open(&cursor, database, sql_remat_evictions);
    while (cursor_next(&cursor)) {
        fprintf(out, "%s%s ", before, format_count(cursor_integer(&cursor, 1)).text);
        format_print_safe(out, cursor_name(&cursor, 0));
        before = ", ";
    }
    cursor_close(&cursor);
    fprintf(out, "\n  %s were evicted; %s in vain: recomputed within 16 runs of operators\n", format_bytes(bytes).text,
            format_count(wasted).text);
}

static void print_storages(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"evictions", true}, {"storage", true},    {"pid", true},  {"made by", false},
        {"bytes", true},     {"recomputed", true}, {"time", true}, {"in vain", true},
    };
    static const struct query query = {
        .sql = sql_remat_storages_most_evicted,
        .columns = columns,
        .kinds = "cnntbcdc",
    };
    query_print(out, database, &query, ROWS_SHOWN);
}

/* The last one, which may be what ended the program. */
static void report_remat_print_failure(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"in the way: made by", false}, {"why", false}, {"storages", true}, {"bytes", true}};
    static const struct query query = {
        .sql = sql_remat_blocked_last,
        .columns = columns,
        .kinds = "ttcb",
    };
    int64_t failures = report_figure(database, "failed operators", 0);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_remat_last_failure);
    if (cursor_next(&cursor)) {
        fprintf(out, "  %s operator%s did not get %s memory, %s%s after the start (event %" PRId64 "): ",
                format_count(failures).text, format_plural(failures, "", "s"), failures == 1 ? "its" : "their",
                failures == 1 ? "" : "the last ", format_duration(cursor_integer(&cursor, 1)).text,
                cursor_integer(&cursor, 0));
        format_print_safe(out, cursor_name(&cursor, 2));
        fprintf(out, "\n  needed %s", format_bytes_exact(cursor_integer(&cursor, 3)).text);
        if (!cursor_is_null(&cursor, 4)) {
            fprintf(out, ", the budget was %s", format_bytes(cursor_integer(&cursor, 4)).text);
        }
        fprintf(out, ", %s could not be evicted\n", format_bytes(cursor_integer(&cursor, 5)).text);
    }
    cursor_close(&cursor);
    query_print(out, database, &query, ROWS_SHOWN);
}

void report_remat_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options)
{
    report_rule_print(out, section->title);
    print_budget(out, database);
    report_remat_print_costs(out, database);
    print_evictions(out, database);
    if (options->stacks.is_all) {
        query_print(out, database, section->table, ROWS_SHOWN);
        print_storages(out, database);
    }
    report_remat_print_failure(out, database);
}

/* ---- JSON ---- */

static struct cJSON *failures_json(struct database *database)
{
    struct cJSON *failures = json_array();
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT * FROM remat_failure ORDER BY seq DESC LIMIT ?1");
    cursor_bind_integer(&cursor, 1, ROWS_JSON);
    while (cursor_next(&cursor)) {
        struct cJSON *failure = cursor_json(&cursor, cursor_column_count(&cursor));
        json_add(failure, "in_the_way", query_json(database, sql_remat_blocked_of, cursor_integer(&cursor, 0)));
        json_append(failures, failure);
    }
    cursor_close(&cursor);
    return failures;
}

struct cJSON *report_remat_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    (void)options;
    json_add(object, "totals", query_json(database, "SELECT * FROM remat_total ORDER BY process_id", 0));
    json_add(object, "evictions", query_json(database, sql_remat_evictions_json, 0));
    json_add(object, "operators", query_json(database, sql_remat_operators_json, ROWS_JSON));
    json_add(object, "storages", query_json(database, sql_remat_storages, ROWS_JSON));
    json_add(object, "failures", failures_json(database));
    return object;
}
