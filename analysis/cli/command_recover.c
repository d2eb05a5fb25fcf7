/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve recover`: finishes the directory of a recording whose `varve record` was killed; the work is
 * trace/'s.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/cli/process_end.h"
#include "analysis/import/ctf.h"
#include "analysis/import/import.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/total_query.h"
#include "base/error.h"
#include "trace/collect.h"

#include <stdio.h>

struct values {
    const char *output;
    bool json;
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the database to write (default: the directory's name without .d)",
     offsetof(struct values, output), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static int command_recover_run(struct command_context *context, const void *values_untyped,
                               const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_message message = {""};
    struct progress progress;
    command_progress(context, &progress, false);
    struct varve_collect_result result = {0};
    int error = varve_collect_recover(operands->items[0], values->output, ctf_each_number, progress_step, &progress,
                                      &result, &message);
    char history[4096];
    if (error == VARVE_OK && result.torch_history[0] != '\0') {
        (void)record_histories(result.torch_history, false, &progress, context->err, history, sizeof(history));
    }
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    process_work_is_done(0);
    if (!values->json && result.database_path[0] == '\0') {
        fprintf(context->out, "nothing is left to recover in %s, which is removed\n", operands->items[0]);
        return 0;
    }
    if (values->json) {
        struct cJSON *object = json_object();
        json_text(object, "database", result.database_path[0] != '\0' ? result.database_path : NULL);
        json_integer(object, "events", (int64_t)result.events);
        json_integer(object, "lost", (int64_t)result.lost);
        json_integer(object, "uncommitted", (int64_t)result.uncommitted);
        json_integer(object, "data_loss", (int64_t)result.loss_rows);
        json_integer(object, "processes", (int64_t)result.processes);
        json_integer(object, "images", (int64_t)result.images);
        json_integer(object, "threads", (int64_t)result.threads);
        json_integer(object, "allocations", (int64_t)result.allocations);
        json_integer(object, "lttng_missing", (int64_t)result.lttng_missing);
        json_print(object, context->out);
        return 0;
    }
    char processes[80];
    report_processes_words(processes, sizeof(processes), (int64_t)result.processes, (int64_t)result.images);
    fprintf(context->out, "recovered %s events of %s into %s", COUNT(result.events), processes, result.database_path);
    report_result_words(context->out, &result);
    report_result_interrupted(context->out, &result);
    if (result.lttng_missing > 0) {
        fprintf(context->out, "; the LTTng trace %s lacks %s of them", result.ctf_path, COUNT(result.lttng_missing));
    }
    fprintf(context->out, "\nnext: varve report %s\n", SHELL(result.database_path));
    if (result.torch_remark.text[0] != '\0') {
        fprintf(context->out, "%s\n", result.torch_remark.text);
    }
    report_result_programs(context->out, &result);
    return 0;
}

const struct command command_recover = {
    .name = "recover",
    .arguments = "DIR",
    .summary = "finish a recording whose varve record was killed",
    .purpose = "Makes the database of a recording directory (DB.d) that was left behind because varve record "
               "was killed. All that the program had recorded is in that directory.",
    .examples = "  varve recover trace.db.d\n"
                "  varve recover -o rescued.db trace.db.d\n",
    .options = options,
    .values_bytes = sizeof(struct values),
    .operands_min = 1,
    .operands_max = 1,
    .run = command_recover_run,
};
