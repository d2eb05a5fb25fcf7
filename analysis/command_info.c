/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve info`: what a database holds: how it was recorded, its processes and threads, events by kind, and
 * whether anything was lost. Reads recordings that were cut off too. Counting the events by kind reads all of
 * them.
 */
#include "analysis/report_internal.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

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

static const char thread_sql[] =
    "SELECT id, process_id, ring, pid, tid, name, start_ns, end_ns, emitted, stored, "
    "spilled, lost, lost_bytes, uncommitted FROM thread ORDER BY id LIMIT ?1";

/* Counted by code and named afterwards: the view `events` would join a name to each of the millions. */
static const char kind_sql[] = "SELECT coalesce(k.name, 'kind ' || e.kind), e.events FROM "
                               "(SELECT kind, count(*) AS events FROM event GROUP BY kind) e "
                               "LEFT JOIN event_kind k ON k.code = e.kind ORDER BY e.events DESC, e.kind";

static const char stats_sql[] =
    "SELECT severity, name, idx, source, value FROM stats ORDER BY severity, name, idx LIMIT ?1";

/* Every column of every row, as JSON: keys are the columns' names. */
static struct cJSON *rows_json(struct database *database, const char *sql)
{
    struct cJSON *array = json_array();
    struct cursor cursor;

    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, INT64_MAX);
    while (cursor_next(&cursor)) {
        struct cJSON *object = json_object();

        for (int column = 0; column < cursor_column_count(&cursor); column++) {
            struct value value = cursor_value(&cursor, column);

            json_add(object, cursor_column_name(&cursor, column), json_value(&value));
        }
        json_append(array, object);
    }
    cursor_close(&cursor);
    return array;
}

static struct cJSON *pairs_json(struct database *database, const char *sql)
{
    struct cJSON *object = json_object();
    struct cursor cursor;

    cursor_open(&cursor, database, sql);
    while (cursor_next(&cursor)) {
        struct value value = cursor_value(&cursor, 1);

        json_add(object, cursor_name(&cursor, 0), json_value(&value));
    }
    cursor_close(&cursor);
    return object;
}

static int64_t file_bytes(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? (int64_t)status.st_size : 0;
}

static void info_json(FILE *out, struct database *database, const char *path)
{
    struct cJSON *object = json_object();
    struct report_loss loss;

    report_header_json(object, database, path);
    json_integer(object, "file_bytes", file_bytes(path));
    report_loss_load(&loss, database);
    json_add(object, "loss", report_loss_json(database, &loss));
    json_add(object, "meta", pairs_json(database, "SELECT key, value FROM meta ORDER BY key"));
    json_add(object, "process", rows_json(database, process_sql));
    json_add(object, "thread", rows_json(database, thread_sql));
    json_add(object, "events_by_kind", pairs_json(database, kind_sql));
    json_add(object, "stats", rows_json(database, stats_sql));
    json_print(object, out);
}

/* A query as a table; `kinds` has a letter per column: t text, c count, b bytes, d duration. */
static void print_query(FILE *out, struct database *database, const char *title, const char *sql,
                        int64_t limit, const struct table_column *columns, const char *kinds)
{
    struct cursor cursor;
    struct table table;

    fprintf(out, "\n%s\n", title);
    table_init(&table, columns, strlen(kinds));
    table.indent = "  ";
    cursor_open(&cursor, database, sql);
    cursor_bind_integer(&cursor, 1, limit);
    while (cursor_next(&cursor)) {
        for (int column = 0; kinds[column] != '\0'; column++) {
            int64_t number = cursor_integer(&cursor, column);
            const char *text = cursor_text(&cursor, column);
            char cut[400] = "";

            if (cursor_is_null(&cursor, column)) {
                table_add(&table, "-");
            } else if (kinds[column] == 'c') {
                table_add(&table, format_count(number).text);
            } else if (kinds[column] == 'b') {
                table_add(&table, format_bytes(number).text);
            } else if (kinds[column] == 'd') {
                table_add(&table, format_duration(number).text);
            } else {
                format_head(cut, sizeof(cut), text, 64);
                table_add(&table, cut);
            }
        }
    }
    cursor_close(&cursor);
    if (table.cell_count == 0) {
        fputs("  none\n", out);
    } else {
        table_print(&table, out, true);
    }
    table_free(&table);
}

static void print_rest(FILE *out, int64_t all, int64_t shown)
{
    if (all > shown) {
        fprintf(out, "  and %s more (--top N shows more)\n", format_count(all - shown).text);
    }
}

static void info_text(FILE *out, struct database *database, const char *path, int64_t top)
{
    static const struct table_column meta[] = {{"key", false}, {"value", false}};
    static const struct table_column process[] = {
        {"pid", true}, {"parent", true},    {"start", true},
        {"end", true}, {"ended by", false}, {"command", false},
    };
    static const struct table_column thread[] = {
        {"pid", true},     {"tid", true},  {"emitted", true},    {"stored", true},
        {"spilled", true}, {"lost", true}, {"unfinished", true}, {"name", false},
    };
    static const struct table_column kind[] = {{"kind", false}, {"events", true}};
    static const struct table_column stats[] = {
        {"severity", false}, {"name", false}, {"value", true}, {"source", false}};
    struct report_loss loss;

    report_loss_load(&loss, database);
    report_header_print(out, database, path, &loss);
    fprintf(out, "  %-9s %s\n", "file", format_bytes_exact(file_bytes(path)).text);
    print_query(out, database, "How it was recorded (meta)", meta_sql, 0, meta, "tt");
    print_query(
        out, database, "Processes",
        "SELECT CAST(pid AS TEXT), CAST(parent_pid AS TEXT), start_ns, end_ns, "
        "end_cause || coalesce(' ' || exit_status, ''), coalesce(command_line, executable) FROM process "
        "ORDER BY id LIMIT ?1",
        top, process, "ttddtt");
    print_rest(out, database_integer(database, "SELECT count(*) FROM process", 0), top);
    print_query(
        out, database, "Threads that recorded, by events",
        "SELECT CAST(pid AS TEXT), CAST(tid AS TEXT), emitted, stored, spilled, lost, uncommitted, name "
        "FROM thread ORDER BY stored DESC, id LIMIT ?1",
        top, thread, "ttccccct");
    print_rest(out, loss.threads, top);
    print_query(out, database, "Events by kind", kind_sql, 0, kind, "tc");
    print_query(out, database, "Health of the recording (stats)",
                "SELECT severity, name, sum(value), source FROM stats WHERE severity = 'info' OR value <> 0 "
                "GROUP BY severity, name, source "
                "ORDER BY severity, name, source",
                0, stats, "ttct");
}

static int run(struct command_context *context, const void *values_untyped, const struct operands *operands)
{
    const struct values *values = values_untyped;
    struct database *database;
    struct varve_message message = {""};
    struct progress progress;
    int result;

    if (database_open(operands->items[0], DATABASE_ANY, &database, &message) != VARVE_OK) {
        return command_fail(context, "%s", message.text);
    }
    progress_begin(&progress, context, false);
    progress_watch(&progress, database, "counting events");
    if (values->json) {
        info_json(context->out, database, operands->items[0]);
    } else {
        info_text(context->out, database, operands->items[0], values->top);
    }
    progress_end(&progress);
    result = database_error(database, &message);
    database_close(database);
    return result == VARVE_OK ? 0 : command_fail(context, "%s", message.text);
}

const struct command command_info = {
    .name = "info",
    .arguments = "DB",
    .summary = "what a database holds: processes, threads, events, health",
    .purpose = "Says how a trace was recorded, which processes and threads are in it, how many events of "
               "which kind, how large it is, and whether anything was lost.",
    .examples = "  varve info trace.db\n"
                "  varve info --json trace.db | jq .events_by_kind\n",
    .options = options,
    .defaults = &defaults,
    .values_bytes = sizeof(defaults),
    .operands_min = 1,
    .operands_max = 1,
    .run = run,
};
