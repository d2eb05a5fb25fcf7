/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve attach` and `varve detach`: the recording of a process that runs already begins and ends; the work is trace/'s
 * collector. This file turns the command lines into its options and says what came of it.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/cli/process_end.h"
#include "analysis/cli/recording_options.h"
#include "analysis/base/number_format.h"
#include "analysis/import/import.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/total_query.h"
#include "base/error.h"
#include "trace/collect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    const char *output;
    int64_t for_ns;
    bool heap;
    bool cuda;
    bool torch;
    struct recording_options recording;
};

static const struct values defaults = {.for_ns = -1, .recording = RECORDING_DEFAULTS};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the database to write (default PROGRAM.PID.db)",
     offsetof(struct values, output), 0, 0, NULL},
    {"for", 0, OPTION_SECONDS, "SECONDS", "detach after so long (default: when the program ends, or by Ctrl-C)",
     offsetof(struct values, for_ns), 0, 0, NULL},
    {"heap", 0, OPTION_FLAG, NULL, "record the malloc family and mmap", offsetof(struct values, heap), 0, 0, NULL},
    {"cuda", 0, OPTION_FLAG, NULL, "record calls of the CUDA driver about memory", offsetof(struct values, cuda), 0, 0,
     NULL},
    {"torch", 0, OPTION_FLAG, NULL,
     "record calls of the CUDA driver, and what PyTorch allocates: its own history from now on becomes DB.torch.PID.db",
     offsetof(struct values, torch), 0, 0, NULL},
    RECORDING_OPTIONS,
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, recording.force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "print no summary and no remarks", offsetof(struct values, recording.quiet), 0, 0,
     NULL},
    {.kind = OPTION_END},
};

/* False, with the reason said: it is no number of a process. */
static bool parse_pid(struct command_context *context, const char *text, int32_t *pid_out)
{
    char *end;
    const long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number < 1 || number > INT32_MAX) {
        command_fail(context, "'%s' is no process number: give one, as ps and pidof show them", text);
        return false;
    }
    *pid_out = (int32_t)number;
    return true;
}

static void command_attach_name_output(char *buffer, size_t bytes, int32_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    char name[64] = "";
    if (file != NULL) {
        name[fread(name, 1, sizeof(name) - 1, file)] = '\0';
        fclose(file);
    }
    name[strcspn(name, "\n")] = '\0';
    for (char *at = name; *at != '\0'; at++) {
        *at = *at == '/' || *at < ' ' ? '_' : *at;
    }
    snprintf(buffer, bytes, "%s.%d.db", name[0] != '\0' ? name : "process", pid);
}

/* `history`: what PyTorch has kept of its own, which is all that there may be; "": nothing. */
static void command_attach_print_summary(FILE *err, int32_t pid, const struct varve_collect_result *result,
                                         const char *history)
{
    char processes[80];
    report_processes_words(processes, sizeof(processes), (int64_t)result->processes, (int64_t)result->images);
    fprintf(err, "varve: %s process %d: %s events of %s, %s thread%s",
            !result->was_detached      ? "end of"
            : result->hooked_count > 0 ? "recorded"
                                       : "detached from",
            pid, COUNT(result->events), processes, COUNT(result->threads), result->threads == 1 ? "" : "s");
    report_result_words(err, result);
    fprintf(err, "; one thread was held for %s to begin", DURATION(result->attach_stopped_ns));
    command_say(err, "; next: varve report %s\n", SHELL(history[0] != '\0' ? history : result->database_path));
    if (result->torch_remark.text[0] != '\0') {
        command_say(err, "varve: process %d: %s\n", pid, result->torch_remark.text);
    }
    report_result_programs(err, result);
    report_result_size(err, result);
}

/* Without a word about it: the heap, and CUDA if the program uses it. */
static void command_attach_choose(const struct values *values, struct varve_collect_options *collect)
{
    const bool is_named = values->heap || values->cuda || values->torch;
    collect->heap = values->heap || !is_named;
    collect->cuda = values->cuda || !is_named;
    if (values->torch) {
        recording_observe_torch(collect);
    }
}

/* Who is told that the recording has begun, once it has. */
struct attach_begin {
    struct recording recording;
    FILE *err; /* NULL: nobody, or they know */
    int32_t pid;
    const char *path; /* of the database */
};

static void command_attach_step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    struct attach_begin *begin = context;
    if (begin->err != NULL && strcmp(stage, "recording") == 0) {
        command_say(begin->err, "varve: recording process %d into %s; Ctrl-C or varve detach %d ends that\n",
                    begin->pid, begin->path, begin->pid);
        fflush(begin->err);
        begin->err = NULL;
    }
    recording_step(&begin->recording.progress, stage, done, total);
}

static int command_attach_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_collect_options collect;
    struct varve_collect_result result = {0};
    struct varve_message message = {""};
    varve_collect_options_init(&collect);
    if (!parse_pid(context, operands->items[0], &collect.attach_pid)) {
        return EXIT_STATUS_FAILED;
    }
    command_attach_choose(values, &collect);
    struct attach_begin begin = {.pid = collect.attach_pid};
    if (!recording_begin(context, &values->recording, &begin.recording, &collect)) {
        return EXIT_STATUS_FAILED;
    }
    char output[4096], history[4096] = "";
    command_attach_name_output(output, sizeof(output), collect.attach_pid);
    collect.attach_ns = values->for_ns;
    collect.database_path = values->output != NULL ? values->output : output;
    begin.err = values->recording.quiet ? NULL : context->err;
    begin.path = collect.database_path;
    collect.progress = command_attach_step;
    collect.progress_context = &begin;
    int error = varve_collect_attach(&collect, &result, &message);
    if (result.started && result.torch_history[0] != '\0') {
        (void)record_histories(result.torch_history, values->recording.force, &begin.recording.progress, context->err,
                               history, sizeof(history));
    }
    progress_end(&begin.recording.progress);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    process_work_is_done(0);
    if (!values->recording.quiet) {
        command_attach_print_summary(context->err, collect.attach_pid, &result, history);
    }
    recording_say_hooked(context->err, &result);
    return 0;
}

const struct command command_attach = {
    .name = "attach",
    .arguments = "PID",
    .summary = "record a process that runs already, from now on",
    .purpose =
        "Loads the recorder into process PID, which was not started by varve record, and records every heap "
        "allocation and mapping of it and of its fork children from that moment on, and every call of the CUDA driver "
        "about memory; options that name a kind narrow it to what they name. Ends when the process does, or "
        "by Ctrl-C, SIGTERM or varve detach PID: then the process goes on without the recorder, and the database is "
        "written. One thread of the process is held for some milliseconds at the beginning and at the end. Not known "
        "are blocks from before, but PyTorch's: the report says how many of them were freed or resized. Not recorded "
        "are programs that the process executes, and what a library does in its own initialization when it is loaded "
        "later. "
        "If varve itself is killed, varve detach PID takes the hooks out and varve recover DB.d finishes the "
        "database; only SIGKILL to its child attach-injector, which lives for those milliseconds, ends the process "
        "too.",
    .examples = "  varve attach -o trace.db 4711\n"
                "  varve attach --for 60 --stacks native $(pidof redis-server)\n"
                "  varve attach --torch --for 30 -o train.db 4711    # a training under PyTorch\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .streams = true,
    .run = command_attach_run,
};

/* ---- detach ---- */

struct detach_values {
    bool quiet;
};

static const struct option_spec detach_options[] = {
    {"quiet", 'q', OPTION_FLAG, NULL, "say nothing", offsetof(struct detach_values, quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

static int run_detach(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct detach_values *values = values_untyped;
    struct varve_message message = {""};
    int32_t pid;
    if (!parse_pid(context, operands->items[0], &pid)) {
        return EXIT_STATUS_FAILED;
    }
    bool was_alone;
    int error = varve_collect_detach(pid, &was_alone, &message);
    if (error != VARVE_OK) {
        return command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    }
    if (!values->quiet) {
        fprintf(context->err, "varve: detached from process %d%s\n", pid,
                was_alone ? "; its varve attach was killed: varve recover DB.d finishes the database" : "");
    }
    return 0;
}

const struct command command_detach = {
    .name = "detach",
    .arguments = "PID",
    .summary = "end what varve attach has begun",
    .purpose =
        "Ends the recording of process PID by varve attach, which runs elsewhere, and waits until its database is "
        "written. The process, and what it has forked meanwhile, goes on without the recorder. root may do it to "
        "processes of others.",
    .examples = "  varve detach 4711\n"
                "  varve detach $(pidof redis-server) && varve report trace.db\n",
    .options = detach_options,
    .values_bytes = sizeof(struct detach_values),
    .operands_min = 1,
    .operands_max = 1,
    .streams = true,
    .run = run_detach,
};
