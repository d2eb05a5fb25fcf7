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

static const char meta_sql[] = "SELECT key, CAST(value AS TEXT) FROM meta ORDER BY key";

static const char process_sql[] = "SELECT id, pid, parent_pid, rank, executable, command_line, start_ns, "
                                  "end_ns, end_cause, exit_status, exec_path "
                                  "FROM process ORDER BY id LIMIT ?1";

static const char thread_sql[] = "SELECT id, process_id, ring, pid, tid, name, start_ns, end_ns, emitted, stored, "
                                 "spilled, lost, lost_bytes, uncommitted FROM thread ORDER BY id LIMIT ?1";

/* Counted by code and named afterwards: the view `events` would join a name to each of the millions. */
static const char kind_sql[] = "SELECT coalesce(k.name, 'kind ' || e.kind), e.events FROM "
                               "(SELECT kind, count(*) AS events FROM event GROUP BY kind) e "
                               "LEFT JOIN event_kind k ON k.code = e.kind ORDER BY e.events DESC, e.kind";

static const char program_sql[] =
    "SELECT path, reason, count FROM unrecorded_program ORDER BY count DESC, path, reason LIMIT ?1";

static const char stats_sql[] =
    "SELECT severity, name, idx, source, value FROM stats ORDER BY severity, name, idx LIMIT ?1";

static const char device_sql[] = "SELECT id AS device, name, total_bytes, uuid FROM device ORDER BY id LIMIT ?1";

static const char stream_sql[] = "SELECT process_id, device, number, handle FROM stream "
                                 "ORDER BY process_id, device, number LIMIT ?1";

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
    json_add(object, "process", query_json(database, process_sql, INT64_MAX));
    json_add(object, "thread", query_json(database, thread_sql, INT64_MAX));
    json_add(object, "device", query_json(database, device_sql, INT64_MAX));
    json_add(object, "stream", query_json(database, stream_sql, INT64_MAX));
    json_add(object, "unrecorded_program", query_json(database, program_sql, INT64_MAX));
    if (storage_is_there(database)) {
        json_add(object, "storages", storage_totals_json(database));
    }
    json_add(object, "events_by_kind", pairs_json(database, kind_sql));
    json_add(object, "stats", query_json(database, stats_sql, INT64_MAX));
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
    static const struct query devices = {.sql = device_sql, .columns = device, .kinds = "ntbt"};
    static const struct query streams = {
        .sql = "SELECT p.pid, s.device, s.number, s.handle FROM stream s LEFT JOIN process p ON p.id = "
               "s.process_id ORDER BY s.process_id, s.device, s.number LIMIT ?1",
        .columns = stream,
        .kinds = "nnnx",
    };
    int64_t all = database_integer(database, "SELECT count(*) FROM stream", 0);
    if (database_integer(database, "SELECT count(*) FROM device", 0) > 0) {
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
        {meta_sql, meta, "tt"},
        {"SELECT pid, parent_pid, start_ns, end_ns, CASE end_cause WHEN 'unknown' THEN 'unknown (killed?)' "
         "WHEN 'running' THEN 'still running' ELSE end_cause || coalesce(' ' || exit_status, '') END, "
         "coalesce(command_line, executable) FROM process ORDER BY id LIMIT ?1",
         process, "nnddtt"},
        {"SELECT pid, tid, emitted, stored, spilled, lost, uncommitted, name FROM thread "
         "ORDER BY stored DESC, id LIMIT ?1",
         thread, "nnccccct"},
        {kind_sql, kind, "tc"},
        {"SELECT severity, name, sum(value), source FROM stats WHERE severity = 'info' OR value <> 0 "
         "GROUP BY severity, name, source ORDER BY severity, name, source",
         stats, "ttct"},
    };
    static const struct table_column program[] = {{"program", false}, {"reason", false}, {"runs", true}};
    static const struct query programs = {program_sql, program, "ttc"};
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
        storage_totals_print(out, database, STORAGE_ROWS);
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
