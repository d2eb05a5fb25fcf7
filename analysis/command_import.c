/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve import`: a snapshot of PyTorch's allocator becomes a trace database. Nothing is left behind when it
 * fails; the work is done in history_pytorch.c (reading) and import_pytorch.c (writing).
 */
#include "analysis/import_internal.h"

#include <string.h>
#include <unistd.h>

struct values {
    const char *output;
    bool force;
    bool quiet;
};

static const struct values defaults = {0};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the trace database to write", offsetof(struct values, output), 0, 0,
     NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no summary, no progress", offsetof(struct values, quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

static int import_into(const char *path, const struct values *values, struct progress *progress,
                       struct import_result *result, struct varve_message *message)
{
    struct varve_writer *writer;
    struct history *history;
    int error = history_read_pytorch(path, &history, progress, message);

    if (error != VARVE_OK) {
        return error;
    }
    error = varve_writer_open(values->output, values->force, &writer, message);
    if (error == VARVE_OK) {
        struct varve_message reason = {""};

        varve_writer_meta_text(writer, "import.source", path);
        error = import_pytorch(history, writer, progress, result, &reason);
        if (error != VARVE_OK) {
            varve_writer_abandon(writer);
            varve_message_set(message, error, "%s: %s", path, reason.text);
        } else {
            error = varve_writer_finish(writer, progress_step, progress, message);
        }
    }
    history_free(history);
    return error;
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_message message = {""};
    struct import_result result;
    struct progress progress;
    int error;

    if (values->output == NULL) {
        return command_fail(context, "say where to write: -o trace.db");
    }
    if (!values->force && access(values->output, F_OK) == 0) {
        return command_fail(context, "%s exists; --force replaces it", values->output);
    }
    progress_begin(&progress, context, values->quiet);
    error = import_into(operands->items[0], values, &progress, &result, &message);
    progress_end(&progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    if (!values->quiet) {
        fprintf(context->out, "%s: %s events, %s call sites, %s segments at the end\n", values->output,
                format_count((int64_t)result.events).text, format_count((int64_t)result.callsites).text,
                format_count((int64_t)result.segments).text);
        if (result.starts_late) {
            fputs("the snapshot was recorded late: what was there before was worked out from its end\n",
                  context->out);
        }
    }
    return 0;
}

const struct command command_import = {
    .name = "import",
    .arguments = "SNAPSHOT",
    .summary = "make a trace database of a snapshot of PyTorch's allocator",
    .purpose =
        "SNAPSHOT is what torch.cuda.memory._dump_snapshot wrote (.pickle, also .xz, .gz, .zst); nothing in "
        "it "
        "is executed. Events, call sites, settings and the segments at the end go into the database. PyTorch "
        "does not tell block sizes in its events: they are those of the requests. For exact blocks, splits "
        "and "
        "merges use varve replay SNAPSHOT -o trace.db instead.",
    .examples = "  varve import snapshot.pickle -o trace.db\n"
                "  varve import snapshot.pickle.xz --force -o trace.db\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = run,
};
