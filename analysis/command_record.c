/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve record`: starts a program and records it; the work is trace/'s collector. This file turns the
 * command line into its options, says at the end what came of it, and ends as the program ended, so that
 * `varve record --` can stand before any command of a script.
 */
#include "analysis/analysis_internal.h"
#include "analysis/ctf_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_BYTES ((int64_t)sizeof(struct varve_record))

struct values {
    const char *output;
    bool heap;
    bool lttng;
    bool lttng_only;
    int stacks;
    int64_t stack_depth;
    int overflow;
    int64_t ring_bytes;
    int64_t linger_ns;
    bool force;
    bool quiet;
};

static const struct values defaults = {
    .stacks = VARVE_STACKS_ALL,
    .stack_depth = 64,
    .ring_bytes = 4 << 20,
    .linger_ns = -1,
};

/* In the order of their codes. */
static const char *const stacks_names[] = {"none", "native", "python", "all", NULL};
static const char *const overflow_names[] = {"spill", "block", "drop", NULL};

#define ABSENT "this build records the heap only; leave the option out"

static const struct option_spec options[] = {
    {"output", 'o', OPTION_TEXT, "DB", "the database to write (default PROGRAM.PID.db)",
     offsetof(struct values, output), 0, 0, NULL},
    {"heap", 0, OPTION_FLAG, NULL,
     "record malloc and its kin, and mmap (the default, as there is nothing else yet)",
     offsetof(struct values, heap), 0, 0, NULL},
    {"lttng", 0, OPTION_FLAG, NULL,
     "trace to LTTng too: a session of its own, whose CTF trace is left beside DB (DB without .db, with "
     ".ctf)",
     offsetof(struct values, lttng), 0, 0, NULL},
    {"lttng-only", 0, OPTION_FLAG, NULL, "trace to LTTng alone, without a database",
     offsetof(struct values, lttng_only), 0, 0, NULL},
    {"stacks", 0, OPTION_CHOICE, "WHICH", "none, native, python or all (default all): call stacks taken",
     offsetof(struct values, stacks), 0, 0, stacks_names},
    {"stack-depth", 0, OPTION_INTEGER, "N", "frames kept of each stack (default 64)",
     offsetof(struct values, stack_depth), 1, 256, NULL},
    {"overflow", 0, OPTION_CHOICE, "HOW",
     "what a thread does when its ring is full: spill into a file (default), block, or drop and count",
     offsetof(struct values, overflow), 0, 0, overflow_names},
    {"ring-size", 0, OPTION_BYTES, "BYTES", "of each thread's ring, a power of two (default 4M)",
     offsetof(struct values, ring_bytes), 4096, INT64_C(1) << 30, NULL},
    {"linger", 0, OPTION_SECONDS, "SECONDS",
     "how long to wait for background processes after the program ended (default: until all ended)",
     offsetof(struct values, linger_ns), 0, 0, NULL},
    {"force", 0, OPTION_FLAG, NULL, "overwrite an existing database", offsetof(struct values, force), 0, 0,
     NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no summary at the end and no remarks", offsetof(struct values, quiet),
     0, 0, NULL},
    {"cuda", 0, OPTION_ABSENT, NULL, ABSENT, 0, 0, 0, NULL},
    {"cupti", 0, OPTION_ABSENT, NULL, ABSENT, 0, 0, 0, NULL},
    {"torch", 0, OPTION_ABSENT, NULL, ABSENT, 0, 0, 0, NULL},
    {.kind = OPTION_END},
};

/* PROGRAM.PID.db, with the pid of this process: the program has none yet when the directory is made. */
static void name_output(char *buffer, size_t buffer_bytes, const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *base = slash != NULL && slash[1] != '\0' ? slash + 1 : program;

    snprintf(buffer, buffer_bytes, "%.200s.%d.db", base, (int)getpid());
}

/* While the program runs the terminal is its own. */
static void step(void *context, const char *stage, uint64_t done, uint64_t total)
{
    if (strcmp(stage, "recording") != 0) {
        progress_step(context, stage, done, total);
    }
}

static void print_summary(FILE *err, const struct varve_collect_result *result)
{
    fprintf(err, "varve: %s events of %s process%s, %s thread%s; ",
            format_count((int64_t)result->events).text, format_count((int64_t)result->processes).text,
            result->processes == 1 ? "" : "es", format_count((int64_t)result->threads).text,
            result->threads == 1 ? "" : "s");
    if (result->lost > 0) {
        fprintf(err, "LOST %s; ", format_count((int64_t)result->lost).text);
    } else {
        fputs("nothing lost; ", err);
    }
    if (result->discarded > 0) {
        fprintf(err, "LTTng discarded %s; ", format_count((int64_t)result->discarded).text);
    }
    if (result->has_extract) {
        fputs("lttng-crash saved some of the killed; ", err);
    }
    if (result->salvaged > 0) {
        fprintf(err, "%s of the killed told to LTTng again; ", format_count((int64_t)result->salvaged).text);
    }
    if (result->ctf_path[0] != '\0') {
        fprintf(err, "LTTng trace: %s; ", result->ctf_path);
    }
    if (result->database_path[0] != '\0') {
        fprintf(err, "next: varve report %s\n", result->database_path);
    } else {
        fprintf(err, "next: varve import %s -o trace.db\n", result->ctf_path);
    }
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_collect_options collect;
    struct varve_collect_result result = {0};
    struct varve_message message = {""};
    struct progress progress;
    char preload[4096];
    char provider[4096];
    char output[4096];
    int code;

    if ((values->ring_bytes & (values->ring_bytes - 1)) != 0) {
        return command_fail(context, "--ring-size must be a power of two, such as 4M");
    }
    if (!preload_find(preload, sizeof(preload))) {
        return command_fail(context, "%s is missing: build it, or install varve as a whole", preload);
    }
    name_output(output, sizeof(output), operands->rest[0]);
    progress_begin(&progress, context, values->quiet);
    varve_collect_options_init(&collect);
    collect.database_path = values->output != NULL ? values->output : output;
    collect.preload_path = preload;
    provider_find(provider, sizeof(provider)); /* if it is missing, recording says so and does without */
    collect.provider_path = provider;
    collect.lttng = values->lttng || values->lttng_only;
    collect.no_sqlite = values->lttng_only;
    collect.numbers = ctf_version() != NULL ? ctf_each_number : NULL;
    collect.argv = operands->rest;
    collect.overflow = (unsigned)values->overflow;
    collect.stacks = (unsigned)values->stacks;
    collect.stack_depth = (unsigned)values->stack_depth;
    collect.ring_records = (unsigned)(values->ring_bytes / RECORD_BYTES);
    collect.heap = true;
    collect.replace = values->force;
    collect.quiet = values->quiet;
    collect.linger_ns = values->linger_ns;
    collect.progress = step;
    collect.progress_context = &progress;
    code = varve_collect_record(&collect, &result, &message);
    progress_end(&progress);
    if (code != VARVE_OK) {
        command_fail(context, "%s", message.text[0] != '\0' ? message.text : varve_strerror(code));
    } else if (!values->quiet) {
        print_summary(context->err, &result);
    }
    if (!result.started) {
        return EXIT_STATUS_FAILED;
    }
    /* A recording that failed is no reason to tell the caller's script that its program did. */
    fflush(context->err);
    varve_collect_exit_like(result.wait_status);
}

const struct command command_record = {
    .name = "record",
    .arguments = "[--] COMMAND [ARGUMENTS]",
    .summary = "run a program and record every allocation of it",
    .purpose =
        "Runs COMMAND and records every heap allocation of it and of all its child processes into a "
        "database. The program needs no changes. The exit status is the program's (a program that a signal "
        "ended: the same signal); 2 if it could not be started. Ctrl-C stops the program, not the recording. "
        "If varve itself is killed, the directory DB.d keeps everything: varve recover DB.d finishes it.",
    .examples = "  varve record -o trace.db -- ./server --port 8080\n"
                "  varve record --stacks python -- python3 train.py\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .takes_command = true,
    .streams = true,
    .run = run,
};
