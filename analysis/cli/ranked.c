/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve leaks` and `varve peak`: the call sites of the blocks that were never freed, and of those that were
 * live at the peak. Of all processes together they come from the totals of the call sites; of one process
 * from its allocations, which takes longer.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/query/callsites.h"
#include "analysis/query/db.h"
#include "analysis/query/loss.h"
#include "analysis/query/selection.h"
#include "analysis/query/totals.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct values {
    int64_t top;
    int64_t frames;
    int64_t pid;
    const char *domain;
    bool json;
    bool csv;
};

static const struct values defaults = {.top = 10, .frames = -1, .domain = "heap"};

static const struct option_spec options[] = {
    {"top", 'n', OPTION_INTEGER, "N", "call sites shown (default 10)", offsetof(struct values, top), 1,
     1000000000, NULL},
    {"frames", 'f', OPTION_INTEGER, "N", "frames of each stack (default 6; with --json all); 0: none",
     offsetof(struct values, frames), 0, 1000, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", DOMAIN_HELP,
     offsetof(struct values, domain), 0, 0, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "of this process only (default: all together)",
     offsetof(struct values, pid), 1, INT32_MAX, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, csv), 0, 0,
     NULL},
    {.kind = OPTION_END},
};

struct answer {
    enum callsite_rank rank;
    struct selection selection;
    struct report_total total;
    bool has_total;
    struct callsite_list list;
    struct report_loss loss;
};

static void answer_json(struct command_context *context, struct database *database,
                        const struct values *values, const struct answer *answer)
{
    const struct callsite_options stacks = {.frames = values->frames, .stacks = -1};
    struct cJSON *object = json_object();
    const struct report_total *total = &answer->total;
    bool is_peak = answer->rank == CALLSITE_BY_PEAK;

    json_text(object, "database", database_path(database));
    json_text(object, "domain", answer->selection.domain);
    json_integer_or_null(object, "pid", values->pid > 0 ? values->pid : -1);
    json_integer(object, "bytes", is_peak ? total->peak_bytes : total->live_bytes);
    json_integer(object, "allocations", is_peak ? total->peak_allocations : total->live_allocations);
    if (is_peak) {
        json_integer_or_null(object, "seq", answer->has_total ? total->peak_seq : -1);
        json_integer_or_null(object, "ts_ns", answer->has_total ? total->peak_ns : -1);
    }
    json_bool(object, "nothing_lost", report_is_lossless(&answer->loss));
    json_integer(object, "callsites_all", answer->list.count_all);
    json_add(object, "callsites", callsite_list_json(database, &answer->list, answer->rank, &stacks, false));
    json_print(object, context->out);
}

static void answer_text(struct command_context *context, struct database *database,
                        const struct values *values, const struct answer *answer)
{
    const struct callsite_options stacks = {.frames = values->frames, .stacks = -1};
    const struct report_total *total = &answer->total;
    struct callsite_shown shown = {0};
    char who[64] = "all processes together";
    FILE *out = context->out;

    if (values->pid > 0) {
        snprintf(who, sizeof(who), "process %" PRId64, values->pid);
    }
    if (!report_is_lossless(&answer->loss)) {
        report_loss_print(out, database, &answer->loss);
    }
    if (answer->list.count_all == 0) {
        fprintf(out, "%s, %s: %s\n", answer->selection.domain, who,
                answer->rank == CALLSITE_BY_PEAK ? "nothing was allocated" : "everything was freed");
        return;
    }
    if (answer->rank == CALLSITE_BY_PEAK) {
        fprintf(out,
                "%s, %s: peak of %s in %s allocation%s,\n%s after the start (event %" PRId64
                "), %s call site%s\n",
                answer->selection.domain, who, format_bytes_exact(total->peak_bytes).text,
                format_count(total->peak_allocations).text, total->peak_allocations == 1 ? "" : "s",
                format_duration(total->peak_ns).text, total->peak_seq,
                format_count(answer->list.count_all).text, answer->list.count_all == 1 ? "" : "s");
    } else {
        fprintf(out, "%s, %s: %s in %s allocation%s never freed, %s call site%s\n", answer->selection.domain,
                who, format_bytes_exact(total->live_bytes).text, format_count(total->live_allocations).text,
                total->live_allocations == 1 ? "" : "s", format_count(answer->list.count_all).text,
                answer->list.count_all == 1 ? "" : "s");
    }
    if (answer->selection.devices > 1 && answer->rank == CALLSITE_BY_PEAK) {
        fprintf(out, "%" PRId64 " GPUs, each at its own peak; the moment is that of GPU %" PRId64 "\n",
                answer->selection.devices, answer->selection.device);
    }
    callsite_list_print(out, database, &answer->list, answer->rank, &stacks, &shown);
    callsite_shown_free(&shown);
}

static int make_answer(struct database *database, const struct values *values, struct answer *answer,
                       struct varve_message *message)
{
    int result = selection_make(&answer->selection, database, values->domain, values->pid, message);

    if (result != VARVE_OK) {
        return result;
    }
    report_loss_load(&answer->loss, database);
    answer->has_total = selection_sum(&answer->selection, database, &answer->total);
    if (values->pid == 0) {
        callsite_list_load(&answer->list, database, answer->rank, values->domain, values->top);
    } else if (answer->has_total) {
        callsite_list_load_process(
            &answer->list, database, answer->rank, values->domain, answer->selection.process_id,
            answer->rank == CALLSITE_BY_PEAK ? answer->total.peak_seq : -1, values->top);
    }
    return VARVE_OK;
}

static const char *check(const void *values_untyped)
{
    const struct values *values = values_untyped;

    return values->json && values->csv ? "--json and --csv exclude each other" : NULL;
}

static int answer_ranked(struct command_context *context, struct database *database,
                         const struct values *values, enum callsite_rank rank, struct varve_message *message)
{
    struct answer answer = {.rank = rank, .total = {.peak_seq = -1, .peak_ns = -1}};
    int error = make_answer(database, values, &answer, message);

    if (error == VARVE_OK && values->json) {
        answer_json(context, database, values, &answer);
    } else if (error == VARVE_OK && values->csv) {
        context->is_exact = true;
        callsite_list_csv(context->out, &answer.list, rank, values->domain);
    } else if (error == VARVE_OK) {
        answer_text(context, database, values, &answer);
    }
    callsite_list_free(&answer.list);
    return error;
}

static int answer_peak(struct command_context *context, struct database *database, const void *values,
                       struct varve_message *message)
{
    return answer_ranked(context, database, values, CALLSITE_BY_PEAK, message);
}

const struct command command_peak = {
    .name = "peak",
    .arguments = "DB",
    .summary = "what was live at the peak, by call site",
    .purpose = "Says when the most bytes were live, and lists the call sites whose blocks were live at that "
               "moment. With --pid: the peak of that process alone, which may have been at another moment.",
    .examples = "  varve peak trace.db\n"
                "  varve peak --domain mmap --json trace.db | jq '.callsites[0].frames'\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .check = check,
    .answer = answer_peak,
};
