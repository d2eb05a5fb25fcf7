/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve peak`: who had the blocks that were live at the peak. Of all processes together they come from the totals of
 * the call sites; of one process from its allocations, which takes longer.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/terminal.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

struct values {
    int64_t top;
    int64_t frames;
    int64_t pid;
    int64_t width;
    const char *domain;
    int by;
    bool all;
    bool full_names;
    bool json;
    bool csv;
};

static const struct values defaults = {.top = 10, .frames = -1};

static const struct option_spec options[] = {
    {"by", 'b', OPTION_CHOICE, "WHAT", GROUP_BY_HELP, offsetof(struct values, by), 0, 0, group_by_names},
    {"top", 'n', OPTION_INTEGER, "N", "entries shown (default 10)", offsetof(struct values, top), 1, 1000000000, NULL},
    {"all", 'a', OPTION_FLAG, NULL, "exact figures, numbers of call sites, and whole stacks",
     offsetof(struct values, all), 0, 0, NULL},
    {"frames", 0, OPTION_INTEGER, "N", "frames of each stack (default: the stack in a line; with --json all); 0: none",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", DOMAIN_HELP, offsetof(struct values, domain), 0, 0, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all together)", offsetof(struct values, pid), 1,
     INT32_MAX, NULL},
    {"full-names", 0, OPTION_FLAG, NULL, "names of functions uncut", offsetof(struct values, full_names), 0, 0, NULL},
    {"width", 'w', OPTION_INTEGER, "N", "columns (default: those of the terminal, else 100)",
     offsetof(struct values, width), TERMINAL_COLUMNS_MIN, TERMINAL_COLUMNS_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, csv), 0, 0, NULL},
    {.kind = OPTION_END},
};

struct answer {
    struct selection selection;
    struct report_total total;
    bool has_total;
    struct callsite_list list;
    struct report_loss loss;
};

static void command_peak_answer_json(struct command_context *context, struct database *database,
                                     const struct values *values, const struct answer *answer)
{
    const struct callsite_options stacks = {.frames = values->frames, .stacks = -1};
    struct cJSON *object = json_object();
    const struct report_total *total = &answer->total;
    json_text(object, "database", database_path(database));
    json_text(object, "domain", answer->selection.domain);
    json_integer_or_null(object, "pid", values->pid > 0 ? values->pid : -1);
    json_integer(object, "bytes", total->peak_bytes);
    json_integer(object, "allocations", total->peak_allocations);
    json_integer_or_null(object, "seq", answer->has_total ? total->peak_seq : -1);
    json_integer_or_null(object, "ts_ns", answer->has_total ? total->peak_ns : -1);
    json_bool(object, "nothing_lost", report_is_lossless(&answer->loss));
    json_text(object, "by", group_by_names[values->by]);
    json_integer(object, "callsites_all", answer->list.callsites_all);
    json_integer(object, "groups_all", answer->list.count_all);
    json_add(object, "callsites", callsite_list_json(database, &answer->list, CALLSITE_BY_PEAK, &stacks, false));
    json_print(object, context->out);
}

static void answer_text(struct command_context *context, struct database *database, const struct values *values,
                        const struct answer *answer)
{
    const struct callsite_options stacks = {.frames = values->frames, .stacks = -1, .is_all = values->all};
    const struct report_total *total = &answer->total;
    char who[64] = "all processes together";
    FILE *out = context->out;
    if (values->pid > 0) {
        snprintf(who, sizeof(who), "process %" PRId64, values->pid);
    }
    if (report_has_remarks(&answer->loss)) {
        report_loss_print(out, database, &answer->loss);
    }
    if (answer->list.count_all == 0) {
        fprintf(out, "%s, %s: nothing was allocated\n", answer->selection.domain, who);
        return;
    }
    terminal_style(out, TERMINAL_TITLE);
    fprintf(out, "Peak of %s, %s: %s", answer->selection.domain, who, EXACT(total->peak_bytes));
    terminal_style(out, TERMINAL_PLAIN);
    fprintf(out, "\n  in %s allocation%s, %s after the start (event %" PRId64 "); ", COUNT(total->peak_allocations),
            total->peak_allocations == 1 ? "" : "s", DURATION(total->peak_ns), total->peak_seq);
    callsite_list_extent(out, &answer->list);
    fputc('\n', out);
    report_times_print(out, database);
    if (answer->selection.devices > 1) {
        fprintf(out, "  %" PRId64 " GPUs, each at its own peak; the moment is that of GPU %" PRId64 "\n",
                answer->selection.devices, answer->selection.device);
    }
    callsite_list_print(out, database, &answer->list, CALLSITE_BY_PEAK, &stacks, NULL);
}

static int make_answer(struct database *database, const struct values *values, struct answer *answer,
                       struct varve_message *message)
{
    const char *domain = values->domain != NULL ? values->domain : selection_default_domain(database);
    int result = selection_make(&answer->selection, database, domain, values->pid, message);
    VARVE_THEN(result, groups_check(database, (enum group_by)values->by, message));
    if (result == VARVE_OK && values->pid > 0) {
        result = groups_check_allocations(database, "--pid", message);
    }
    if (result != VARVE_OK) {
        return result;
    }
    report_loss_load(&answer->loss, database);
    answer->has_total = selection_sum(&answer->selection, database, &answer->total);
    struct groups *groups = groups_open(database, (enum group_by)values->by);
    if (values->pid == 0) {
        groups_load(groups, domain);
    } else if (answer->has_total) {
        groups_load_process(groups, domain, answer->selection.process_id);
    }
    groups_rank(groups, CALLSITE_BY_PEAK, values->top, &answer->list);
    groups_close(groups);
    return VARVE_OK;
}

static const char *command_peak_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->json && values->csv ? "--json and --csv are mutually exclusive" : NULL;
}

static int answer_peak(struct command_context *context, struct database *database, const void *values_untyped,
                       struct varve_message *message)
{
    const struct values *values = values_untyped;
    struct answer answer = {.total = {.peak_seq = -1, .peak_ns = -1}};
    int error = make_answer(database, values, &answer, message);
    if (values->width > 0) {
        terminal_set_columns(values->width);
    }
    terminal_set_full_names(values->full_names);
    if (error == VARVE_OK && values->json) {
        command_peak_answer_json(context, database, values, &answer);
    } else if (error == VARVE_OK && values->csv) {
        context->is_exact = true;
        callsite_list_csv(context->out, &answer.list, CALLSITE_BY_PEAK, answer.selection.domain);
    } else if (error == VARVE_OK) {
        terminal_fold();
        answer_text(context, database, values, &answer);
    }
    callsite_list_free(&answer.list);
    return error;
}

const struct command command_peak = {
    .name = "peak",
    .arguments = "DB",
    .summary = "what was live at the peak, by line, function, stack or process",
    .purpose =
        "Says when the most bytes were live, and whose blocks were live at that moment, by the user's line. With "
        "--pid: the peak of that process alone, which may have been at another moment.",
    .examples = "  varve peak trace.db\n"
                "  varve peak --by process trace.db\n"
                "  varve peak --domain mmap --json trace.db | jq '.callsites[0].frames'\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = command_peak_check,
    .answer = answer_peak,
};
