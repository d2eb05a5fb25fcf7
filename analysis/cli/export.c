/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve export`: a trace for other tools. The file is written beside its place and moved there when it is
 * whole, so that a failure leaves nothing half-written.
 */
#include "analysis/export/export.h"
#include "analysis/export/python_export.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/history/read.h"
#include "analysis/output/file.h"
#include "analysis/output/progress.h"
#include "trace/trace.h"

#include <stddef.h>
#include <stdio.h>

enum format {
    FORMAT_PYTORCH,
    FORMAT_PARQUET,
    FORMAT_ARROW,
};

static const char *const format_names[] = {"pytorch", "parquet", "arrow", NULL};

struct export_values {
    int format;
    const char *output;
    bool force;
    bool quiet;
};

static const struct option_spec options[] = {
    {.name = "to",
     .kind = OPTION_CHOICE,
     .argument = "FORMAT",
     .choices = format_names,
     .help =
         "what to write: pytorch, a snapshot pickle that torch.cuda.memory's viewers read; parquet, arrow: folders of views "
         "by run, rank and device, for pandas, DuckDB, Dask",
     .offset = offsetof(struct export_values, format)},
    {.name = "output",
     .letter = 'o',
     .kind = OPTION_TEXT,
     .argument = "FILE",
     .help = "where to write it; of parquet and arrow a folder",
     .offset = offsetof(struct export_values, output)},
    {.name = "force",
     .letter = 'f',
     .kind = OPTION_FLAG,
     .help = "replace FILE if it exists",
     .offset = offsetof(struct export_values, force)},
    {.name = "quiet",
     .letter = 'q',
     .kind = OPTION_FLAG,
     .help = "show no progress",
     .offset = offsetof(struct export_values, quiet)},
    {.name = NULL},
};

static int write_snapshot(const void *history, FILE *out, struct varve_message *message)
{
    (void)message;
    export_pytorch(history, out);
    return VARVE_OK;
}

static int run_python(struct command_context *context, const struct export_values *chosen,
                      const struct operands *operands)
{
    struct varve_message message = {""};
    struct python_export export = {.database = operands->items[0],
                                   .format = format_names[chosen->format],
                                   .directory = chosen->output,
                                   .force = chosen->force,
                                   .timeout_ns = operands->timeout_ns};

    return export_by_python(&export, &message) == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

static int run(struct command_context *context, const void *values, const struct operands *operands)
{
    const struct export_values *chosen = values;
    struct varve_message message = {""};
    struct progress progress;
    struct history *history = NULL;
    int error;

    if (chosen->output == NULL) {
        return command_fail(context, "-o FILE is required");
    }
    if (chosen->format == FORMAT_PARQUET || chosen->format == FORMAT_ARROW) {
        return run_python(context, chosen, operands);
    }
    if (varve_publish_check(chosen->output, chosen->force, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    command_progress(context, &progress, chosen->quiet);
    error = history_read(operands->items[0], &history, &progress, &message);
    progress_end(&progress);
    if (error == VARVE_OK && history->has_requests_only) {
        error = varve_message_set(&message, VARVE_ERROR_UNSUPPORTED,
                                  "%s has requests only: there are no segments that a snapshot could show",
                                  operands->items[0]);
        history_free(history);
    } else if (error == VARVE_OK) {
        error = output_file(chosen->output, chosen->force, write_snapshot, history, &message);
        history_free(history);
    }
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

static const struct export_values defaults = {.format = FORMAT_PYTORCH};

const struct command command_export = {
    .name = "export",
    .arguments = "TRACE",
    .summary = "write a trace for other tools",
    .purpose =
        "Writes the history of the caching allocators in TRACE, a database or a PyTorch snapshot, as a file "
        "of another tool. `--to pytorch` gives a pickle (protocol 4) like that of "
        "torch.cuda.memory._dump_snapshot, for pytorch.org/memory_viz and similar viewers. `--to parquet` and "
        "`--to arrow` write the views of a database below the folder FILE, as view=NAME/run=…/rank=…/device=…, beside the runs that are "
        "there already; they need Python 3 with the package varve[data] (notebooks/).",
    .examples = "  varve export run.db --to parquet -o runs\n"
                "  varve export run.db --to pytorch -o run.pickle\n"
                "  varve export snapshot.pickle.zst --to pytorch -o plain.pickle\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(struct export_values),
    .operands_min = 1,
    .operands_max = 1,
    .run = run,
};
