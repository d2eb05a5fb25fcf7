/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve frontier`: the smallest memory in which traces run, for each policy and setting. The search is
 * whatif/frontier_search.c's.
 */
#include "analysis/whatif/frontier_search.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/cli/settings_options.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/progress.h"
#include "analysis/base/table.h"
#include "analysis/base/terminal.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

struct values {
    struct grid_options grid;
    const char *policy;
    int64_t jobs;
    bool served_only, exhaustive;
};

static const struct values defaults = {0};

static const struct option_spec options[] = {
    {"policy", 'P', OPTION_TEXT, "NAME", "pytorch (default), or another policy: NAME, or NAME:key=value:…",
     offsetof(struct values, policy), 0, 0, NULL},
    {"policies", 0, OPTION_TEXT, "NAME,…|all", "several policies, or all", offsetof(struct values, grid.policies), 0, 0,
     NULL},
    {"conf", 'c', OPTION_TEXTS, "STRING",
     "settings in PyTorch's syntax; several times: each of them (default: those of the trace)",
     offsetof(struct values, grid.confs), 0, 0, NULL},
    {"served-only", 0, OPTION_FLAG, NULL, "requests that failed in the recording need not be served",
     offsetof(struct values, served_only), 0, 0, NULL},
    {"exhaustive", 0, OPTION_FLAG, NULL, "try every capacity from the load to the unlimited peak",
     offsetof(struct values, exhaustive), 0, 0, NULL},
    {"jobs", 'j', OPTION_INTEGER, "N", "threads that play at the same time (default: the processors)",
     offsetof(struct values, jobs), 1, 256, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object, or an array of one for each", offsetof(struct values, grid.json),
     0, 0, NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, grid.csv), 0, 0,
     NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no progress", offsetof(struct values, grid.quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *command_frontier_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->grid.json && values->grid.csv                     ? "--json and --csv are mutually exclusive"
           : values->policy != NULL && values->grid.policies != NULL ? "--policy and --policies are mutually exclusive"
                                                                     : NULL;
}

/* What one trace is printed from. */
struct answer {
    const struct grid_trace *trace;
    const struct whatif_settings *settings;
    const struct frontier *frontiers;
    uint64_t load; /* of the requests that are to be served, on the device that needs most, as a frontier is */
    uint64_t sum;  /* of all devices */
    bool served_only;
};

/* ---- for people ---- */

static void add_share(struct table *table, uint64_t part, uint64_t whole)
{
    char text[32];
    snprintf(text, sizeof(text), "%.3f", (double)part / (double)whole);
    table_add(table, whole > 0 ? text : "-");
}

static void command_frontier_print_table(FILE *out, const struct answer *answer)
{
    static const struct table_column columns[] = {
        {"", false},       {"frontier", true},     {"/ load", true},       {"unlimited peak", true},
        {"retries", true}, {"device calls", true}, {"time in them", true}, {"tried", true}};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    table.columns_max = terminal_columns();
    for (size_t i = 0; i < answer->settings->count; i++) {
        const struct frontier *frontier = &answer->frontiers[i];
        if (frontier->error != VARVE_OK) {
            continue;
        }
        grid_add_name(&table, &answer->settings->items[i]);
        table_add(&table, EXACT(frontier->bytes));
        add_share(&table, frontier->bytes, answer->load);
        table_add(&table, BYTES(frontier->free.figures.peak_reserved));
        table_add(&table, COUNT(frontier->at.figures.retries));
        table_add(&table, COUNT(frontier->at.figures.device_calls));
        table_add(&table, DURATION(frontier->at.result.device_ns));
        table_add(&table, COUNT(frontier->probes));
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void command_frontier_print_remark(FILE *out, const struct answer *answer, size_t index)
{
    const struct frontier *frontier = &answer->frontiers[index];
    char name[GRID_NAME_BYTES];
    whatif_setting_name(&answer->settings->items[index], name, sizeof(name));
    if (frontier->error != VARVE_OK) {
        format_wrap(out, 4, "  %s has no frontier: %s", name,
                    frontier->message.text[0] != '\0' ? frontier->message.text : varve_strerror(frontier->error));
    } else if (frontier->fails_above != 0) {
        format_wrap(out, 4,
                    "  %s: more memory is not always better: %s fails again; from %s on all that was tried is enough",
                    name, EXACT(frontier->fails_above), EXACT(frontier->safe));
    }
}

static void command_frontier_print_text(FILE *out, const void *answer_untyped)
{
    const struct answer *answer = answer_untyped;
    const struct whatif_demand *demand = &answer->trace->demand;
    format_print_safe(out, format_base_name(answer->trace->path));
    fprintf(out, ": %s requests; load %s (most bytes requested and live at a time: nothing does with less)\n",
            COUNT(demand->served + (answer->served_only ? 0 : demand->failed)), EXACT(answer->load));
    if (answer->trace->history->device_count > 1) {
        fprintf(out,
                "  %zu devices: load and frontier are of the one that needs most, peaks and calls are added up; the "
                "loads together are %s\n",
                answer->trace->history->device_count, EXACT(answer->sum));
    }
    if (demand->failed > 0) {
        fprintf(out, "  %s %s failed in the recording: %s %s\n", COUNT(demand->failed),
                format_plural((int64_t)demand->failed, "request", "requests"),
                demand->failed == 1 ? "it is" : "they are",
                answer->served_only ? "left out" : "to be served, too (--served-only: not)");
    }
    command_frontier_print_table(out, answer);
    if (whatif_knew_future(answer->trace->whatif)) {
        fputs("  nothing repeats here: policy plan goes by a plan of the whole history, which no program knows\n", out);
    }
    for (size_t i = 0; i < answer->settings->count; i++) {
        command_frontier_print_remark(out, answer, i);
    }
}

/* ---- for programs ---- */

static struct cJSON *frontier_json(const void *answer_untyped, size_t index)
{
    const struct answer *answer = answer_untyped;
    const struct frontier *frontier = &answer->frontiers[index];
    struct cJSON *object = json_object();
    grid_setting_json(object, answer->trace->path, &answer->settings->items[index]);
    json_integer(object, "load_bytes", (int64_t)answer->load);
    if (answer->trace->history->device_count > 1) {
        json_integer(object, "devices", (int64_t)answer->trace->history->device_count);
        json_integer(object, "load_bytes_sum", (int64_t)answer->sum);
    }
    json_integer(object, "recorded_ooms", (int64_t)answer->trace->demand.failed);
    if (frontier->error != VARVE_OK) {
        json_text(object, "error",
                  frontier->message.text[0] != '\0' ? frontier->message.text : varve_strerror(frontier->error));
        return object;
    }
    json_integer(object, "frontier_bytes", (int64_t)frontier->bytes);
    json_bool(object, "monotone", frontier->fails_above == 0);
    if (frontier->fails_above != 0) {
        json_integer(object, "fails_above", (int64_t)frontier->fails_above);
    }
    json_integer(object, "safe_bytes", (int64_t)frontier->safe);
    json_integer(object, "peak_reserved", frontier->free.figures.peak_reserved);
    json_integer(object, "peak_allocated", frontier->free.figures.peak_allocated);
    json_integer(object, "device_calls", frontier->at.figures.device_calls);
    json_integer(object, "device_ns", (int64_t)frontier->at.result.device_ns);
    json_integer(object, "retries", frontier->at.figures.retries);
    json_integer(object, "probes", (int64_t)frontier->probes);
    json_real(object, "seconds", frontier->at.result.seconds);
    return object;
}

static void command_frontier_print_csv_row(FILE *out, const void *answer_untyped, size_t index)
{
    const struct answer *answer = answer_untyped;
    const struct whatif_setting *setting = &answer->settings->items[index];
    const struct frontier *frontier = &answer->frontiers[index];
    csv_field(out, answer->trace->path);
    fputc(',', out);
    csv_field(out, setting->policy);
    fputc(',', out);
    csv_field(out, setting->conf);
    fprintf(out, ",%" PRIu64 ",", answer->load);
    if (frontier->error != VARVE_OK) {
        fputs(",,,,,,,,", out);
        csv_field(out, frontier->message.text);
    } else {
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRId64 ",",
                frontier->bytes, frontier->fails_above, frontier->safe, frontier->free.figures.peak_reserved,
                frontier->free.figures.peak_allocated, frontier->at.figures.device_calls, frontier->at.result.device_ns,
                frontier->at.figures.retries);
    }
    fputs("\n", out);
}

/* ---- the command ---- */

static const struct grid_printer printer = {
    .csv_header = "trace,policy,conf,load_bytes,frontier_bytes,fails_above,safe_bytes,peak_reserved,peak_allocated,"
                  "device_calls,device_ns,retries,error",
    .text = command_frontier_print_text,
    .json = frontier_json,
    .csv = command_frontier_print_csv_row,
};

static int find_all_frontiers(struct grid_run *run, struct varve_message *message)
{
    const struct values *values = run->values;
    const struct whatif_demand *demand = &run->trace.demand;
    const struct frontier_options search = {.threads = (unsigned)values->jobs,
                                            .is_exhaustive = values->exhaustive,
                                            .with_failed = !values->served_only,
                                            .progress = run->progress};
    struct frontier *frontiers = memory_resize(NULL, run->settings.count * sizeof(*frontiers));
    const struct answer answer = {.trace = &run->trace,
                                  .settings = &run->settings,
                                  .frontiers = frontiers,
                                  .load = values->served_only ? demand->device_load : demand->device_load_all,
                                  .sum = values->served_only ? demand->load : demand->load_all,
                                  .served_only = values->served_only};
    (void)message;
    frontier_find(run->trace.whatif, demand, run->settings.items, run->settings.count, &search, frontiers);
    grid_print(run, &answer);
    free(frontiers);
    return VARVE_OK;
}

static int command_frontier_run(struct command_context *context, const void *values_untyped,
                                const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct grid_options grid = values->grid;
    if (grid.policies == NULL) {
        grid.policies = values->policy != NULL ? values->policy : varve_alloc_policies()[0];
    }
    return grid_run(context, operands, &grid, values, &printer, find_all_frontiers);
}

const struct command command_frontier = {
    .name = "frontier",
    .arguments = "TRACE…",
    .summary = "the smallest memory in which a recorded history runs, by policy",
    .purpose =
        "The smallest capacity at which every request of TRACE is served, found by replays to 2 MiB: between the "
        "load (most bytes live at a time) and what is reserved without a limit. A capacity is what --memory-limit of "
        "varve replay is, a limit of reserved bytes for each device: the capacity printed passes there, 2 MiB less "
        "fails. Where more memory is not always better, a capacity above one that passes may fail: 8 on either side "
        "of the frontier are tried beside those of the bisection (all of them with --exhaustive), and the largest "
        "that fails is printed. Retries and device calls are those at the frontier.",
    .examples = "  varve frontier snapshot.pickle.xz\n"
                "  varve frontier --policies all --conf expandable_segments:True snapshot.pickle\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = OPERANDS_MAX,
    .reads_database = true,
    .check = command_frontier_check,
    .run = command_frontier_run,
};
