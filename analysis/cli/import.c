/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve import`: a trace database of what others wrote. A file is a snapshot of PyTorch's allocator
 * (history/pytorch/pytorch.c reads, import/pytorch.c writes), a folder holds CTF traces (import/ctf/import.c). Nothing is
 * left behind when it fails.
 */
#include "analysis/import/ctf/ctf.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/import/import.h"
#include "analysis/output/format.h"
#include "analysis/output/json.h"
#include "analysis/output/progress.h"
#include "trace/trace.h"

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
    {"output", 'o', OPTION_TEXT, "DB", "the trace database to write", offsetof(struct values, output), 0, 0,
     NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no summary, no progress", offsetof(struct values, quiet), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

/* ---- a snapshot of PyTorch ---- */

static int pytorch_run(struct command_context *context, const struct values *values, const char *path)
{
    struct varve_message message = {""};
    struct import_result result;
    struct progress progress;
    int error;

    command_progress(context, &progress, values->quiet);
    error = import_pytorch_file(path, values->output, values->force, &progress, &result, &message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
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
                format_count((int64_t)result.events).text, format_count((int64_t)result.callsites).text,
                format_count((int64_t)result.segments).text);
        if (result.starts_late) {
            fputs(
                "the snapshot begins in the middle of the run: what was live before was derived from its end\n",
                context->out);
        }
    }
    return 0;
}

/* ---- a folder with CTF traces ---- */

/* What is not in the database must be said even to those who want to hear nothing. */
static void ctf_warn(struct command_context *context, const char *folder,
                     const struct ctf_import_result *result)
{
    if (result->discarded_events + result->discarded_packets > 0) {
        command_say(context->err, "varve import: %s: LTTng discarded %s%s events and %s packets of events\n",
                    folder, result->uncounted > 0 ? "at least " : "",
                    format_count(result->discarded_events).text,
                    format_count(result->discarded_packets).text);
    }
    if (result->unknown_events > 0) {
        command_say(context->err,
                    "varve import: %s: %s events are of kinds that this version of varve does not know\n",
                    folder, format_count(result->unknown_events).text);
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
    fprintf(context->out, "%s: %s events of %s process%s", values->output, format_count(result->events).text,
            format_count(result->processes).text, result->processes == 1 ? "" : "es");
    if (result->lost > 0) {
        fprintf(context->out, "; LOST %s", format_count(result->lost).text);
    } else {
        fputs("; nothing lost", context->out);
    }
    fprintf(context->out, "\nnext: varve report %s\n", values->output);
}

static int ctf_run(struct command_context *context, const struct values *values, const char *folder)
{
    struct varve_message message = {""};
    struct ctf_import_result result;
    struct progress progress;
    int error;

    command_progress(context, &progress, values->quiet);
    error = ctf_import(folder, values->output, values->force, &progress, &result, &message);
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

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    const char *source = operands->items[0];
    struct varve_message message = {""};
    struct stat status;

    if (values->output == NULL) {
        return command_fail(context, "-o FILE is required");
    }
    if (varve_publish_check(values->output, values->force, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    if (stat(source, &status) == 0 && S_ISDIR(status.st_mode)) {
        return ctf_run(context, values, source);
    }
    return pytorch_run(context, values, source);
}

const struct command command_import = {
    .name = "import",
    .arguments = "SOURCE",
    .summary = "make a trace database of an LTTng trace or a snapshot of PyTorch's allocator",
    .purpose =
        "A folder: the LTTng (CTF) traces in it, at any depth, as varve record --lttng leaves them in "
        "DB.ctf. The database is the one that varve record would have written itself. What LTTng "
        "discarded is counted in it; a damaged trace is refused. babeltrace2 must be installed. A file: a "
        "snapshot of PyTorch's allocator as torch.cuda.memory._dump_snapshot wrote it (.pickle, also "
        ".xz, .gz, .zst); nothing in it is executed. Events, call sites, settings and the segments at "
        "the end go into the database. PyTorch has no block sizes in its events: those of the "
        "requests are used. For exact blocks, splits and merges use varve replay SNAPSHOT -o trace.db "
        "instead.",
    .examples = "  varve import trace.ctf -o trace.db\n"
                "  varve import snapshot.pickle -o trace.db\n"
                "  varve import snapshot.pickle.xz --force -o trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = run,
};
