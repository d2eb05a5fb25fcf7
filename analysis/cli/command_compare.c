/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve compare`: what traces would have cost under other policies, settings, limits and capacities. Everything is
 * played by whatif/; here are the options, the order of the rows and the three layouts.
 */
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
    int64_t jobs;
};

static const struct values defaults = {0};

static const struct option_spec options[] = {
    {"policies", 0, OPTION_TEXT, "NAME,…|all",
     "policies of the allocator, each with options of its own behind colons: NAME:key=value:… (default: all)",
     offsetof(struct values, grid.policies), 0, 0, NULL},
    {"conf", 'c', OPTION_TEXTS, "STRING",
     "settings in PyTorch's syntax; several times: each of them (default: those of the trace)",
     offsetof(struct values, grid.confs), 0, 0, NULL},
    {"memory-limit", 'm', OPTION_TEXTS, "BYTES",
     "what may be reserved of each device; several times: each of them (default: no limit)",
     offsetof(struct values, grid.limits), 0, 0, NULL},
    {"capacity", 0, OPTION_TEXTS, "BYTES", "memory of each device; several times: each of them (default: enough)",
     offsetof(struct values, grid.capacities), 0, 0, NULL},
    {"jobs", 'j', OPTION_INTEGER, "N", "threads that play at the same time (default: the processors)",
     offsetof(struct values, jobs), 1, 256, NULL},
    {"json", 0, OPTION_FLAG, NULL, "a JSON array with an object for each", offsetof(struct values, grid.json), 0, 0,
     NULL},
    {"csv", 0, OPTION_FLAG, NULL, "comma-separated values, with a header", offsetof(struct values, grid.csv), 0, 0,
     NULL},
    {"quiet", 'q', OPTION_FLAG, NULL, "no progress", offsetof(struct values, grid.quiet), 0, 0, NULL},
    {.kind = OPTION_END},
};

static const char *command_compare_check(const void *values_untyped)
{
    const struct values *values = values_untyped;
    return values->grid.json && values->grid.csv ? "--json and --csv are mutually exclusive" : NULL;
}

/* One setting of one trace. */
struct row {
    const struct whatif_setting *setting;
    const struct whatif_outcome *outcome;
    size_t number; /* of the setting */
};

/* About one trace. */
struct answer {
    const struct grid_trace *trace;
    const struct row *rows;
    size_t count;
};

/* ---- order ---- */

static int64_t failures(const struct row *row)
{
    return row->outcome->error != VARVE_OK ? INT64_MAX : (int64_t)row->outcome->result.ooms;
}

static int sign(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b ? 1 : 0;
}

/* Those that serve all requests come first, then by what they reserve and what their calls take. */
static int command_compare_rows(const void *a_untyped, const void *b_untyped)
{
    const struct row *a = a_untyped, *b = b_untyped;
    int result = sign(failures(a), failures(b));
    result = result != 0 ? result : sign(a->outcome->figures.peak_reserved, b->outcome->figures.peak_reserved);
    result = result != 0 ? result : sign((int64_t)a->outcome->result.device_ns, (int64_t)b->outcome->result.device_ns);
    return result != 0 ? result : sign((int64_t)a->number, (int64_t)b->number);
}

/* The first setting stays in front: the others are compared with it. Owner: the caller, by free. */
static struct row *command_compare_order(const struct whatif_settings *settings, const struct whatif_outcome *outcomes)
{
    struct row *rows = memory_resize(NULL, settings->count * sizeof(*rows));
    for (size_t i = 0; i < settings->count; i++) {
        rows[i] = (struct row){.setting = &settings->items[i], .outcome = &outcomes[i], .number = i};
    }
    if (settings->count > 1) {
        qsort(rows + 1, settings->count - 1, sizeof(*rows), command_compare_rows);
    }
    return rows;
}

static double metric_of(const struct row *row, const struct grid_trace *trace, enum whatif_metric metric)
{
    return whatif_metric(metric, &row->outcome->result, &row->outcome->moments, trace->demand.load_all);
}

/* ---- for people ---- */

static void add_difference(struct table *table, int64_t base, int64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%+.1f %%", base > 0 ? 100.0 * (double)(value - base) / (double)base : 0);
    table_add(table, value == base ? "=" : text);
}

static void command_compare_print_costs(FILE *out, const struct row *rows, size_t count)
{
    static const struct table_column columns[] = {{"", false},
                                                  {"peak reserved", true},
                                                  {"difference", true},
                                                  {"peak allocated", true},
                                                  {"device calls", true},
                                                  {"time in them", true},
                                                  {"retries", true},
                                                  {"failed", true}};
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    table.columns_max = terminal_columns();
    for (size_t i = 0; i < count; i++) {
        const struct replay_figures *figures = &rows[i].outcome->figures;
        if (rows[i].outcome->error != VARVE_OK) {
            continue;
        }
        grid_add_name(&table, rows[i].setting);
        table_add(&table, BYTES(figures->peak_reserved));
        add_difference(&table, rows[0].outcome->figures.peak_reserved, figures->peak_reserved);
        table_add(&table, BYTES(figures->peak_allocated));
        table_add(&table, COUNT(figures->device_calls));
        table_add(&table, DURATION(rows[i].outcome->result.device_ns));
        table_add(&table, COUNT(figures->retries));
        table_add(&table, COUNT(rows[i].outcome->result.ooms));
    }
    table_print(&table, out, true);
    table_free(&table);
}

static void print_metrics(FILE *out, const struct grid_trace *trace, const struct row *rows, size_t count)
{
    struct table_column columns[WHATIF_METRIC_LIMIT + 1] = {{"", false}};
    for (int i = 0; i < WHATIF_METRIC_LIMIT; i++) {
        columns[i + 1] = (struct table_column){whatif_metrics[i].title, true};
    }
    struct table table;
    table_init(&table, columns, WHATIF_METRIC_LIMIT + 1);
    table.indent = "  ";
    table.keeps_columns = true;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].outcome->error != VARVE_OK) {
            continue;
        }
        grid_add_name(&table, rows[i].setting);
        for (int j = 0; j < WHATIF_METRIC_LIMIT; j++) {
            double value = metric_of(&rows[i], trace, (enum whatif_metric)j);
            char text[32];
            snprintf(text, sizeof(text), "%.1f %%", 100 * value);
            table_add(&table, value < 0 ? "-" : whatif_metrics[j].is_bytes ? BYTES(value) : text);
        }
    }
    fputs("\n", out);
    table_print(&table, out, true);
    table_free(&table);
}

static void command_compare_print_meanings(FILE *out)
{
    fputs("\n", out);
    for (int i = 0; i < WHATIF_METRIC_LIMIT; i++) {
        format_wrap(out, 4, "  %s: %s (%s)", whatif_metrics[i].title, whatif_metrics[i].meaning,
                    whatif_metrics[i].source);
    }
}

static void print_recorded(FILE *out, const struct replay_before *recorded)
{
    if (recorded->figures.peak_reserved == REPLAY_UNKNOWN) {
        fputs("  recorded: requests only, not what was reserved", out);
    } else {
        fprintf(out, "  recorded: %s reserved, %s device calls", BYTES(recorded->figures.peak_reserved),
                COUNT(recorded->figures.device_calls));
    }
    fprintf(out, ", %s failed%s%s\n", COUNT(recorded->figures.ooms),
            recorded->limit != 0 ? ", with a limit of about " : "", recorded->limit != 0 ? BYTES(recorded->limit) : "");
}

/* Those that can't begin with what a trace that began late begins with, and what they have reserved then. */
static void command_compare_print_others(FILE *out, const struct row *rows, size_t count)
{
    char *text;
    size_t bytes;
    FILE *stream = memory_stream(&text, &bytes);
    const char *separator =
        "not all begin with its segments, but were asked for the blocks in use, and have none of the "
        "free memory; reserved at the start: ";
    for (size_t i = 0; i < count; i++) {
        const struct replay_start *start = &rows[i].outcome->result.start;
        if (rows[i].outcome->error == VARVE_OK && (i == 0 || !start->is_inherited)) {
            char name[GRID_NAME_BYTES];
            whatif_setting_name(rows[i].setting, name, sizeof(name));
            fprintf(stream, "%s%s %s", separator, name, BYTES(start->reserved));
            separator = ", ";
        }
    }
    memory_stream_end(stream, &text);
    fputs("  ", out);
    format_print_wrapped(out, text, 2);
    free(text);
}

static void print_start(FILE *out, const struct row *rows, size_t count)
{
    bool is_late = false;
    bool is_inherited = true;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].outcome->error == VARVE_OK) {
            is_late |= rows[i].outcome->result.starts_late;
            is_inherited &= rows[i].outcome->result.start.is_inherited;
        }
    }
    if (is_late) {
        fputs("  the trace began late: calls of the device before it are not counted\n", out);
    }
    if (is_late && !is_inherited) {
        command_compare_print_others(out, rows, count);
    }
}

static void command_compare_print_text(FILE *out, const void *answer_untyped)
{
    const struct answer *answer = answer_untyped;
    const struct grid_trace *trace = answer->trace;
    const struct row *rows = answer->rows;
    size_t count = answer->count;
    const struct whatif_demand *demand = &trace->demand;
    format_print_safe(out, format_base_name(trace->path));
    fprintf(out, ": %s events, %s requests; load %s (most bytes requested and live at a time)\n", COUNT(demand->events),
            COUNT(demand->served + demand->failed), EXACT(demand->load_all));
    if (trace->history->device_count > 1) {
        fprintf(out, "  %zu devices: all figures are added up, peaks each at its own moment\n",
                trace->history->device_count);
    }
    print_recorded(out, whatif_recorded(trace->whatif));
    if (demand->failed > 0) {
        fprintf(out, "  %s %s that failed in the recording %s made again, and freed at once if served\n",
                COUNT(demand->failed), format_plural((int64_t)demand->failed, "request", "requests"),
                demand->failed == 1 ? "is" : "are");
    }
    command_compare_print_costs(out, rows, count);
    print_start(out, rows, count);
    print_metrics(out, trace, rows, count);
    if (whatif_knew_future(trace->whatif)) {
        fputs("  nothing repeats here: policy plan goes by a plan of the whole history, which no program knows\n", out);
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i].outcome->error != VARVE_OK) {
            char name[GRID_NAME_BYTES];
            whatif_setting_name(rows[i].setting, name, sizeof(name));
            format_wrap(out, 4, "  %s can't be run: %s", name,
                        rows[i].outcome->message.text[0] != '\0' ? rows[i].outcome->message.text
                                                                 : varve_strerror(rows[i].outcome->error));
        }
    }
}

/* ---- for programs ---- */

static struct cJSON *start_json(const struct replay_start *start)
{
    struct cJSON *object = json_object();
    json_integer(object, "reserved", start->reserved);
    json_integer(object, "allocated", start->allocated);
    json_integer(object, "requested", start->requested);
    json_bool(object, "inherited", start->is_inherited);
    return object;
}

static struct cJSON *row_json(const void *answer_untyped, size_t index)
{
    const struct grid_trace *trace = ((const struct answer *)answer_untyped)->trace;
    const struct row *row = &((const struct answer *)answer_untyped)->rows[index];
    const struct whatif_outcome *outcome = row->outcome;
    struct cJSON *object = json_object(), *metrics = json_object();
    grid_setting_json(object, trace->path, row->setting);
    if (outcome->error != VARVE_OK) {
        json_text(object, "error",
                  outcome->message.text[0] != '\0' ? outcome->message.text : varve_strerror(outcome->error));
        json_add(object, "metrics", metrics);
        return object;
    }
    json_integer(object, "peak_reserved", outcome->figures.peak_reserved);
    json_integer(object, "peak_allocated", outcome->figures.peak_allocated);
    json_integer(object, "load_bytes", (int64_t)trace->demand.load_all);
    if (trace->history->device_count > 1) {
        json_integer(object, "devices", (int64_t)trace->history->device_count); /* of which all figures are sums */
    }
    json_integer(object, "device_calls", outcome->figures.device_calls);
    json_integer(object, "device_ns", (int64_t)outcome->result.device_ns);
    json_integer(object, "retries", outcome->figures.retries);
    json_integer(object, "ooms", (int64_t)outcome->result.ooms);
    json_integer(object, "segments", outcome->figures.segments);
    json_integer(object, "frees_skipped", (int64_t)outcome->result.skipped);
    json_add(object, "start", outcome->result.starts_late ? start_json(&outcome->result.start) : json_null_value());
    for (int i = 0; i < WHATIF_METRIC_LIMIT; i++) {
        double value = metric_of(row, trace, (enum whatif_metric)i);
        if (value >= 0 && whatif_metrics[i].is_bytes) {
            json_integer(metrics, whatif_metrics[i].key, (int64_t)value);
        } else if (value >= 0) {
            json_real(metrics, whatif_metrics[i].key, value);
        }
    }
    json_add(object, "metrics", metrics);
    json_real(object, "seconds", outcome->result.seconds);
    return object;
}

static void command_compare_print_csv_row(FILE *out, const void *answer_untyped, size_t index)
{
    const struct grid_trace *trace = ((const struct answer *)answer_untyped)->trace;
    const struct row *row = &((const struct answer *)answer_untyped)->rows[index];
    const struct whatif_outcome *outcome = row->outcome;
    const struct replay_figures *figures = &outcome->figures;
    csv_field(out, trace->path);
    fputc(',', out);
    csv_field(out, row->setting->policy);
    fputc(',', out);
    csv_field(out, row->setting->conf);
    fprintf(out, ",%" PRIu64 ",%" PRIu64, row->setting->memory_limit, row->setting->capacity);
    if (outcome->error != VARVE_OK) {
        fputs(",,,,,,,,,", out);
        csv_field(out, outcome->message.text);
    } else {
        fprintf(out, ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64 ",%" PRId64 ",%" PRIu64 ",%.6f,",
                figures->peak_reserved, figures->peak_allocated, trace->demand.load_all, figures->device_calls,
                outcome->result.device_ns, figures->retries, outcome->result.ooms, outcome->result.seconds);
    }
    for (int i = 0; i < WHATIF_METRIC_LIMIT; i++) {
        double value = outcome->error != VARVE_OK ? -1 : metric_of(row, trace, (enum whatif_metric)i);
        fputc(',', out);
        if (value >= 0) {
            fprintf(out, whatif_metrics[i].is_bytes ? "%.0f" : "%.6f", value);
        }
    }
    fputs("\n", out);
}

/* ---- the command ---- */

/* A limit that the largest request alone exceeds: nothing needs to be played to know the answer. */
static int check_limits(const struct grid_trace *trace, const struct whatif_settings *settings,
                        struct varve_message *message)
{
    for (size_t i = 0; i < settings->count; i++) {
        uint64_t limit = settings->items[i].memory_limit, capacity = settings->items[i].capacity;
        limit = limit == 0 || (capacity != 0 && capacity < limit) ? capacity : limit;
        if (limit != 0 && limit < trace->demand.largest) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "%s: %s is less than the largest request, of %s (event %zu)", trace->path,
                                     BYTES(limit), EXACT(trace->demand.largest), trace->demand.largest_event);
        }
    }
    return VARVE_OK;
}

#define CSV_METRIC(name, key, source, title, is_bytes, meaning) "," key

static const struct grid_printer printer = {
    .csv_header = "trace,policy,conf,memory_limit,capacity,peak_reserved,peak_allocated,load_bytes,device_calls,"
                  "device_ns,retries,ooms,seconds,error" WHATIF_METRIC_LIST(CSV_METRIC),
    .text = command_compare_print_text,
    .json = row_json,
    .csv = command_compare_print_csv_row,
};

static int compare_trace(struct grid_run *run, struct varve_message *message)
{
    const struct values *values = run->values;
    const struct whatif_settings *settings = &run->settings;
    int error = check_limits(&run->trace, settings, message);
    if (error == VARVE_OK) {
        struct whatif_outcome *outcomes = memory_resize(NULL, settings->count * sizeof(*outcomes));
        whatif_play(run->trace.whatif, settings->items, settings->count, (unsigned)values->jobs, outcomes,
                    run->progress);
        struct row *rows = command_compare_order(settings, outcomes);
        grid_print(run, &(struct answer){&run->trace, rows, settings->count});
        free(rows);
        free(outcomes);
    }
    return error;
}

static int command_compare_run(struct command_context *context, const void *values_untyped,
                               const struct operands *operands)
{
    const struct values *values = values_untyped;
    int status = grid_run(context, operands, &values->grid, values, &printer, compare_trace);
    if (status == 0 && !values->grid.json && !values->grid.csv) {
        command_compare_print_meanings(context->out);
    }
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .arguments = "TRACE…",
    .summary = "what recorded histories would have cost under other policies and settings",
    .purpose =
        "TRACE is a snapshot of PyTorch (.pickle, also .xz, .gz, .zst) or a trace database. Its requests are made "
        "again under every policy and every --conf, on every --capacity and under every --memory-limit, on all "
        "processors. Printed are what was reserved, the calls of the device and what they would have taken (times "
        "measured on an H200), the requests that failed, and utilization and fragmentation by each definition that "
        "is in use. The first setting is what the others are compared with: pytorch, where it is among them. Of "
        "several devices figures are sums, and limits and capacities hold for each.",
    .examples = "  varve compare snapshot.pickle.xz\n"
                "  varve compare --policies pytorch,first-fit --conf expandable_segments:True snapshot.pickle\n"
                "  varve compare --memory-limit 16G --memory-limit 20G --json a.pickle.xz b.pickle.xz\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = OPERANDS_MAX,
    .reads_database = true,
    .check = command_compare_check,
    .run = command_compare_run,
};
