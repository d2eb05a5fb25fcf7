/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve info`: what a database holds: how it was recorded, its processes and threads, GPUs and streams,
 * events by kind, and whether anything was lost. Reads recordings that were cut off too. Counting the events
 * by kind reads all of them.
 */

#include "analysis/cli/command.h"
#include "analysis/cli/options.h"
#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/table.h"
#include "analysis/query/total_query.h"
#include "analysis/query/database.h"
#include "analysis/query/recording_header.h"
#include "analysis/query/loss_note.h"
#include "analysis/query/query_print.h"
#include "analysis/query/storage_summary.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define STORAGE_ROWS 20

struct values {
    int64_t top;
    bool json;
};

static const struct values defaults = {.top = 20};

static const struct option_spec options[] = {
    {"top", 'n', OPTION_INTEGER, "N", "processes and threads shown (default 20; with --json all)",
     offsetof(struct values, top), 1, 1000000000, NULL},
    {"json", 0, OPTION_FLAG, NULL, "one JSON object", offsetof(struct values, json), 0, 0, NULL},
    {.kind = OPTION_END},
};

static struct cJSON *pairs_json(struct database *database, const char *sql)
{
    struct cJSON *object = json_object();
    struct cursor cursor;
    cursor_open(&cursor, database, sql);
    while (cursor_next(&cursor)) {
        struct value value = cursor_value(&cursor, 1);
        json_add(object, cursor_name(&cursor, 0), value_json(&value));
    }
    cursor_close(&cursor);
    return object;
}

static int64_t command_info_file_bytes(const struct database *database)
{
    struct stat status;
    return stat(database_path(database), &status) == 0 ? (int64_t)status.st_size : 0;
}

static void info_json(FILE *out, struct database *database)
{
    struct cJSON *object = json_object();
    struct report_loss loss;
    report_loss_load(&loss, database);
    report_header_json(object, database, &loss);
    json_integer(object, "file_bytes", command_info_file_bytes(database));
    json_add(object, "loss", report_loss_json(database, &loss));
    json_add(object, "meta", pairs_json(database, "SELECT key, value FROM meta ORDER BY key"));
    json_add(object, "process", query_json(database, sql_info_processes, INT64_MAX));
    json_add(object, "thread", query_json(database, sql_info_threads, INT64_MAX));
    json_add(object, "device", query_json(database, sql_info_devices, INT64_MAX));
    json_add(object, "stream", query_json(database, sql_info_streams, INT64_MAX));
    json_add(object, "unrecorded_program", query_json(database, sql_unrecorded_programs, INT64_MAX));
    if (storage_is_there(database)) {
        json_add(object, "storages", storage_totals_json(database));
    }
    json_add(object, "events_by_kind", pairs_json(database, sql_info_kinds));
    json_add(object, "stats", query_json(database, sql_info_stats, INT64_MAX));
    json_print(object, out);
}

static void command_info_print_part(FILE *out, struct database *database, const char *title, const struct query *query,
                                    int64_t limit)
{
    fprintf(out, "\n%s\n", title);
    if (query_print(out, database, query, limit) == 0) {
        fputs("  none\n", out);
    }
}

static void command_info_print_rest(FILE *out, int64_t all, int64_t shown)
{
    if (all > shown) {
        fprintf(out, "  and %s more (--top N shows more)\n", format_count(all - shown).text);
    }
}

static void print_devices(FILE *out, struct database *database, int64_t top)
{
    static const struct table_column device[] = {{"GPU", true}, {"name", false}, {"memory", true}, {"uuid", false}};
    static const struct table_column stream[] = {{"pid", true}, {"GPU", true}, {"stream", true}, {"handle", true}};
    static const struct query devices = {.sql = sql_info_devices, .columns = device, .kinds = "ntbt"};
    static const struct query streams = {
        .sql = sql_info_streams_text,
        .columns = stream,
        .kinds = "nnnx",
    };
    int64_t all = report_figure(database, "streams", 0);
    if (report_figure(database, "devices", 0) > 0) {
        command_info_print_part(out, database, "GPUs", &devices, INT64_MAX);
    }
    if (all > 0) {
        command_info_print_part(out, database, "Streams of GPUs", &streams, top);
        command_info_print_rest(out, all, top);
    }
}

static void info_text(FILE *out, struct database *database, int64_t top)
{
    static const struct table_column meta[] = {{"key", false}, {"value", false}};
    static const struct table_column process[] = {
        {"pid", true}, {"parent", true}, {"start", true}, {"end", true}, {"ended by", false}, {"command", false},
    };
    static const struct table_column thread[] = {
        {"pid", true},     {"tid", true},  {"emitted", true},    {"stored", true},
        {"spilled", true}, {"lost", true}, {"unfinished", true}, {"name", false},
    };
    static const struct table_column kind[] = {{"kind", false}, {"events", true}};
    static const struct table_column stats[] = {
        {"severity", false}, {"name", false}, {"value", true}, {"source", false}};
    static const struct query queries[] = {
        {sql_info_meta, meta, "tt"},
        {sql_info_processes_text, process, "nnddtt"},
        {sql_info_threads_text, thread, "nnccccct"},
        {sql_info_kinds, kind, "tc"},
        {sql_info_stats_text, stats, "ttct"},
    };
    static const struct table_column program[] = {{"program", false}, {"reason", false}, {"runs", true}};
    static const struct query programs = {sql_unrecorded_programs, program, "ttc"};
    struct report_loss loss;
    report_loss_load(&loss, database);
    report_header_print(out, database, &loss);
    fprintf(out, "  %-9s %s\n", "file", format_bytes_exact(command_info_file_bytes(database)).text);
    command_info_print_part(out, database, "How it was recorded (meta)", &queries[0], 0);
    command_info_print_part(out, database, "Processes, a line for each program that they ran", &queries[1], top);
    command_info_print_rest(out, report_image_count(database), top);
    if (loss.unrecorded > 0) {
        command_info_print_part(out, database, "Programs that could not be recorded", &programs, top);
        command_info_print_rest(out, loss.unrecorded, top);
    }
    command_info_print_part(out, database, "Threads that recorded, by events", &queries[2], top);
    command_info_print_rest(out, loss.threads, top);
    print_devices(out, database, top);
    if (storage_is_there(database)) {
        fputs("\nStorages\n", out);
        query_print(out, database, &storage_totals, STORAGE_ROWS);
    }
    command_info_print_part(out, database, "Events by kind", &queries[3], 0);
    command_info_print_part(out, database, "Health of the recording (stats)", &queries[4], 0);
}

static int command_info_answer(struct command_context *context, struct database *database, const void *values_untyped,
                               struct varve_message *message)
{
    const struct values *values = values_untyped;
    (void)message;
    if (values->json) {
        info_json(context->out, database);
    } else {
        info_text(context->out, database, values->top);
    }
    return VARVE_OK;
}

const struct command command_info = {
    .name = "info",
    .arguments = "DB",
    .summary = "what a database holds: processes, threads, GPUs, events, health",
    .purpose = "Shows how a trace was recorded, which processes, threads, GPUs and streams are in it, how many "
               "events of which kind, how large it is, whether anything was lost, and which programs ran that could "
               "not be recorded, and why (table unrecorded_program).",
    .examples = "  varve info trace.db\n"
                "  varve info --json trace.db | jq .events_by_kind\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .takes_cut_off = true,
    .answer = command_info_answer,
};
