/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff`: what grew, what is new and what went between two runs, or two moments of one. With --events: are two
 * databases the same trace, as both sinks of one recording must be? Then the exit status is that of diff(1): 0 equal, 1
 * different, 2 no answer.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/progress.h"
#include "analysis/base/terminal.h"
#include "analysis/page/page.h"
#include "analysis/query/database.h"
#include "analysis/report/diff_events.h"
#include "analysis/report/diff_events_print.h"
#include "analysis/report/diff_growth.h"
#include "analysis/query/segment_query.h"
#include "analysis/query/query_selection.h"
#include "base/error.h"

#include <stdio.h>

#define EXIT_STATUS_DIFFERS 1
#define METRIC_DEFAULT (-1)

struct values {
    int64_t top, frames, limit;
    const char *domain, *from, *to;
    int64_t width;
    int by, metric;
    bool full_names, all, json, events, tables, quiet, no_source, force;
    const char *html;
};

static const struct values defaults = {.top = 10, .frames = -1, .limit = 20, .metric = METRIC_DEFAULT};

static const struct option_spec options[] = {
    {"by", 'b', OPTION_CHOICE, "WHAT", "entries are lines (default), functions, whole stacks or modules",
     offsetof(struct values, by), 0, 0, growth_by_names},
    {"metric", 0, OPTION_CHOICE, "WHAT",
     "figures of the lists, and their order: bytes at the peak (default), allocated in all, live at the end (leaked; "
     "the default with marks), or the count of allocations",
     offsetof(struct values, metric), 0, 0, growth_metric_names},
    {"domain", 'd', OPTION_TEXT, "NAME", "of this domain only (default: all)", offsetof(struct values, domain), 0, 0,
     NULL},
    {"from", 0, OPTION_TEXT, "SEQ|TIME",
     "of one database: A is what was recorded up to this event, or this time since the trace began such as 1.5s, 20ms",
     offsetof(struct values, from), 0, 0, NULL},
    {"to", 0, OPTION_TEXT, "SEQ|TIME", "and B what was recorded up to this one (default: the last event)",
     offsetof(struct values, to), 0, 0, NULL},
    {"top", 'n', OPTION_INTEGER, "N", "entries of each domain (default 10)", offsetof(struct values, top), 1,
     1000000000, NULL},
    {"all", 'a', OPTION_FLAG, NULL, "all of them, unchanged ones too", offsetof(struct values, all), 0, 0, NULL},
    {"frames", 0, OPTION_INTEGER, "N", "frames below each entry (default: by stack 6, with --json all; else none)",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"full-names", 0, OPTION_FLAG, NULL, "names of functions uncut", offsetof(struct values, full_names), 0, 0, NULL},
    {"width", 'w', OPTION_INTEGER, "N", "columns (default: those of the terminal, else 100)",
     offsetof(struct values, width), TERMINAL_COLUMNS_MIN, TERMINAL_COLUMNS_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"html", 0, OPTION_TEXT, "FILE",
     "the page of B, as of varve report --html, with what A had: curves, lines, and a flame graph of what is more and "
     "what is less; - is standard output",
     offsetof(struct values, html), 0, 0, NULL},
    {"no-source", 0, OPTION_FLAG, NULL, "with --html: without source code", offsetof(struct values, no_source), 0, 0,
     NULL},
    {"force", 'f', OPTION_FLAG, NULL, "with --html: replace FILE if it exists", offsetof(struct values, force), 0, 0,
     NULL},
    {"events", 'e', OPTION_FLAG, NULL, "are A and B equal, event by event?", offsetof(struct values, events), 0, 0,
     NULL},
    {"limit", 0, OPTION_INTEGER, "N", "with --events: differences listed (default 20)", offsetof(struct values, limit),
     0, 1000000000, NULL},
    {"tables", 't', OPTION_FLAG, NULL,
     "with --events: what differs in the tables process and thread counts as a difference too (default: only listed)",
     offsetof(struct values, tables), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "with --events: nothing but the exit status", offsetof(struct values, quiet), 0,
     0, NULL},
    {.kind = OPTION_END},
};

/* ---- --events ---- */

/* Loads stacks and losses: a database may still turn out to be damaged. */
static int print_events(struct command_context *context, const struct values *values, const struct diff *diff,
                        struct varve_message *message)
{
    if (values->json) {
        diff_events_json(context->out, diff);
    } else {
        diff_events_text(context->out, diff);
    }
    return diff_error(diff, message);
}

static int run_events(struct command_context *context, const struct values *values, struct database *a,
                      struct database *b)
{
    struct varve_message message = {""};
    struct progress progress;
    struct diff diff = {
        .traces = {a, b},
        .limit = values->quiet ? 0 : values->limit,
        .with_tables = values->tables,
    };
    command_progress(context, &progress, values->quiet);
    int result = diff_events_compare(&diff, &progress, &message);
    progress_end(&progress);
    if (result == VARVE_OK && diff.is_other_run && !values->quiet) {
        fprintf(context->err, "varve diff: warning: these are traces of two different runs\n");
    }
    if (result == VARVE_OK && !values->quiet) {
        result = print_events(context, values, &diff, &message);
    }
    int status = diff.is_equal ? 0 : EXIT_STATUS_DIFFERS;
    diff_free(&diff);
    return result == VARVE_OK ? status : command_fail(context, "%s", message.text);
}

/* ---- by line, domain and size class ---- */

/* Of one database: the two moments. */
static int find_moments(const struct values *values, struct growth *growth, struct varve_message *message)
{
    growth->a.seq = 0;
    int result = VARVE_OK;
    if (values->from != NULL) {
        result = segments_moment(growth->a.database, values->from, &growth->a.seq, message);
    }
    VARVE_THEN(result, segments_moment(growth->b.database, values->to, &growth->b.seq, message));
    if (result == VARVE_OK && growth->a.seq > growth->b.seq) {
        result = varve_message_set(message, VARVE_ERROR_INVALID, "--from comes after --to");
    }
    return result;
}

static int command_diff_check_domain(const struct growth *growth, struct varve_message *message)
{
    struct varve_message of_b = {""};
    const char *domain = growth->options.domain;
    if (domain == NULL) {
        return VARVE_OK;
    }
    struct selection selection;
    int result = selection_make(&selection, growth->a.database, domain, 0, message);
    return result == VARVE_OK ? result : selection_make(&selection, growth->b.database, domain, 0, &of_b);
}

static int run_growth(struct command_context *context, const struct values *values, struct database *a,
                      struct database *b, bool is_of_one)
{
    struct varve_message message = {""};
    int metric_default = is_of_one ? (int)GROWTH_LEAKED : (int)GROWTH_PEAK;
    struct growth growth = {
        .a = {.database = a, .seq = -1},
        .b = {.database = b, .seq = -1},
        .options = {.metric = (enum growth_metric)(values->metric == METRIC_DEFAULT ? metric_default : values->metric),
                    .by = (enum diff_by)values->by,
                    .domain = values->domain,
                    .top = values->all ? -1 : values->top,
                    .frames = values->frames},
    };
    if (is_of_one && growth.options.metric == GROWTH_PEAK) {
        return command_fail(context, "--metric peak is of whole runs; between two moments: allocated, leaked or count");
    }
    int result = command_diff_check_domain(&growth, &message);
    if (result == VARVE_OK && is_of_one) {
        result = find_moments(values, &growth, &message);
    }
    struct progress progress;
    command_progress(context, &progress, false);
    VARVE_THEN(result, growth_compare(&growth, &progress, &message));
    if (result == VARVE_OK) {
        if (values->json) {
            growth_json(context->out, &growth);
        } else {
            terminal_fold();
            growth_text(context->out, &growth);
        }
        result = growth_error(&growth, &message);
    }
    progress_end(&progress);
    growth_close(&growth);
    return result == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

/* ---- --html ---- */

struct page_of_two {
    struct database *a, *b;
    struct progress *progress;
    bool has_source;
};

static int write_page_of_two(const void *two_untyped, FILE *out, struct varve_message *message)
{
    const struct page_of_two *two = two_untyped;
    struct growth lines = {.a = {.database = two->a, .seq = -1}, .b = {.database = two->b, .seq = -1}};
    struct growth stacks = lines;
    const struct page_before before = {&lines, &stacks};
    stacks.options.by = DIFF_BY_STACK;
    int error = growth_compare(&lines, two->progress, message);
    VARVE_THEN(error, growth_compare(&stacks, two->progress, message));
    VARVE_THEN(error, page_write(out, two->b, &before, two->has_source, two->progress, message));
    VARVE_THEN(error, growth_error(&lines, message));
    VARVE_THEN(error, growth_error(&stacks, message));
    growth_close(&lines);
    growth_close(&stacks);
    return error;
}

static int run_page(struct command_context *context, const struct values *values, struct database *a,
                    struct database *b)
{
    struct progress progress;
    const struct page_of_two two = {a, b, &progress, !values->no_source};
    struct varve_message message = {""};
    const char *const inputs[] = {database_path(a), database_path(b)};
    command_progress(context, &progress, false);
    const int error = command_page(context, values->html, values->force, inputs, 2, write_page_of_two, &two, &message);
    database_on_progress(b, NULL, NULL);
    progress_end(&progress);
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

/* What is wrong with the options, NULL if nothing is. */
static const char *command_diff_check_values(const struct values *values, int operands)
{
    bool has_marks = values->from != NULL || values->to != NULL;
    if (values->quiet && values->json) {
        return "--quiet and --json are mutually exclusive";
    }
    if ((values->quiet || values->tables) && !values->events) {
        return "--quiet and --tables go with --events";
    }
    if (values->html != NULL && (values->json || values->events || operands == 1)) {
        return values->json ? "--html and --json exclude each other" : "--html is of what two whole databases had";
    }
    if ((values->no_source || values->force) && values->html == NULL) {
        return "--no-source and --force go with --html";
    }
    if (values->events && has_marks) {
        return "--events compares two whole databases: no --from, no --to";
    }
    if (operands == 1 && !has_marks) {
        return "the second database is missing (of one: --from and --to)";
    }
    if (operands == 2 && has_marks) {
        return "--from and --to are moments of one database";
    }
    return NULL;
}

static int command_diff_run(struct command_context *context, const void *values_untyped,
                            const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *wrong = command_diff_check_values(values, operands->count);
    struct varve_message message = {""};
    if (wrong != NULL) {
        return command_fail(context, "%s", wrong);
    }
    if (values->width > 0) {
        terminal_set_columns(values->width);
    }
    terminal_set_full_names(values->full_names);
    struct database *a = NULL;
    struct database *b = NULL;
    if (database_open(operands->items[0], DATABASE_DERIVED, &a, &message) != VARVE_OK ||
        database_open(operands->items[operands->count - 1], DATABASE_DERIVED, &b, &message) != VARVE_OK) {
        database_close(a);
        return command_fail(context, "%s", message.text);
    }
    const int status = values->html != NULL ? run_page(context, values, a, b)
                       : values->events     ? run_events(context, values, a, b)
                                            : run_growth(context, values, a, b, operands->count == 1);
    database_close(a);
    database_close(b);
    return status;
}

const struct command command_diff = {
    .name = "diff",
    .arguments = "A [B]",
    .summary = "what grew, is new or went: two runs by line, size and domain",
    .purpose =
        "Compares two runs, or with --from and --to two moments of one: totals and peak of the resident memory "
        "(RSS), then for each domain the lines of the program with the largest change, new and gone ones marked, and "
        "sizes. Lines are the same where function, file and number are; of functions without a source file the "
        "module counts instead. With --events: are two databases the same trace, such as a recording and what varve "
        "import made of its LTTng trace? Events are found by process, ring and number in the ring; all their fields "
        "must be equal, stacks too. Row numbers (id, callsite_id) may differ as long as they belong together one to "
        "one; the order of the rows is not compared. Rows that stand for missing events are counted, not compared. "
        "Exit status then: 0 equal, 1 different, 2 an error.",
    .examples = "  varve diff before.db after.db\n"
                "  varve diff --metric leaked --top 5 before.db after.db\n"
                "  varve diff --from 10s --to 60s server.db        # what grew meanwhile\n"
                "  varve diff --html diff.html before.db after.db\n"
                "  varve diff --events trace.db import.db\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 2,
    .run = command_diff_run,
};
