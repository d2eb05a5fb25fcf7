/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and who used them, memory by stream, time spent in the driver, segments against the blocks in them when most
 * was reserved, unattributed memory, requests that failed, and CUPTI. They appear only where there is something of
 * the kind. Figures are those of the views; how much was free in one piece is read from the layout, as
 * segments --at does.
 */
#include "analysis/report/report.h"

#include "analysis/base/number_format.h"
#include "analysis/base/json_writer.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/table.h"
#include "analysis/query/callsite_query.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"
#include "analysis/report/report_title.h"
#include "analysis/query/segment_query.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLES_JSON 100
#define FAILURES_SHORT 2
#define FAILURES_SHOWN 5
#define FAILURE_FRAMES 4
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

bool report_has_gpu(struct database *database)
{
    return report_figure(database, "gpu", 0) != 0;
}

/* ---- devices ---- */

#define USERS_SHOWN 8

/* Those of the device that the cursor stands on. Is there a row of the next one? */
static bool print_users(FILE *out, struct cursor *cursor)
{
    const int64_t device = cursor_integer(cursor, 0), all = cursor_integer(cursor, 7);
    const char *before = all == 1 ? "         process " : "         processes ";
    bool has_row = true;
    for (int64_t i = 0; has_row && cursor_integer(cursor, 0) == device; has_row = cursor_next(cursor), i++) {
        if (i >= all || i >= USERS_SHOWN) {
            continue;
        }
        fprintf(out, "%s%" PRId64, before, cursor_integer(cursor, 5));
        if (!cursor_is_null(cursor, 6)) {
            fprintf(out, " (rank %" PRId64 ")", cursor_integer(cursor, 6));
        }
        before = ", ";
    }
    if (all > USERS_SHOWN) {
        fprintf(out, " and %s more", format_count(all - USERS_SHOWN).text);
    }
    fputs(all > 0 ? "\n" : "", out);
    return has_row;
}

void report_devices_text(FILE *out, struct database *database, const struct report_section *section,
                         const struct report_options *options)
{
    (void)options;
    struct cursor cursor;
    cursor_open(&cursor, database, sql_report_device_users);
    bool has_row = cursor_next(&cursor);
    if (has_row) {
        report_rule_print(out, section->title);
    }
    while (has_row) {
        fprintf(out, "  GPU %" PRId64 "  ", cursor_integer(&cursor, 0));
        format_print_safe(out, cursor_is_null(&cursor, 1) ? "(no name)" : cursor_name(&cursor, 1));
        if (cursor_integer(&cursor, 2) > 0) {
            fprintf(out, ", %s", format_bytes(cursor_integer(&cursor, 2)).text);
        }
        if (!cursor_is_null(&cursor, 3)) {
            fputs(", ", out);
            format_print_safe(out, cursor_name(&cursor, 3));
        }
        fputc('\n', out);
        has_row = print_users(out, &cursor);
    }
    cursor_close(&cursor);
}

struct cJSON *report_devices_json(struct database *database, const struct report_options *options)
{
    struct cJSON *devices = json_array();
    (void)options;
    struct cursor cursor;
    cursor_open(&cursor, database, sql_report_device_users);
    for (bool has_row = cursor_next(&cursor); has_row;) {
        const int64_t number = cursor_integer(&cursor, 0), users = cursor_integer(&cursor, 7);
        struct cJSON *device = json_object();
        struct cJSON *processes = json_array();
        json_integer(device, "device", number);
        json_text(device, "name", cursor_text(&cursor, 1));
        json_integer_or_null(device, "total_bytes", cursor_is_null(&cursor, 2) ? -1 : cursor_integer(&cursor, 2));
        json_text(device, "uuid", cursor_text(&cursor, 3));
        for (; has_row && cursor_integer(&cursor, 0) == number; has_row = cursor_next(&cursor)) {
            if (users > 0) {
                struct cJSON *process = json_object();
                cursor_json_add(process, &cursor, 4, 3);
                json_append(processes, process);
            }
        }
        json_add(device, "processes", processes);
        json_append(devices, device);
    }
    cursor_close(&cursor);
    return devices;
}

/* ---- time ---- */

static void print_time_sums(FILE *out, struct database *database, const char *before)
{
    int64_t duration = report_duration_ns(database);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_gpu_time_by_activity);
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

void report_calls_text(FILE *out, struct database *database, const struct report_section *section,
                       const struct report_options *options)
{
    if (options->stacks.is_all) {
        report_section_table(out, database, section);
        print_time_sums(out, database, "  together ");
    } else {
        print_time_sums(out, database, "\nTime in the CUDA driver, all threads: ");
    }
}

/* ---- segments of caching allocators ---- */

/* A moment of a caching allocator: when it had reserved most. */
struct segment_row {
    int64_t process_id, pid, device, seq, ts_ns;
    int64_t reserved, allocated, active; /* bytes; active: allocated, or freed but still waited for */
    int64_t from_driver;                 /* what its process had of the driver on that device; -1: unknown */
    int64_t largest_free, segments;      /* -1: unknown */
};

struct segments {
    struct segment_row *rows;
    size_t count;
};

static const char segments_sql[] =
    "SELECT process_id, pid, device, reserved, live_requested + rounding + unsplit_remainder, "
    "live_requested + rounding + unsplit_remainder + stream_pending, seq, ts_ns, "
    "coalesce((SELECT a.allocated FROM timeline_process a WHERE a.process_id = m.process_id AND a.domain = 'device' "
    "AND a.device = m.device AND a.seq <= m.seq ORDER BY a.seq DESC LIMIT 1), -1) "
    "FROM ladder_peak m " REPORT_LADDER_ORDER " LIMIT ?1";

/* Leaves -1 where the layout is not known. */
static void report_gpu_take_layout(struct segment_row *row, struct database *database)
{
    struct segments_state state = {0};
    struct varve_message message = {""};
    if (segments_state_load(&state, database, row->seq, row->device, row->pid, &message) == VARVE_OK) {
        for (size_t i = 0; i < state.count; i++) {
            if (state.parts[i].process_id != row->process_id) {
                continue;
            }
            row->largest_free = 0;
            row->segments = 0;
            struct segment_item item;
            for (uint64_t from = 0; segment_next(state.parts[i].layout, &from, true, &item);) {
                row->segments += item.first.is_implied ? 0 : 1;
                row->largest_free =
                    (int64_t)item.largest_free > row->largest_free ? (int64_t)item.largest_free : row->largest_free;
            }
        }
    }
    segments_state_free(&state);
}

static void segments_load(struct segments *segments, struct database *database, int64_t limit)
{
    *segments = (struct segments){0};
    struct cursor cursor;
    cursor_open(&cursor, database, segments_sql);
    cursor_bind_integer(&cursor, 1, limit);
    while (cursor_next(&cursor)) {
        segments->rows = memory_resize(segments->rows, (segments->count + 1) * sizeof(segments->rows[0]));
        struct segment_row *row = &segments->rows[segments->count++];
        *row = (struct segment_row){
            .process_id = cursor_integer(&cursor, 0),
            .pid = cursor_integer(&cursor, 1),
            .device = cursor_integer(&cursor, 2),
            .reserved = cursor_integer(&cursor, 3),
            .allocated = cursor_integer(&cursor, 4),
            .active = cursor_integer(&cursor, 5),
            .seq = cursor_integer(&cursor, 6),
            .ts_ns = cursor_integer(&cursor, 7),
            .from_driver = cursor_integer(&cursor, 8),
            .largest_free = -1,
            .segments = -1,
        };
    }
    cursor_close(&cursor);
    for (size_t i = 0; i < segments->count; i++) {
        report_gpu_take_layout(&segments->rows[i], database);
    }
}

static void segments_free(struct segments *segments)
{
    free(segments->rows);
    *segments = (struct segments){0};
}

void report_segments_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options)
{
    static const struct table_column columns[] = {
        {"GPU", true},     {"pid", true},    {"from driver", true},  {"reserved", true}, {"allocated", true},
        {"pending", true}, {"unused", true}, {"largest free", true}, {"segments", true}, {"at", true},
    };
    (void)options;
    struct segments segments;
    segments_load(&segments, database, SECTION_ROWS_TEXT);
    struct table table;
    if (segments.count > 0) {
        report_rule_print(out, section->title);
        table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
        table.indent = "  ";
        for (size_t i = 0; i < segments.count; i++) {
            const struct segment_row *row = &segments.rows[i];
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
        fprintf(out, "  varve segments --at %" PRId64 " shows the blocks of that moment\n", segments.rows[0].seq);
    }
    segments_free(&segments);
}

struct cJSON *report_segments_json(struct database *database, const struct report_options *options)
{
    struct cJSON *array = json_array();
    (void)options;
    struct segments segments;
    segments_load(&segments, database, INT64_MAX);
    for (size_t i = 0; i < segments.count; i++) {
        const struct segment_row *row = &segments.rows[i];
        struct cJSON *object = json_object();
        json_integer(object, "process_id", row->process_id);
        json_integer(object, "pid", row->pid);
        json_integer(object, "device", row->device);
        json_integer(object, "seq", row->seq);
        json_integer(object, "ts_ns", row->ts_ns);
        json_integer_or_null(object, "from_driver", row->from_driver);
        json_integer(object, "reserved", row->reserved);
        json_integer(object, "allocated", row->allocated);
        json_integer(object, "active", row->active);
        json_integer_or_null(object, "largest_free", row->largest_free);
        json_integer_or_null(object, "segments", row->segments);
        json_append(array, object);
    }
    segments_free(&segments);
    return array;
}

/* ---- why segments were not used ---- */

struct cJSON *report_ladder_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    (void)options;
    json_add(object, "peak", query_json(database, "SELECT * FROM ladder_peak " REPORT_LADDER_ORDER, 0));
    json_add(object, "holes", query_json(database, "SELECT * FROM peak_hole LIMIT " TEXT(HOLES_JSON), 0));
    return object;
}

/* ---- unattributed ---- */

static void print_unattributed_short(FILE *out, struct database *database, const char *title)
{
    static const struct table_column columns[] = {
        {"GPU", true}, {"memory", true}, {"most used", true}, {"attributed", true}, {"unattributed", true},
    };
    static const struct query query = {
        .sql = "SELECT device, total, most_used, attributed, most FROM (" REPORT_UNATTRIBUTED_SQL ")",
        .columns = columns,
        .kinds = "nbbbb",
    };
    if (report_figure(database, "unattributed", 0) != 0) {
        report_rule_print(out, title);
        query_print(out, database, &query, 0);
    }
}

void report_unattributed_text(FILE *out, struct database *database, const struct report_section *section,
                              const struct report_options *options)
{
    if (!options->stacks.is_all) {
        print_unattributed_short(out, database, section->title);
        return;
    }
    if (report_figure(database, "unattributed", 0) == 0) {
        return;
    }
    report_section_table(out, database, section);
    fputs("  least, most, last: what the driver counts as used, without what was live of all recorded\n"
          "  processes at that moment. Usual: each process' CUDA context and kernels (some hundred MiB),\n"
          "  what libraries keep inside the driver, and processes that were not recorded.\n",
          out);
    if (report_figure(database, "least unattributed", 0) < 0) {
        fputs("  Less than nothing: memory of a pool that the driver has not backed yet, or lost frees.\n", out);
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

static void report_gpu_print_failure(FILE *out, struct database *database, struct cursor *cursor, int64_t frames)
{
    int64_t result = cursor_integer(cursor, 6);
    const char *name = report_cuda_result(result);
    struct callsite_row callsite = {.id = cursor_integer(cursor, 7)};
    fprintf(out, "  event %" PRId64 " at %s, GPU %" PRId64 " (process %" PRId64 "): ", cursor_integer(cursor, 0),
            format_duration(cursor_integer(cursor, 1)).text, cursor_integer(cursor, 3), cursor_integer(cursor, 2));
    format_print_safe(out, cursor_name(cursor, 4));
    fprintf(out, " of %s\n", format_bytes_exact(cursor_integer(cursor, 5)).text);
    if (name != NULL) {
        fprintf(out, "       %s (%" PRId64 ")\n", name, result);
    } else {
        fprintf(out, "       CUDA error %" PRId64 "\n", result);
    }
    if (callsite.id > 0) {
        callsite_location_load(&callsite, database);
        callsite_stack_print(out, database, &callsite, frames);
        callsite_location_free(&callsite);
    }
}

void report_failures_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options)
{
    int64_t shown = options->stacks.is_all ? FAILURES_SHOWN : FAILURES_SHORT;
    int64_t all = report_figure(database, "device failures", 0);
    if (all == 0) {
        return;
    }
    report_rule_print(out, section->title);
    struct cursor cursor;
    cursor_open(&cursor, database, sql_first_device_failures);
    cursor_bind_integer(&cursor, 1, shown);
    while (cursor_next(&cursor)) {
        report_gpu_print_failure(out, database, &cursor, options->stacks.is_all ? FAILURE_FRAMES : 0);
    }
    cursor_close(&cursor);
    if (all > shown) {
        fprintf(out, "  and %s more (--json has all)\n", format_count(all - shown).text);
    }
}
