/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve check`: does a recording keep to limits? For a test run that is to fail: exit status 1 if one is broken.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/output_file.h"
#include "analysis/query/database.h"
#include "analysis/query/query_selection.h"
#include "analysis/report/limit_check.h"
#include "analysis/report/limit_print.h"
#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_STATUS_BROKEN 1
#define NO_LIMIT (-1)
#define GROWTH_DEFAULT "5%"

struct values {
    struct limits limits;
    const char *leak_score, *against, *growth, *junit;
    bool github, json, quiet;
};

static const struct values defaults = {
    .limits = {.figures = {NO_LIMIT, NO_LIMIT, NO_LIMIT, NO_LIMIT}, .leak_score = NO_LIMIT}};

#define FIGURE(figure) offsetof(struct values, limits.figures[figure])

static const struct option_spec options[] = {
    {"peak", 0, OPTION_BYTES, "BYTES", "most that may be live at a time", FIGURE(LIMIT_PEAK), 0, INT64_MAX, NULL},
    {"live", 0, OPTION_BYTES, "BYTES", "most that may be live at the end", FIGURE(LIMIT_LIVE), 0, INT64_MAX, NULL},
    {"allocated", 0, OPTION_BYTES, "BYTES", "most that may be allocated in all", FIGURE(LIMIT_ALLOCATED), 0, INT64_MAX,
     NULL},
    {"allocations", 0, OPTION_INTEGER, "N", "most allocations", FIGURE(LIMIT_ALLOCATIONS), 0, INT64_MAX, NULL},
    {"leak-score", 0, OPTION_TEXT, "SCORE", "highest score that a line of varve leaks may have, from 0 to 1",
     offsetof(struct values, leak_score), 0, 0, NULL},
    {"against", 0, OPTION_TEXT, "BASE.db", "another recording, beside which none of the four figures may grow more",
     offsetof(struct values, against), 0, 0, NULL},
    {"growth", 0, OPTION_TEXT, "PERCENT",
     "than this (default 5%); what is live at the end by as much of that recording's peak",
     offsetof(struct values, growth), 0, 0, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", "default: heap and mmap together; or " DOMAIN_HELP,
     offsetof(struct values, limits.domain), 0, 0, NULL},
    {"junit", 0, OPTION_TEXT, "FILE", "write JUnit's XML there, a test case for each limit",
     offsetof(struct values, junit), 0, 0, NULL},
    {"github", 0, OPTION_FLAG, NULL, "broken limits as annotations of GitHub's workflows",
     offsetof(struct values, github), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "broken limits only", offsetof(struct values, quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* A number without anything behind it but `unit`, if that is given. */
static bool read_number(const char *text, const char *unit, double most, double *number_out)
{
    char *end;
    errno = 0;
    *number_out = strtod(text, &end);
    return end != text && errno == 0 && isfinite(*number_out) && *number_out >= 0 && *number_out <= most &&
           (*end == '\0' || strcmp(end, unit) == 0);
}

static bool has_limit(const struct values *values)
{
    bool has_figure = false;
    for (unsigned i = 0; i < LIMIT_FIGURES; i++) {
        has_figure = has_figure || values->limits.figures[i] != NO_LIMIT;
    }
    return has_figure || values->leak_score != NULL || values->against != NULL;
}

static const char *command_check_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    double number;
    return !has_limit(values) ? "no limit was given: --peak, --live, --allocated, --allocations, --leak-score or "
                                "--against"
           : values->leak_score != NULL && !read_number(values->leak_score, "", 1, &number)
               ? "--leak-score wants a number from 0 to 1, such as 0.5"
           : values->growth != NULL && values->against == NULL ? "--growth goes with --against"
           : values->growth != NULL &&
                   !read_number(values->growth, "%", (double)LIMIT_GROWTH_MAX * 100 / LIMIT_GROWTH_ONE, &number)
               ? "--growth wants a percentage, such as 5%"
           : values->github && values->json ? "--github and --json are mutually exclusive"
                                            : NULL;
}

static void limits_read(const struct values *values, struct limits *limits)
{
    double number = 0;
    *limits = values->limits;
    if (values->leak_score != NULL && read_number(values->leak_score, "", 1, &number)) {
        limits->leak_score = llround(number * 100);
    }
    if (read_number(values->growth != NULL ? values->growth : GROWTH_DEFAULT, "%", INFINITY, &number)) {
        limits->growth = llround(number * LIMIT_GROWTH_ONE / 100);
    }
}

static int print_answer(struct command_context *context, struct database *database, const struct values *values,
                        const struct limit_check *check, struct varve_message *message)
{
    const struct limit_report report = {check, database_path(database)};
    if (values->json) {
        json_print(limit_check_json(check, report.path), context->out);
    } else {
        if (report_has_remarks(&check->loss)) {
            report_loss_print(context->out, database, &check->loss);
        }
        limit_print_text(context->out, check, values->quiet);
    }
    if (values->github) {
        limit_print_github(context->out, check);
    }
    return values->junit != NULL ? output_file(values->junit, true, limit_print_junit, &report, message) : VARVE_OK;
}

static int command_check_answer(struct command_context *context, struct database *database, const void *values_untyped,
                                struct varve_message *message)
{
    const struct values *values = values_untyped;
    const char *inputs[] = {database_path(database), values->against};
    struct limits limits;
    struct limit_check check = {0};
    int error = VARVE_OK;
    limits_read(values, &limits);
    if (values->junit != NULL) {
        error = output_check(values->junit, true, inputs, values->against != NULL ? 2 : 1, message);
    }
    if (error == VARVE_OK && values->against != NULL) {
        error = database_open(values->against, DATABASE_DERIVED, &limits.base, message);
    }
    VARVE_THEN(error, limit_check_load(&check, database, &limits, message));
    VARVE_THEN(error, database_error(database, message));
    VARVE_THEN(error, print_answer(context, database, values, &check, message));
    context->status = check.broken > 0 ? EXIT_STATUS_BROKEN : 0;
    limit_check_free(&check);
    database_close(limits.base);
    return error;
}

const struct command command_check = {
    .name = "check",
    .arguments = "DB",
    .summary = "does a recording keep to limits? exit status 1 if not",
    .purpose =
        "Compares figures of a recording with limits, for tests that are to fail when a program needs more memory, "
        "allocates more often or leaks: its peak, what was live at the end, what was allocated, the number of "
        "allocations, the leak score of each line; and beside another recording, by how much they may grow. A line for "
        "each limit; of a broken one with the line of the program that has most of it. Exit status: 0 all limits hold, "
        "1 one is broken, 2 there is no answer. Figures of a recording that lost something are lower bounds, which is "
        "said.",
    .examples = "  varve check --peak 2G --leak-score 0.5 trace.db\n"
                "  varve check --against main.db --growth 5% trace.db\n"
                "  varve check --peak 500M --junit memory.xml --github trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_check_check,
    .answer = command_check_answer,
};
