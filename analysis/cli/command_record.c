/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve record`: starts a program and records it; the work is trace/'s collector. This file turns the
 * command line into its options, says at the end what came of it, and ends as the program ended, so that
 * `varve record --` can stand before any command of a script.
 */
#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/cli/process_end.h"
#include "analysis/cli/recording_options.h"
#include "analysis/import/ctf.h"
#include "analysis/import/import.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/total_query.h"
#include "base/error.h"
#include "trace/collect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct values {
    const char *output;
    bool heap;
    bool python_allocators;
    int cuda;
    bool cupti;
    int torch;
    const char *on_oom;
    bool lttng;
    bool lttng_only;
    int64_t linger_ns;
    struct recording_options recording;
};

static const struct values defaults = {.linger_ns = -1, .recording = RECORDING_DEFAULTS};

static const char *const cuda_names[] = {"replace", NULL};
static const char *const torch_names[] = {"observe", NULL};

enum cuda_mode {
    CUDA_RECORD = 1,
    CUDA_REPLACE = 2,
};

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the database to write (default PROGRAM.PID.db)",
     offsetof(struct values, output), 0, 0, NULL},
    {"heap", 0, OPTION_FLAG, NULL, "record the malloc family and mmap", offsetof(struct values, heap), 0, 0, NULL},
    {"python-allocators", 0, OPTION_FLAG, NULL,
     "record every object of Python interpreters too, as domain python; slower, and a larger database",
     offsetof(struct values, python_allocators), 0, 0, NULL},
    {"cuda", 0, OPTION_MODE, "[=replace]",
     "record calls of the CUDA driver about memory; replace: serve cudaMalloc from varve's allocator",
     offsetof(struct values, cuda), 0, 0, cuda_names},
    {"cupti", 0, OPTION_FLAG, NULL,
     "record CUDA memory as CUPTI reports it: works without LD_PRELOAD, but only one profiler can use CUPTI",
     offsetof(struct values, cupti), 0, 0, NULL},
    {"torch", 0, OPTION_MODE, "[=observe]",
     "PyTorch allocates from varve, every decision is recorded; observe: PyTorch keeps its allocator, and "
     "its own history becomes DB.torch.PID.db at the end",
     offsetof(struct values, torch), 0, 0, torch_names},
    {"on-oom", 0, OPTION_TEXT, "DIR",
     "with --torch: when a request for GPU memory fails, write the memory's state and the reason into DIR",
     offsetof(struct values, on_oom), 0, 0, NULL},
    {"lttng", 0, OPTION_FLAG, NULL,
     "trace to LTTng too: a session of its own, whose CTF trace is left beside DB (DB without .db, with "
     ".ctf)",
     offsetof(struct values, lttng), 0, 0, NULL},
    {"lttng-only", 0, OPTION_FLAG, NULL, "trace to LTTng alone, without a database",
     offsetof(struct values, lttng_only), 0, 0, NULL},
    RECORDING_OPTIONS,
    {"linger", 0, OPTION_SECONDS, "SECONDS",
     "how long to wait for background processes after the program ended (default: until all ended)",
     offsetof(struct values, linger_ns), 0, 0, NULL},
    {"force", 'f', OPTION_FLAG, NULL, "replace DB if it exists", offsetof(struct values, recording.force), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "print no summary and no remarks", offsetof(struct values, recording.quiet), 0, 0,
     NULL},
    {.kind = OPTION_END},
};

/* PROGRAM.PID.db, with the pid of this process: the program has none yet when the directory is made. */
static void command_record_name_output(char *buffer, size_t buffer_bytes, const char *program)
{
    snprintf(buffer, buffer_bytes, "%.200s.%d.db", format_base_name(program), (int)getpid());
}

/* `history`: what PyTorch has kept of its own, which is all that there may be; "": nothing. */
static void command_record_print_summary(FILE *err, const struct varve_collect_result *result, const char *history)
{
    char processes[80];
    report_processes_words(processes, sizeof(processes), (int64_t)result->processes, (int64_t)result->images);
    fprintf(err, "varve: %s events of %s, %s thread%s", COUNT(result->events), processes, COUNT(result->threads),
            result->threads == 1 ? "" : "s");
    report_result_words(err, result);
    if (result->discarded > 0) {
        fprintf(err, "; LTTng discarded %s", COUNT(result->discarded));
    }
    if (result->ctf_path[0] != '\0') {
        command_say(err, "; LTTng trace: %s", result->ctf_path);
    }
    if (result->lttng_missing > 0) {
        fprintf(err, ", which lacks %s of the events", COUNT(result->lttng_missing));
    }
    if (history[0] != '\0' && result->events == 0) {
        command_say(err, "; next: varve report %s\n", SHELL(history));
    } else if (result->database_path[0] != '\0') {
        command_say(err, "; next: varve report %s\n", SHELL(result->database_path));
    } else {
        command_say(err, "; next: varve import %s -o trace.db\n", SHELL(result->ctf_path));
    }
    report_result_programs(err, result);
    report_result_size(err, result);
}

/* Without a word about it: the heap, and CUDA if the program uses it. */
static void choose_records(const struct values *values, struct varve_collect_options *collect)
{
    bool is_named = values->heap || values->cuda != 0 || values->cupti || values->torch != 0;
    collect->heap = values->heap || !is_named;
    collect->python_allocators = values->python_allocators;
    collect->cuda = values->cuda != 0 || !is_named;
    collect->cupti = values->cupti;
    collect->torch = values->torch == 0   ? VARVE_TORCH_OFF
                     : values->torch == 1 ? VARVE_TORCH_ALLOCATE
                                          : VARVE_TORCH_OBSERVE;
}

static void command_record_fill_options(const struct values *values, struct varve_collect_options *collect)
{
    choose_records(values, collect);
    collect->lttng = values->lttng || values->lttng_only;
    collect->no_sqlite = values->lttng_only;
    collect->numbers = ctf_each_number;
    collect->on_oom_path = values->on_oom;
    collect->linger_ns = values->linger_ns;
}

static int command_record_run(struct command_context *context, const void *values_untyped,
                              const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_collect_result result = {0};
    struct varve_message message = {""};
    struct recording recording;
    struct varve_collect_options collect;
    if (values->on_oom != NULL && values->torch == 0) {
        return command_fail(context, "--on-oom is for PyTorch: it needs --torch or --torch=observe");
    }
    varve_collect_options_init(&collect);
    command_record_fill_options(values, &collect);
    if (!recording_begin(context, &values->recording, &recording, &collect)) {
        return EXIT_STATUS_FAILED;
    }
    char output[4096], history[4096] = "";
    command_record_name_output(output, sizeof(output), operands->rest[0]);
    collect.replace_path = values->cuda == CUDA_REPLACE ? recording.replace : NULL;
    collect.database_path = values->output != NULL ? values->output : output;
    collect.argv = operands->rest;
    int error = varve_collect_record(&collect, &result, &message);
    if (result.started) {
        process_work_is_done(result.wait_status);
    }
    if (result.started && result.torch_history[0] != '\0' &&
        !record_histories(result.torch_history, values->recording.force, &recording.progress, context->err, history,
                          sizeof(history))) {
        record_histories_missing(result.torch_history, context->err);
    }
    progress_end(&recording.progress);
    if (error != VARVE_OK) {
        command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(error));
    } else if (!values->recording.quiet) {
        command_record_print_summary(context->err, &result, history);
    }
    if (!result.started) {
        return EXIT_STATUS_FAILED;
    }
    /* The program's status comes first; but a script must not take a recording that failed for one that is there. */
    if (error != VARVE_OK && WIFEXITED(result.wait_status) && WEXITSTATUS(result.wait_status) == 0) {
        return EXIT_STATUS_FAILED;
    }
    fflush(context->err);
    process_end_like(result.wait_status);
}

const struct command command_record = {
    .name = "record",
    .arguments = "[--] COMMAND [ARGUMENTS]",
    .summary = "run a program and record every allocation of it",
    .purpose =
        "Runs COMMAND and records every heap allocation, and every call of the CUDA driver about memory, of "
        "it and of all its child processes into a database; options that name a kind narrow it to what they "
        "name. The program needs no changes. The exit status is the program's (a program that a signal "
        "ended: the same signal); 2 if it could not be started, or if it ended with 0 and the database could not be "
        "written. Ctrl-C stops the program, not the recording; while the database is written, Ctrl-C twice stops "
        "that (exit status 130). "
        "If varve itself is killed, the directory DB.d keeps everything: varve recover DB.d finishes it.",
    .examples = "  varve record -o trace.db -- ./server --port 8080\n"
                "  varve record --stacks python -- python3 train.py\n"
                "  varve record --torch -- python3 train.py          # PyTorch on varve's allocator\n"
                "  varve record --cuda --cupti -- ./simulate         # device memory, cross-checked\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .takes_command = true,
    .streams = true,
    .run = command_record_run,
};
