/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report`: where the memory went. As text and JSON it reads the small tables only, so that ten million events
 * take no longer than ten thousand; the page of --html has each allocation.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/terminal.h"
#include "analysis/query/database.h"
#include "analysis/page/page.h"
#include "analysis/report/report.h"
#include "base/error.h"

#include <string.h>

struct values {
    int64_t top;
    int64_t frames;
    int64_t stacks;
    int64_t width;
    int by;
    bool all;
    bool full_names;
    bool json, no_source;
    const char *html;
    bool force;
};

static const struct values defaults = {.top = -1, .frames = -1, .stacks = -1};

static const struct option_spec options[] = {
    {"by", 'b', OPTION_CHOICE, "WHAT", GROUP_BY_HELP, offsetof(struct values, by), 0, 0, group_by_names},
    {"all", 'a', OPTION_FLAG, NULL, "every list and section, exact figures, whole stacks", offsetof(struct values, all),
     0, 0, NULL},
    {"top", 'n', OPTION_INTEGER, "N",
     "entries in each list (default 5; of other domains than the first 3; with --all 10)", offsetof(struct values, top),
     1, 1000000, NULL},
    {"frames", 0, OPTION_INTEGER, "N",
     "frames of each stack (default: the stack in a line; with --all and --json all); 0: none",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"stacks", 0, OPTION_INTEGER, "N", "entries of each list that show their stack, as text (default all)",
     offsetof(struct values, stacks), 0, 1000000, NULL},
    {"full-names", 0, OPTION_FLAG, NULL, "names of functions uncut", offsetof(struct values, full_names), 0, 0, NULL},
    {"width", 'w', OPTION_INTEGER, "N", "columns (default: those of the terminal, else 100)",
     offsetof(struct values, width), TERMINAL_COLUMNS_MIN, TERMINAL_COLUMNS_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object with every figure", offsetof(struct values, json), 0, 0, NULL},
    {"html", 0, OPTION_TEXT, "FILE",
     "a page to look at, in one file that needs no other: memory over time, what was live when, flame graph, map of "
     "addresses, every table; - is standard output",
     offsetof(struct values, html), 0, 0, NULL},
    {"no-source", 0, OPTION_FLAG, NULL, "a page without source code, which it has around lines whose files are here",
     offsetof(struct values, no_source), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace FILE if it exists", offsetof(struct values, force), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *command_report_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->html != NULL && values->json ? "--html and --json exclude each other" : NULL;
}

struct page_source {
    struct database *database;
    struct progress *progress;
    bool has_source;
};

static int write_page(const void *source_untyped, FILE *out, struct varve_message *message)
{
    const struct page_source *source = source_untyped;
    return page_write(out, source->database, NULL, source->has_source, source->progress, message);
}

static int answer_page(struct command_context *context, struct database *database, const struct values *values,
                       struct varve_message *message)
{
    struct progress progress;
    const struct page_source source = {database, &progress, !values->no_source};
    const char *const inputs[] = {database_path(database)};
    command_progress(context, &progress, false);
    const int error = command_page(context, values->html, values->force, inputs, 1, write_page, &source, message);
    database_on_progress(database, NULL, NULL);
    progress_end(&progress);
    return error;
}

static int command_report_answer(struct command_context *context, struct database *database, const void *values_untyped,
                                 struct varve_message *message)
{
    const struct values *values = values_untyped;
    const struct report_options report = {
        .top = values->top,
        .by = (enum group_by)values->by,
        .stacks = {.frames = values->frames, .stacks = values->stacks, .is_all = values->all},
    };
    int error = values->html != NULL ? answer_page(context, database, values, message)
                                     : groups_check(database, report.by, message);
    if (error != VARVE_OK || values->html != NULL) {
        return error;
    }
    if (values->width > 0) {
        terminal_set_columns(values->width);
    }
    terminal_set_full_names(values->full_names);
    if (values->json) {
        json_print(report_json(database, &report), context->out);
    } else {
        terminal_fold();
        report_text(context->out, database, &report);
    }
    return VARVE_OK;
}

const struct command command_report = {
    .name = "report",
    .arguments = "DB",
    .summary = "where the memory went: totals, peak, largest call sites, leaks",
    .purpose =
        "Says on a screen or two where the memory went: whether the trace is whole, totals, and whose memory was "
        "live at the peak, was allocated, was live at the end and was temporary (freed before its thread "
        "allocated again). An entry is a line of the program's author, not of the library that allocated; "
        "below it is the stack with most of it, outermost frame first.",
    .examples = "  varve report trace.db\n"
                "  varve report --by function --top 20 trace.db\n"
                "  varve report --all trace.db | less\n"
                "  varve report --html report.html trace.db\n"
                "  varve report --json trace.db | jq '.domains[] | {domain, peaks}'\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_report_check,
    .answer = command_report_answer,
};
