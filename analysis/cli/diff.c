/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff`: are two databases the same trace? The two roads of one recording, into SQLite and through
 * LTTng, must end in equal rows, and this is what says so: event by event, by ring and number. Exit status as
 * of diff(1): 0 equal, 1 different, 2 no answer.
 */
#include "analysis/query/diff/diff.h"

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/output/memory.h"
#include "analysis/output/progress.h"
#include "analysis/query/db.h"
#include "trace/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_STATUS_DIFFERS 1

struct values {
    int64_t limit;
    bool tables;
    bool json;
    bool quiet;
};

static const struct values defaults = {.limit = 20};

static const struct option_spec options[] = {
    {"limit", 'n', OPTION_INTEGER, "N", "differences listed (default 20)", offsetof(struct values, limit), 0,
     1000000000, NULL},
    {"tables", 't', OPTION_FLAG, NULL,
     "what differs in the tables process and thread counts as a difference too (default: only told)",
     offsetof(struct values, tables), 0, 0, NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "nothing but the exit status; stops at the first difference",
     offsetof(struct values, quiet), 0, 0, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static int check_numbers(struct database *database, struct varve_message *message)
{
    int64_t count = database_integer(
        database, "SELECT count(*) FROM pragma_table_info('event') WHERE name = 'ring_seq'", 0);

    if (count == 0 && database_error(database, message) == VARVE_OK) {
        return varve_message_set(
            message, VARVE_ERROR_VERSION,
            "%s was made by an older varve: its events have no ring_seq to compare them by; "
            "record or import it anew",
            database_path(database));
    }
    return database_error(database, message);
}

static void compare_runs(struct diff *diff)
{
    char *a = database_meta(diff->traces[DIFF_A].database, "trace_id");
    char *b = database_meta(diff->traces[DIFF_B].database, "trace_id");

    if (a != NULL && b != NULL) {
        diff->runs = strcmp(a, b) == 0 ? DIFF_RUNS_SAME : DIFF_RUNS_OTHER;
    }
    free(a);
    free(b);
}

static int compare(struct diff *diff, struct varve_message *message)
{
    int result = VARVE_OK;

    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result = check_numbers(diff->traces[side].database, message);
    }
    if (result != VARVE_OK) {
        return result;
    }
    compare_runs(diff);
    diff_tables_compare(diff);
    diff_rings_scan(diff);
    return diff_events_compare(diff, message);
}

/* Loads stacks and losses: a database may still turn out to be damaged, and then nothing is printed. */
static int print_answer(struct command_context *context, const struct values *values, const struct diff *diff,
                        struct varve_message *message)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int result = VARVE_OK;

    if (out == NULL) {
        memory_exhausted();
    }
    if (values->json) {
        diff_print_json(out, diff);
    } else {
        diff_print_text(out, diff);
    }
    if (fclose(out) != 0) {
        memory_exhausted();
    }
    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result = database_error(diff->traces[side].database, message);
    }
    if (result == VARVE_OK) {
        fwrite(text, 1, bytes, context->out);
        if (fflush(context->out) != 0 || ferror(context->out)) {
            result = varve_message_set(message, VARVE_ERROR_IO, "the output could not be written: %s",
                                       strerror(errno));
        }
    }
    free(text);
    return result;
}

static void diff_free(struct diff *diff)
{
    diff_result_free(diff);
    diff_remarks_free(&diff->remarks);
    diff_pairs_free(&diff->allocations);
    diff_pairs_free(&diff->segments);
    diff_pairs_free(&diff->callsites);
    diff_pairs_free(&diff->callsites_odd);
    diff_rings_free(diff);
    for (int side = 0; side < DIFF_SIDES; side++) {
        diff_sites_free(&diff->traces[side].sites);
        database_close(diff->traces[side].database);
    }
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct varve_message message = {""};
    struct progress progress;
    struct diff diff = {
        .entry_limit = values->quiet ? 0 : (size_t)values->limit,
        .with_tables = values->tables,
        .stops_at_first = values->quiet,
        .progress = &progress,
    };
    int result = VARVE_OK;
    int status;

    if (values->quiet && values->json) {
        return command_fail(context, "--quiet and --json exclude each other");
    }
    for (int side = 0; side < DIFF_SIDES && result == VARVE_OK; side++) {
        result =
            database_open(operands->items[side], DATABASE_DERIVED, &diff.traces[side].database, &message);
    }
    command_progress(context, &progress, values->quiet);
    if (result == VARVE_OK) {
        result = compare(&diff, &message);
    }
    progress_end(&progress);
    if (result == VARVE_OK && diff.runs == DIFF_RUNS_OTHER && !values->quiet) {
        fprintf(context->err, "varve diff: warning: these are traces of two different runs\n");
    }
    if (result == VARVE_OK && !values->quiet) {
        result = print_answer(context, values, &diff, &message);
    }
    status = diff_result_is_equal(&diff) ? 0 : EXIT_STATUS_DIFFERS;
    diff_free(&diff);
    return result == VARVE_OK ? status : command_fail(context, "%s", message.text);
}

const struct command command_diff = {
    .name = "diff",
    .arguments = "A B",
    .summary = "compare two traces of one run, event by event",
    .purpose =
        "Compares two databases of one run, such as the recording itself and what varve import made of its "
        "LTTng trace. Events are found by process, ring and number in the ring; all their fields must be "
        "equal, stacks too. Row numbers (id, callsite_id) may differ as long as they belong together one to "
        "one; the order of the rows is not compared. Rows that stand for missing events are counted, not "
        "compared. Exit status: 0 equal, 1 different, 2 an error.",
    .examples = "  varve diff trace.db import.db\n"
                "  varve diff --limit 100 --json trace.db import.db | jq .differences\n",
    .options = options,
    .reads_database = true,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 2,
    .operands_max = 2,
    .run = run,
};
