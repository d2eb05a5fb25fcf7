/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve timeline`: live bytes over time, as a chart for terminals or as figures; the steps are made in
 * query/timeline_query.c.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/timeline_query.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

#define CHART_ROWS 12

struct values {
    int64_t points;
    int64_t pid;
    int64_t device;
    const char *domain;
    bool json;
    bool csv;
};

static const struct values defaults = {.points = 80, .device = -1};

static const struct option_spec options[] = {
    {"points", 0, OPTION_INTEGER, "N", "steps of time (default 80; a chart shows what the terminal has columns for)",
     offsetof(struct values, points), 2, 1000000, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", DOMAIN_HELP, offsetof(struct values, domain), 0, 0, NULL},
    {"device", 0, OPTION_INTEGER, "N", "memory of this GPU (default: the one that needed most)",
     offsetof(struct values, device), 0, 255, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all together)", offsetof(struct values, pid), 1,
     INT32_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, csv), 0, 0, NULL},
    {.kind = OPTION_END},
};

static void command_timeline_print_csv(FILE *out, const struct timeline *timeline)
{
    fputs("begin_ns,end_ns,allocated,allocated_max,live\n", out);
    for (size_t i = 0; i < timeline->count; i++) {
        const struct timeline_point *point = &timeline->points[i];
        fprintf(out, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "\n", point->begin_ns, point->end_ns,
                point->allocated, point->allocated_max, point->live);
    }
}

static void command_timeline_print_json(FILE *out, struct database *database, const struct timeline *timeline,
                                        const struct selection *selection)
{
    struct cJSON *object = json_object();
    struct cJSON *points = json_array();
    json_text(object, "database", database_path(database));
    json_text(object, "domain", selection->domain);
    json_integer_or_null(object, "pid", selection->pid > 0 ? selection->pid : -1);
    if (selection->devices > 1) {
        json_integer(object, "device", selection->device);
    }
    report_times_json(object, database);
    json_integer(object, "samples", timeline->samples);
    for (size_t i = 0; i < timeline->count; i++) {
        const struct timeline_point *point = &timeline->points[i];
        struct cJSON *row = json_object();
        json_integer(row, "begin_ns", point->begin_ns);
        json_integer(row, "end_ns", point->end_ns);
        json_integer(row, "allocated", point->allocated);
        json_integer(row, "allocated_max", point->allocated_max);
        json_integer(row, "live", point->live);
        json_append(points, row);
    }
    json_add(object, "points", points);
    json_print(object, out);
}

static void command_timeline_print_text(FILE *out, struct database *database, const struct timeline *timeline,
                                        const struct selection *selection)
{
    const struct timeline_point *last = &timeline->points[timeline->count - 1];
    struct report_total total = {.peak_ns = -1};
    struct report_loss loss;
    char who[64] = "all processes together";
    report_loss_load(&loss, database);
    if (!report_is_lossless(&loss)) {
        report_loss_print(out, database, &loss);
    }
    if (selection->pid > 0) {
        snprintf(who, sizeof(who), "process %" PRId64, selection->pid);
    }
    char where[32] = "";
    if (selection->devices > 1) {
        snprintf(where, sizeof(where), " on GPU %" PRId64, selection->device);
    }
    if (!selection_total(selection, database, &total) || timeline->samples == 0) {
        fprintf(out, "%s, %s: nothing was allocated\n", selection->domain, who);
        return;
    }
    report_times_print(out, database);
    fprintf(out, "%s%s, %s: live bytes, the maximum of each %s\n", selection->domain, where, who,
            DURATION(timeline->points[0].end_ns));
    timeline_chart(out, timeline, CHART_ROWS);
    fprintf(out, "peak %s after %s; at the end %s in %s allocations\n", EXACT(total.peak_bytes),
            DURATION(total.peak_ns), EXACT(last->allocated), COUNT(last->live));
}

static const char *command_timeline_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->json && values->csv ? "--json and --csv are mutually exclusive" : NULL;
}

static int command_timeline_answer(struct command_context *context, struct database *database,
                                   const void *values_untyped, struct varve_message *message)
{
    const struct values *values = values_untyped;
    bool is_chart = !values->json && !values->csv;
    int64_t columns = (int64_t)timeline_chart_columns();
    int64_t points = is_chart && values->points > columns ? columns : values->points;
    struct timeline timeline = {0};
    struct selection selection;
    const char *domain = values->domain != NULL ? values->domain : selection_default_domain(database);
    int error = selection_make(&selection, database, domain, values->pid, message);
    if (error == VARVE_OK && values->device >= 0) {
        error = selection_device(&selection, database, values->device, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    timeline_load(&timeline, database, &selection, points);
    if (values->json) {
        command_timeline_print_json(context->out, database, &timeline, &selection);
    } else if (values->csv) {
        command_timeline_print_csv(context->out, &timeline);
    } else {
        terminal_fold();
        command_timeline_print_text(context->out, database, &timeline, &selection);
    }
    timeline_free(&timeline);
    return VARVE_OK;
}

const struct command command_timeline = {
    .name = "timeline",
    .arguments = "DB",
    .summary = "live bytes over time, as a chart or figures",
    .purpose =
        "Shows how many bytes were live over time, in equal steps from the beginning to the end of the last program. "
        "Each step has the bytes at its end and the maximum within it, which is what the chart draws.",
    .examples = "  varve timeline trace.db\n"
                "  varve timeline --points 1000 --csv trace.db > timeline.csv\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_timeline_check,
    .answer = command_timeline_answer,
};
