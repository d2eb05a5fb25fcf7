/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve report` on GPU runs: devices and who used them, memory by stream, time spent in the driver, segments
 * against the blocks in them, memory that nobody explains, requests that failed, and whether the CUDA
 * recorder and CUPTI agree. It appears only where there is something of the kind. Figures are those of the
 * views; gpu_json.c tells the same in full.
 */
#include "analysis/query/report/report.h"

#include "analysis/output/format.h"
#include "analysis/output/table.h"
#include "analysis/query/db.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROWS_SHOWN 20
#define FAILURES_SHOWN 5
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

bool report_has_gpu(struct database *database)
{
    /* databases of older versions have none of these views */
    return database_integer(database, "SELECT count(*) FROM sqlite_schema WHERE name = 'device_call'", 0) >
               0 &&
           database_integer(database,
                            "SELECT EXISTS (SELECT 1 FROM total WHERE domain NOT IN ('heap', 'mmap')) OR "
                            "EXISTS (SELECT 1 FROM device) OR EXISTS (SELECT 1 FROM cupti_state)",
                            0) > 0;
}

/* ---- devices ---- */

#define USERS_SHOWN 8

static int64_t count_users(struct database *database, int64_t device)
{
    struct cursor cursor;
    int64_t count = 0;

    cursor_open(&cursor, database, "SELECT count(*) FROM device_process WHERE device = ?1");
    cursor_bind_integer(&cursor, 1, device);
    if (cursor_next(&cursor)) {
        count = cursor_integer(&cursor, 0);
    }
    cursor_close(&cursor);
    return count;
}

static void print_users(FILE *out, struct database *database, int64_t device)
{
    int64_t all = count_users(database, device);
    struct cursor cursor;
    const char *before = all == 1 ? "         process " : "         processes ";

    cursor_open(&cursor, database,
                "SELECT pid, rank FROM device_process WHERE device = ?1 ORDER BY process_id LIMIT " TEXT(
                    USERS_SHOWN));
    cursor_bind_integer(&cursor, 1, device);
    while (cursor_next(&cursor)) {
        fprintf(out, "%s%" PRId64, before, cursor_integer(&cursor, 0));
        if (!cursor_is_null(&cursor, 1)) {
            fprintf(out, " (rank %" PRId64 ")", cursor_integer(&cursor, 1));
        }
        before = ", ";
    }
    cursor_close(&cursor);
    if (all > USERS_SHOWN) {
        fprintf(out, " and %s more", format_count(all - USERS_SHOWN).text);
    }
    fputs(all > 0 ? "\n" : "", out);
}

static void print_devices(FILE *out, struct database *database)
{
    struct cursor cursor;
    bool is_first = true;

    cursor_open(&cursor, database, REPORT_DEVICES_SQL);
    while (cursor_next(&cursor)) {
        if (is_first) {
            report_rule_print(out, "GPUs");
            is_first = false;
        }
        fprintf(out, "  GPU %" PRId64 "  ", cursor_integer(&cursor, 0));
        format_print_safe(out, cursor_is_null(&cursor, 1) ? "(no name was told)" : cursor_name(&cursor, 1));
        if (cursor_integer(&cursor, 2) > 0) {
            fprintf(out, ", %s", format_bytes(cursor_integer(&cursor, 2)).text);
        }
        if (!cursor_is_null(&cursor, 3)) {
            fputs(", ", out);
            format_print_safe(out, cursor_name(&cursor, 3));
        }
        fputc('\n', out);
        print_users(out, database, cursor_integer(&cursor, 0));
    }
    cursor_close(&cursor);
}

/* ---- tables ---- */

static void print_section(FILE *out, struct database *database, const char *title, const struct query *query,
                          int64_t bound, const char *all_sql)
{
    int64_t all = database_integer(database, all_sql, 0);

    if (all == 0) {
        return;
    }
    report_rule_print(out, title);
    query_print(out, database, query, bound);
    if (all > ROWS_SHOWN) {
        fprintf(out, "  and %s more (--json has all)\n", format_count(all - ROWS_SHOWN).text);
    }
}

static void print_streams(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"GPU", true},   {"pid", true},   {"of", false},  {"stream", true},      {"allocations", true},
        {"freed", true}, {"bytes", true}, {"peak", true}, {"never freed", true},
    };
    static const struct query query = {
        .sql = "SELECT device, pid, domain, stream, allocations, frees, bytes, peak_bytes, live_bytes "
               "FROM stream_total WHERE domain <> 'cupti' ORDER BY device, process_id, domain, bytes DESC, "
               "stream "
               "LIMIT " TEXT(ROWS_SHOWN),
        .columns = columns,
        .kinds = "nntnccbbb",
    };

    print_section(out, database, "GPU memory by stream (0: the default stream)", &query, 0,
                  "SELECT count(*) FROM stream_total WHERE domain <> 'cupti'");
}

static void print_times(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"GPU", true},  {"function", false}, {"calls", true}, {"failed", true},
        {"time", true}, {"of run", true},    {"mean", true},  {"longest", true},
    };
    static const struct query query = {
        .sql = "SELECT device, function, sum(calls), sum(failed), sum(total_ns), "
               "CAST(1000.0 * sum(total_ns) / max(?1, 1) AS INTEGER), sum(total_ns) / max(sum(calls), 1), "
               "max(max_ns) FROM device_call GROUP BY device, function ORDER BY sum(total_ns) DESC, function "
               "LIMIT " TEXT(ROWS_SHOWN),
        .columns = columns,
        .kinds = "ntccd%dd",
    };
    int64_t duration = report_duration_ns(database);
    struct cursor cursor;
    const char *before = "  together ";

    print_section(out, database, "Time in the CUDA driver's memory calls and in waiting, all threads", &query,
                  duration, "SELECT count(*) FROM (SELECT DISTINCT device, function FROM device_call)");
    cursor_open(&cursor, database,
                "SELECT activity, sum(total_ns) FROM device_call WHERE activity <> 'other' GROUP BY activity "
                "ORDER BY activity");
    while (cursor_next(&cursor)) {
        const char *activity = cursor_name(&cursor, 0);
        int64_t ns = cursor_integer(&cursor, 1);

        fprintf(out, "%s%s %s (%s)", before,
                strcmp(activity, "allocate") == 0 ? "allocating"
                : strcmp(activity, "free") == 0   ? "freeing"
                                                  : "waiting",
                format_duration(ns).text, format_share(ns, duration).text);
        before = ", ";
    }
    cursor_close(&cursor);
    fputs(strcmp(before, ", ") == 0 ? "\n" : "", out);
}

static void print_segments(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"GPU", true},     {"pid", true},    {"from driver", true},  {"reserved", true}, {"allocated", true},
        {"pending", true}, {"unused", true}, {"largest free", true}, {"segments", true}, {"at", true},
    };
    struct report_segments segments;
    struct table table;

    report_segments_load(&segments, database, ROWS_SHOWN);
    if (segments.count > 0) {
        report_rule_print(out, "Segments against blocks, when most was reserved");
        table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
        table.indent = "  ";
        for (size_t i = 0; i < segments.count; i++) {
            const struct report_segment *row = &segments.rows[i];
            char number[24];

            snprintf(number, sizeof(number), "%" PRId64, row->device);
            table_add(&table, number);
            snprintf(number, sizeof(number), "%" PRId64, row->pid);
            table_add(&table, number);
            table_add(&table, row->from_driver >= 0 ? format_bytes(row->from_driver).text : "-");
            table_add(&table, format_bytes(row->reserved).text);
            table_add(&table, format_bytes(row->allocated).text);
            table_add(&table, format_bytes(row->active - row->allocated).text);
            table_add(&table, format_share(row->reserved - row->allocated, row->reserved).text);
            table_add(&table, row->largest_free >= 0 ? format_bytes(row->largest_free).text : "-");
            table_add(&table, row->segments >= 0 ? format_count(row->segments).text : "-");
            table_add(&table, format_duration(row->ts_ns).text);
        }
        table_print(&table, out, true);
        table_free(&table);
        fprintf(out, "  varve segments --at %" PRId64 " shows the blocks of that moment\n",
                segments.rows[0].seq);
    }
    report_segments_free(&segments);
}

static void print_unexplained(FILE *out, struct database *database)
{
    static const struct table_column columns[] = {
        {"GPU", true},  {"asked", true}, {"memory", true}, {"most used", true},
        {"seen", true}, {"least", true}, {"most", true},   {"last", true},
    };
    static const struct query query = {
        .sql = REPORT_UNEXPLAINED_SQL,
        .columns = columns,
        .kinds = "ncbbbbbb",
    };

    if (database_integer(database, "SELECT EXISTS (SELECT 1 FROM device_unexplained)", 0) == 0) {
        return;
    }
    report_rule_print(out, "Device memory that nobody explains");
    query_print(out, database, &query, 0);
    fputs("  least, most, last: what the driver counts as used, without what was live of all recorded\n"
          "  processes when it was asked. Usual: each process' CUDA context and kernels (some hundred MiB),\n"
          "  what libraries keep inside the driver, and processes that were not recorded.\n",
          out);
    if (database_integer(database, "SELECT min(unexplained) FROM device_unexplained", 0) < 0) {
        fputs("  Less than nothing: memory of a pool that the driver has not backed yet, or lost frees.\n",
              out);
    }
}

/* ---- failures ---- */

const char *report_cuda_result(int64_t result)
{
    static const struct {
        int64_t number;
        const char *name;
    } names[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"},   {4, "CUDA_ERROR_DEINITIALIZED"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"}, {208, "CUDA_ERROR_ALREADY_MAPPED"},
        {400, "CUDA_ERROR_INVALID_HANDLE"},  {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},  {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"},   {800, "CUDA_ERROR_NOT_PERMITTED"},
        {801, "CUDA_ERROR_NOT_SUPPORTED"},   {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {999, "CUDA_ERROR_UNKNOWN"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i].number == result) {
            return names[i].name;
        }
    }
    return NULL;
}

static void print_failure(FILE *out, struct database *database, struct cursor *cursor)
{
    int64_t result = cursor_integer(cursor, 6);
    const char *name = report_cuda_result(result);
    struct callsite_row place = {.id = cursor_integer(cursor, 7)};
    struct stack stack;

    fprintf(out,
            "  event %" PRId64 " at %s, GPU %" PRId64 " (process %" PRId64 "): ", cursor_integer(cursor, 0),
            format_duration(cursor_integer(cursor, 1)).text, cursor_integer(cursor, 3),
            cursor_integer(cursor, 2));
    format_print_safe(out, cursor_name(cursor, 4));
    fprintf(out, " of %s\n", format_bytes_exact(cursor_integer(cursor, 5)).text);
    if (name != NULL) {
        fprintf(out, "       %s (%" PRId64 ")\n", name, result);
    } else {
        fprintf(out, "       CUDA error %" PRId64 "\n", result);
    }
    if (place.id > 0) {
        stack_load(&stack, database, place.id);
        stack_print(out, &stack, &place, 4);
        stack_free(&stack);
    }
}

static void print_failures(FILE *out, struct database *database)
{
    int64_t all = database_integer(database, "SELECT count(*) FROM device_failure", 0);
    struct cursor cursor;

    if (all == 0) {
        return;
    }
    report_rule_print(out, "Allocations that the CUDA driver refused");
    cursor_open(&cursor, database,
                "SELECT seq, ts_ns, pid, device, function, bytes, result, callsite_id FROM device_failure "
                "ORDER BY seq LIMIT " TEXT(FAILURES_SHOWN));
    while (cursor_next(&cursor)) {
        print_failure(out, database, &cursor);
    }
    cursor_close(&cursor);
    if (all > FAILURES_SHOWN) {
        fprintf(out, "  and %s more (--json has all)\n", format_count(all - FAILURES_SHOWN).text);
    }
}

void report_gpu_text(FILE *out, struct database *database)
{
    if (!report_has_gpu(database)) {
        return;
    }
    print_devices(out, database);
    print_streams(out, database);
    print_times(out, database);
    print_segments(out, database);
    print_unexplained(out, database);
    print_failures(out, database);
    report_cupti_print(out, database);
}
