/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report`: where the memory went. Reads the small tables only, so that ten million events take no
 * longer than ten thousand.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/json.h"
#include "analysis/query/db.h"
#include "analysis/query/report/report.h"
#include "trace/trace.h"

struct values {
    int64_t top;
    int64_t frames;
    int64_t stacks;
    bool json;
};

static const struct values defaults = {.top = 10, .frames = -1, .stacks = 3};

static const struct option_spec options[] = {
    {"top", 'n', OPTION_INTEGER, "N", "call sites in each list (default 10)", offsetof(struct values, top), 1,
     1000000, NULL},
    {"frames", 0, OPTION_INTEGER, "N", "frames of each stack (default 6; with --json all); 0: none",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"stacks", 0, OPTION_INTEGER, "N", "entries of each list that show their stack, as text (default 3)",
     offsetof(struct values, stacks), 0, 1000000, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object with every figure", offsetof(struct values, json), 0, 0,
     NULL},
    {.kind = OPTION_END},
};

static int answer(struct command_context *context, struct database *database, const void *values_untyped,
                  struct varve_message *message)
{
    const struct values *values = values_untyped;
    const struct report_options report = {
        .top = values->top,
        .stacks = {.frames = values->frames, .stacks = values->stacks},
    };

    (void)message;
    if (values->json) {
        json_print(report_json(database, &report), context->out);
    } else {
        report_text(context->out, database, &report);
    }
    return VARVE_OK;
}

const struct command command_report = {
    .name = "report",
    .arguments = "DB",
    .summary = "where the memory went: totals, peak, largest call sites, leaks",
    .purpose = "Says where the memory went: whether the trace is whole, totals, the peak and the call sites "
               "that made it, the largest call sites by bytes, by number and by lifetime, temporary "
               "allocations (freed before their thread allocated again), and what was never freed. [#N] is "
               "the number of a call site in the database; \"above\" beside it: its stack was shown before.",
    .examples = "  varve report trace.db\n"
                "  varve report --top 3 --frames 12 --stacks 3 trace.db\n"
                "  varve report --json trace.db | jq '.domains[] | {domain, peaks}'\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .answer = answer,
};
