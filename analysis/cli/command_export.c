/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve export`: a trace for other tools. The file is written beside its place and moved there when it is
 * whole, so that a failure leaves nothing half-written.
 */
#include "analysis/export/export.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/history/history_read.h"
#include "analysis/base/output_file.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/query_selection.h"
#include "analysis/report/call_tree.h"
#include "base/error.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STDOUT "-"

#define FORMAT_NAME(name, help) #name,
static const char *const format_names[] = {EXPORT_FORMAT_LIST(FORMAT_NAME) NULL};
#undef FORMAT_NAME

struct export_values {
    int format; /* -1: the default */
    const char *output, *domain, *view;
    int64_t pid, blocks;
    int metric; /* -1: the default */
    bool force;
    bool quiet;
};

#define BLOCKS_DEFAULT 10000

static const struct export_format *chosen_format(const struct export_values *values)
{
    return values->format >= 0 ? export_formats[values->format] : &export_format_pytorch;
}

static bool is_stdout(const struct export_values *values)
{
    return values->output != NULL && strcmp(values->output, STDOUT) == 0;
}

/* All views of a format that writes them. */
static bool is_folder(const struct export_values *values)
{
    return chosen_format(values)->write_folder != NULL && values->view == NULL;
}

#define FORMAT_HELP(name, help) "; " #name ": " help
static const struct option_spec options[] = {
    {"to", 0, OPTION_CHOICE, "FORMAT", "what to write" EXPORT_FORMAT_LIST(FORMAT_HELP),
     offsetof(struct export_values, format), 0, 0, format_names},
    {"output", 'o', OPTION_TEXT, "FILE",
     "where to write it; - is standard output; of csv, parquet and arrow a folder, which is made",
     offsetof(struct export_values, output), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace FILE if it exists", offsetof(struct export_values, force), 0, 0, NULL},
    {"domain", 'd', OPTION_TEXT, "NAME", "of stacks, " DOMAIN_HELP "; of perfetto the counters (default: all)",
     offsetof(struct export_values, domain), 0, 0, NULL},
    {"pid", 'p', OPTION_INTEGER, "PID", "one process (default: all; not csv)", offsetof(struct export_values, pid), 1,
     INT32_MAX, NULL},
    {"metric", 0, OPTION_CHOICE, "WHAT",
     "folded: peak (default), allocated, leaked or temporary; speedscope: which of them is shown first",
     offsetof(struct export_values, metric), 0, 0, call_tree_metric_names},
    {"blocks", 0, OPTION_INTEGER, "N", "perfetto: draw the N largest blocks of caching allocators (default 10000)",
     offsetof(struct export_values, blocks), 0, 10000000, NULL},
    {"view", 0, OPTION_TEXT, "NAME", "csv: this table or view alone, to FILE", offsetof(struct export_values, view), 0,
     0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "show no progress", offsetof(struct export_values, quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- what comes out of a history ---- */

static int export_history(struct command_context *context, const struct export_values *values, const char *path,
                          struct varve_message *message)
{
    output_writer *write = chosen_format(values)->write_history;
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    struct history *history = NULL;
    int error = history_read(path, &history, &progress, message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return error;
    }
    if (history->has_requests_only) {
        error = varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                  "%s has requests only: there are no segments that a snapshot could show", path);
    } else if (is_stdout(values)) {
        error = write(history, context->out, message);
    } else {
        error = output_file(values->output, values->force, write, history, message);
    }
    history_free(history);
    return error;
}

/* ---- what comes out of a database ---- */

static int select_part(const struct export_values *values, struct export_request *request,
                       struct varve_message *message)
{
    request->domain = values->domain;
    if (request->domain == NULL && chosen_format(values)->wants_domain) {
        request->domain = selection_default_domain(request->database);
    }
    struct selection selection;
    int error = VARVE_OK;
    if (request->domain != NULL || values->pid != 0) {
        error = selection_make(&selection, request->database, request->domain != NULL ? request->domain : "heap",
                               values->pid, message);
        request->process_id = selection.process_id;
    }
    return error;
}

static int export_database(struct command_context *context, const struct export_values *values,
                           struct database *database, struct varve_message *message)
{
    struct varve_message note = {""};
    struct export_request request = {
        .database = database,
        .metric = values->metric >= 0 ? values->metric : CALL_TREE_PEAK,
        .blocks = values->blocks >= 0 ? values->blocks : BLOCKS_DEFAULT,
        .view = values->view,
        .note = &note,
    };
    const struct export_format *format = chosen_format(values);
    int error = select_part(values, &request, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (is_folder(values)) {
        error = output_folder(values->output, format->write_folder, &request, message);
    } else if (is_stdout(values)) {
        error = format->write(&request, context->out, message);
    } else {
        error = output_file(values->output, values->force, format->write, &request, message);
    }
    if (error == VARVE_OK && note.text[0] != '\0') {
        command_say(context->err, "varve %s: %s\n", context->name, note.text);
    }
    return error;
}

static int open_and_export(struct command_context *context, const struct export_values *values,
                           const struct operands *operands, struct varve_message *message)
{
    struct database *database;
    int error = database_open(operands->items[0], DATABASE_DERIVED, &database, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    database_watch(database, &progress, "exporting");
    error = command_hide(context, database, operands, message);
    VARVE_THEN(error, export_database(context, values, database, message));
    error = error == VARVE_OK ? database_error(database, message) : error;
    progress_end(&progress);
    database_close(database);
    return error;
}

static int export_python(const struct export_values *values, const struct operands *operands,
                         struct varve_message *message)
{
    const struct python_export export = {.database = operands->items[0],
                                         .format = chosen_format(values)->name,
                                         .directory = values->output,
                                         .force = values->force,
                                         .timeout_ns = operands->timeout_ns};
    return export_by_python(&export, message);
}

static const char *command_export_check(const void *values_untyped)
{
    const struct export_values *values = values_untyped;
    const struct export_format *format = chosen_format(values);
    if (format->refusal != NULL) {
        return format->refusal;
    }
    if (values->output == NULL) {
        return "-o FILE is required";
    }
    if (values->view != NULL && format->write_folder == NULL) {
        return "--view is for --to csv";
    }
    if (is_stdout(values) && is_folder(values)) {
        return "-o - takes one table: name it with --view";
    }
    if (is_stdout(values) && format->is_by_python) {
        return "-o takes a folder: parquet and arrow are many files";
    }
    return NULL;
}

/* `takes`: where a format says that it takes the option. */
static int refuse_untaken(const char *option, size_t takes, struct varve_message *message)
{
    char list[200] = "";
    size_t used = 0;
    for (size_t i = 0; export_formats[i] != NULL && used < sizeof(list); i++) {
        if (*(const bool *)((const char *)export_formats[i] + takes)) {
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used > 0 ? ", " : "",
                                     export_formats[i]->name);
        }
    }
    return varve_message_set(message, VARVE_ERROR_INVALID, "%s for --to %s", option, list);
}

static int check_options(const struct export_values *values, struct varve_message *message)
{
    const struct export_format *format = chosen_format(values);
    if ((values->domain != NULL || values->pid != 0) && !format->takes_part) {
        return refuse_untaken("--domain and --pid are", offsetof(struct export_format, takes_part), message);
    }
    if (values->metric >= 0 && !format->takes_metric) {
        return refuse_untaken("--metric is", offsetof(struct export_format, takes_metric), message);
    }
    if (values->blocks >= 0 && !format->takes_blocks) {
        return refuse_untaken("--blocks is", offsetof(struct export_format, takes_blocks), message);
    }
    return VARVE_OK;
}

static int command_export_run(struct command_context *context, const void *values, const struct operands *operands)
{
    const struct export_values *chosen = values;
    const struct export_format *format = chosen_format(chosen);
    struct varve_message message = {""};
    if (is_stdout(chosen) && format->is_binary && fileno(context->out) >= 0 && isatty(fileno(context->out))) {
        return command_fail(context, "%s is not for a terminal: name a file with -o, or send it to a pipe",
                            format->name);
    }
    int error = check_options(chosen, &message);
    if (!is_stdout(chosen) && !format->is_by_python && !is_folder(chosen)) { /* folders: by what writes them */
        VARVE_THEN(error, output_check(chosen->output, chosen->force, operands->items, operands->count, &message));
    }
    if (format->is_by_python) {
        VARVE_THEN(error, export_python(chosen, operands, &message));
    } else if (format->write_history != NULL) {
        VARVE_THEN(error, export_history(context, chosen, operands->items[0], &message));
    } else {
        VARVE_THEN(error, open_and_export(context, chosen, operands, &message));
    }
    return error == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

static const struct export_values defaults = {.format = -1, .metric = -1, .blocks = -1};

const struct command command_export = {
    .name = "export",
    .arguments = "TRACE",
    .summary = "write a trace for other tools",
    .purpose =
        "Writes TRACE for the viewers and tools of others. `--to speedscope`, `pprof` and `folded` have the call "
        "sites of a domain with their stacks; `perfetto` has memory over time: counters of each process, segments "
        "and blocks of caching allocators as slices with flows, marks, calls of the driver, out-of-memory retries; "
        "`csv` has every table and view of the contract; `parquet` and `arrow` the same for pandas, DuckDB and Dask, "
        "by run, rank and device. `pytorch`, of a database or a snapshot, gives a pickle (protocol 4) like that of "
        "torch.cuda.memory._dump_snapshot, for pytorch.org/memory_viz and similar viewers.",
    .examples = "  varve export run.db --to speedscope -o run.speedscope.json\n"
                "  varve export run.db --to pprof -o run.pb.gz && go tool pprof -http=: run.pb.gz\n"
                "  varve export run.db --to perfetto --blocks 50000 -o run.perfetto-trace\n"
                "  varve export run.db --to folded --metric leaked -o - | inferno-flamegraph > leaks.svg\n"
                "  varve export run.db --to csv -o tables/\n"
                "  varve export run.db --to csv --view events -o - | zstd > events.csv.zst\n"
                "  varve export run.db --to parquet -o runs/\n"
                "  varve export run.db --to pytorch -o run.pickle\n"
                "  varve export snapshot.pickle.zst --to pytorch -o plain.pickle\n",
    .options = options,
    .reads_database = true,
    .hides = true,
    .streams = true,
    .check = command_export_check,
    .defaults = &defaults,
    .values_bytes = sizeof(struct export_values),
    .operands_min = 1,
    .operands_max = 1,
    .run = command_export_run,
};
