/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve import`: a trace database of what others wrote. A folder holds CTF traces (import/import_ctf.c), a file what
 * its first bytes say: a snapshot of PyTorch's allocator (import/import_pytorch.c) or a log of another tool
 * (import/import_log.c). Nothing is left behind when it fails.
 */
#include "analysis/import/ctf.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/input_stream.h"
#include "analysis/import/import.h"
#include "analysis/import/import_log.h"
#include "analysis/base/output_file.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct values {
    const char *output;
    bool force;
    bool quiet;
    bool json;
};

static const struct values defaults = {0};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the trace database to write", offsetof(struct values, output), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no summary, no progress", offsetof(struct values, quiet), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- a snapshot of PyTorch ---- */

static int pytorch_run(struct command_context *context, const struct values *values, const char *path,
                       struct input_stream *input)
{
    struct varve_message message = {""};
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    struct import_result result;
    int error = import_pytorch_stream(input, path, values->output, values->force, &progress, &result, &message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    if (result.inferred[0] != '\0') {
        command_say(context->err, "varve import: %s: %s\n", path, result.inferred);
    }
    if (values->json) {
        struct cJSON *object = json_object();
        json_text(object, "database", values->output);
        json_integer(object, "events", (int64_t)result.events);
        json_integer(object, "callsites", (int64_t)result.callsites);
        json_integer(object, "segments", (int64_t)result.segments);
        json_bool(object, "starts_late", result.starts_late);
        json_print(object, context->out);
    } else if (!values->quiet) {
        fprintf(context->out, "%s: %s events, %s call sites, %s segments at the end\n", values->output,
                COUNT(result.events), COUNT(result.callsites), COUNT(result.segments));
        if (result.starts_late) {
            fputs("the snapshot begins in the middle of the run: what was live before was derived from its end\n",
                  context->out);
        }
    }
    return 0;
}

/* ---- a folder with CTF traces ---- */

/* What is not in the database must be said even to those who want to hear nothing. */
static void ctf_warn(struct command_context *context, const char *folder, const struct ctf_import_result *result)
{
    if (result->discarded_events + result->discarded_packets > 0) {
        command_say(context->err, "varve import: %s: LTTng discarded %s%s events and %s packets of events\n", folder,
                    result->uncounted > 0 ? "at least " : "", COUNT(result->discarded_events),
                    COUNT(result->discarded_packets));
    }
    if (result->unknown_events > 0) {
        command_say(context->err, "varve import: %s: %s events are of kinds that this version of varve does not know\n",
                    folder, COUNT(result->unknown_events));
    }
}

static void ctf_json(struct command_context *context, const struct values *values,
                     const struct ctf_import_result *result)
{
    struct cJSON *object = json_object();
    json_text(object, "database", values->output);
    json_integer(object, "events", result->events);
    json_integer(object, "lost", result->lost);
    json_integer(object, "uncommitted", result->uncommitted);
    json_integer(object, "processes", result->processes);
    json_integer(object, "threads", result->threads);
    json_integer(object, "allocations", result->allocations);
    json_integer(object, "discarded_events", result->discarded_events);
    json_integer(object, "discarded_packets", result->discarded_packets);
    json_integer(object, "unknown_events", result->unknown_events);
    json_integer(object, "other_events", result->other_events);
    json_print(object, context->out);
}

static void ctf_summary(struct command_context *context, const struct values *values,
                        const struct ctf_import_result *result)
{
    fprintf(context->out, "%s: %s events of %s process%s", values->output, COUNT(result->events),
            COUNT(result->processes), result->processes == 1 ? "" : "es");
    if (result->lost > 0) {
        fprintf(context->out, "; LOST %s", COUNT(result->lost));
    } else {
        fputs("; nothing lost", context->out);
    }
    fprintf(context->out, "\nnext: varve report %s\n", SHELL(values->output));
}

static int ctf_run(struct command_context *context, const struct values *values, const char *folder)
{
    struct varve_message message = {""};
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    struct ctf_import_result result;
    int error = ctf_import(folder, values->output, values->force, &progress, &result, &message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    ctf_warn(context, folder, &result);
    if (values->json) {
        ctf_json(context, values, &result);
    } else if (!values->quiet) {
        ctf_summary(context, values, &result);
    }
    return 0;
}

/* ---- a log of another tool ---- */

/* What the log has wrong is said even to those who want to hear nothing. */
static void log_warn(struct command_context *context, const char *path, const struct import_log_result *result)
{
    for (unsigned i = 0; i < IMPORT_FAULT_LIMIT; i++) {
        const struct import_fault_count *fault = &result->faults[i];
        if (fault->count > 0) {
            command_say(context->err, "varve import: %s: %s %s (the first: %s %" PRIu64 ")\n", path,
                        COUNT(fault->count), import_fault_words((enum import_fault)i, fault->count), result->entry,
                        fault->first & (IMPORT_NUMBERS_PER_FILE - 1));
        }
    }
    if (result->inherited_bytes > 0) {
        command_say(context->err,
                    "varve import: %s begins in the middle of the run: %s were live before, as its totals say\n", path,
                    EXACT(result->inherited_bytes));
    }
    if (result->by_time) {
        command_say(context->err,
                    "varve import: %s: its order makes less sense than that of its times, which was taken\n", path);
    }
}

static void log_json(struct command_context *context, const struct values *values,
                     const struct import_log_result *result)
{
    struct cJSON *object = json_object();
    struct cJSON *faults = json_object();
    json_text(object, "database", values->output);
    json_text(object, "format", result->format);
    json_integer(object, "entries", (int64_t)result->entries);
    json_integer(object, "events", (int64_t)result->events);
    json_integer(object, "allocations", (int64_t)result->allocations);
    json_integer(object, "frees", (int64_t)result->frees);
    json_integer(object, "failures", (int64_t)result->failures);
    json_integer(object, "processes", (int64_t)result->processes);
    json_integer(object, "threads", (int64_t)result->threads);
    json_integer(object, "streams", (int64_t)result->streams);
    json_integer(object, "callsites", (int64_t)result->callsites);
    json_integer(object, "peak_bytes", (int64_t)result->peak_bytes);
    json_integer(object, "live_bytes", (int64_t)result->live_bytes);
    json_integer(object, "peak_reserved", (int64_t)result->peak_reserved);
    json_integer(object, "inherited_bytes", (int64_t)result->inherited_bytes);
    json_integer(object, "duration_ns", result->duration_ns);
    json_text(object, "order", result->by_time ? "time" : "source");
    for (unsigned i = 0; i < IMPORT_FAULT_LIMIT; i++) {
        bool is_loss;
        json_integer(faults, import_fault_stat((enum import_fault)i, &is_loss), (int64_t)result->faults[i].count);
    }
    json_add(object, "faults", faults);
    json_print(object, context->out);
}

static void print_counted(FILE *out, uint64_t count, const char *one, const char *many)
{
    fprintf(out, "%s %s", COUNT(count), format_plural((int64_t)count, one, many));
}

static void log_summary(struct command_context *context, const struct values *values,
                        const struct import_log_result *result)
{
    FILE *out = context->out;
    fprintf(out, "%s: ", values->output);
    print_counted(out, result->allocations, "allocation", "allocations");
    fputs(", ", out);
    print_counted(out, result->frees, "free", "frees");
    fputs(", ", out);
    print_counted(out, result->failures, "failure", "failures");
    fprintf(out, " of a%s %s over %s: ", strchr("AEIOUNR", result->format[0]) != NULL ? "n" : "", result->format,
            DURATION(result->duration_ns));
    print_counted(out, result->processes, "process", "processes");
    fputs(", ", out);
    print_counted(out, result->threads, "thread", "threads");
    fputs(", ", out);
    print_counted(out, result->streams, "stream", "streams");
    fprintf(out, "\npeak %s; live at the end %s\n", EXACT(result->peak_bytes), EXACT(result->live_bytes));
    if (result->peak_reserved > 0) {
        fprintf(out, "reserved for that, as the %s has it: at most %s\n", result->format, EXACT(result->peak_reserved));
    }
    fprintf(out, "next: varve report %s\n", SHELL(values->output));
}

static int log_run(struct command_context *context, const struct values *values, const struct operands *operands,
                   struct input_stream *input, enum import_source source)
{
    struct varve_message message = {""};
    struct progress progress;
    command_progress(context, &progress, values->quiet);
    struct import_log_result result;
    int error = import_log(operands->items, (size_t)operands->count, input, source, values->output, values->force,
                           &progress, &result, &message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    log_warn(context, operands->items[0], &result);
    if (values->json) {
        log_json(context, values, &result);
    } else if (!values->quiet) {
        log_summary(context, values, &result);
    }
    return 0;
}

static int file_run(struct command_context *context, const struct values *values, const struct operands *operands)
{
    struct varve_message message = {""};
    struct input_stream *input;
    enum import_source source;
    int error = input_stream_open(operands->items[0], &input, &message);
    if (error == VARVE_OK) {
        error = import_recognise(input, &source, &message);
        if (error != VARVE_OK) {
            input_stream_close(input);
        }
    }
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    return source == IMPORT_SOURCE_PYTORCH && operands->count == 1
               ? pytorch_run(context, values, operands->items[0], input)
               : log_run(context, values, operands, input, source);
}

static int command_import_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *source = operands->items[0];
    struct varve_message message = {""};
    if (values->output == NULL) {
        return command_fail(context, "-o FILE is required");
    }
    if (output_check(values->output, values->force, operands->items, operands->count, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    struct stat status;
    if (operands->count == 1 && stat(source, &status) == 0 && S_ISDIR(status.st_mode)) {
        return ctf_run(context, values, source);
    }
    return file_run(context, values, operands);
}

const struct command command_import = {
    .name = "import",
    .arguments = "SOURCE [FILE…]",
    .summary = "make a trace database of another tool's trace or log",
    .purpose = "What SOURCE is, its first bytes say; files may be compressed (.xz, .gz, .zst), an export of Nsight "
               "Systems not. "
               "A folder: the LTTng (CTF) traces in it, at any depth, as varve record --lttng leaves them in "
               "DB.ctf. The database is the one that varve record would have written itself. What LTTng "
               "discarded is counted in it; a damaged trace is refused. babeltrace2 must be installed. "
               "A snapshot of PyTorch's allocator, as torch.cuda.memory._dump_snapshot wrote it, or json.dump or "
               "torch.save of the same; nothing in it is executed. Events, call sites, settings and the segments at "
               "the end go into the database. PyTorch has no block sizes in its events: those of the requests are "
               "used. For exact blocks, splits and merges use varve replay SNAPSHOT -o trace.db instead. "
               "A log of RMM (logging_resource_adaptor): the requests to the resource below it, as blocks without "
               "segments; several FILEs are logs of one program's devices (NAME.dev0.csv, …). "
               "A trace of PyTorch's profiler with profile_memory=True: blocks, and tensors on the CPU as heap, with "
               "the operators and functions of Python that were running. "
               "An SQLite export of Nsight Systems with --cuda-memory-usage=true: calls of the driver. "
               "The last three have requests only: varve replay --policy NAME makes them to an allocator of that "
               "policy. What is wrong in a log (cut off, out of order, frees of unknown addresses) is counted, said, "
               "and in the tables stats and data_loss.",
    .examples = "  varve import trace.ctf -o trace.db\n"
                "  varve import snapshot.pickle.xz --force -o trace.db\n"
                "  varve import rmm_log.dev0.csv rmm_log.dev1.csv -o trace.db\n"
                "  varve import report.sqlite -o trace.db\n"
                "  varve import worker0.pt.trace.json.gz -o trace.db\n",
    .options = options,
    .reads_database = true, /* of Nsight Systems */
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = OPERANDS_MAX,
    .run = command_import_run,
};
