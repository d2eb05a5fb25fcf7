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
#include <string.h>

#define HOLES_JSON 100
#define FAILURES_SHORT 2
#define FAILURES_SHOWN 5
#define FAILURE_FRAMES 4

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

/* Columns of sql_report_segments_with_driver, in the order of the JSON. */
enum segments_column {
    SEGMENTS_PROCESS_ID,
    SEGMENTS_PID,
    SEGMENTS_DEVICE,
    SEGMENTS_SEQ,
    SEGMENTS_TS_NS,
    SEGMENTS_FROM_DRIVER, /* what the process had of the driver on that device; NULL: unknown */
    SEGMENTS_RESERVED,
    SEGMENTS_ALLOCATED,
    SEGMENTS_ACTIVE, /* allocated, or freed but still waited for */
    SEGMENTS_COLUMNS,
};

/* What the layout says of the moment that the cursor stands on; -1 where it is not known. */
static void report_gpu_take_layout(struct cursor *cursor, int64_t *largest_free_out, int64_t *segments_out)
{
    struct segments_state state = {0};
    struct varve_message message = {""};
    *largest_free_out = *segments_out = -1;
    if (segments_state_load(&state, cursor->database, cursor_integer(cursor, SEGMENTS_SEQ),
                            cursor_integer(cursor, SEGMENTS_DEVICE), cursor_integer(cursor, SEGMENTS_PID),
                            &message) == VARVE_OK) {
        for (size_t i = 0; i < state.count; i++) {
            if (state.parts[i].process_id != cursor_integer(cursor, SEGMENTS_PROCESS_ID)) {
                continue;
            }
            *largest_free_out = *segments_out = 0;
            struct segment_item item;
            for (uint64_t from = 0; segment_next(state.parts[i].layout, &from, true, &item);) {
                *segments_out += item.first.is_implied ? 0 : 1;
                *largest_free_out =
                    (int64_t)item.largest_free > *largest_free_out ? (int64_t)item.largest_free : *largest_free_out;
            }
        }
    }
    segments_state_free(&state);
}

static void open_segments(struct cursor *cursor, struct database *database, int64_t limit)
{
    cursor_open(cursor, database, sql_report_segments_with_driver);
    cursor_bind_integer(cursor, 1, limit);
}

void report_segments_text(FILE *out, struct database *database, const struct report_section *section,
                          const struct report_options *options)
{
    static const struct table_column columns[] = {
        {"GPU", true},     {"pid", true},    {"from driver", true},  {"reserved", true}, {"allocated", true},
        {"pending", true}, {"unused", true}, {"largest free", true}, {"segments", true}, {"at", true},
    };
    (void)options;
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    table.indent = "  ";
    int64_t first = -1;
    struct cursor cursor;
    for (open_segments(&cursor, database, SECTION_ROWS_TEXT); cursor_next(&cursor);) {
        int64_t largest_free, segments;
        report_gpu_take_layout(&cursor, &largest_free, &segments);
        const int64_t reserved = cursor_integer(&cursor, SEGMENTS_RESERVED);
        const int64_t allocated = cursor_integer(&cursor, SEGMENTS_ALLOCATED);
        first = first < 0 ? cursor_integer(&cursor, SEGMENTS_SEQ) : first;
        query_print_cell(&table, &cursor, SEGMENTS_DEVICE, 'n');
        query_print_cell(&table, &cursor, SEGMENTS_PID, 'n');
        query_print_cell(&table, &cursor, SEGMENTS_FROM_DRIVER, 'b');
        query_print_cell(&table, &cursor, SEGMENTS_RESERVED, 'b');
        query_print_cell(&table, &cursor, SEGMENTS_ALLOCATED, 'b');
        table_add(&table, format_bytes(cursor_integer(&cursor, SEGMENTS_ACTIVE) - allocated).text);
        table_add(&table, format_share(reserved - allocated, reserved).text);
        table_add(&table, largest_free >= 0 ? format_bytes(largest_free).text : "-");
        table_add(&table, segments >= 0 ? format_count(segments).text : "-");
        query_print_cell(&table, &cursor, SEGMENTS_TS_NS, 'd');
    }
    cursor_close(&cursor);
    if (table.cell_count > 0) {
        report_rule_print(out, section->title);
        table_print(&table, out, true);
        fprintf(out, "  varve segments --at %" PRId64 " shows the blocks of that moment\n", first);
    }
    table_free(&table);
}

struct cJSON *report_segments_json(struct database *database, const struct report_options *options)
{
    struct cJSON *array = json_array();
    (void)options;
    struct cursor cursor;
    for (open_segments(&cursor, database, INT64_MAX); cursor_next(&cursor);) {
        int64_t largest_free, segments;
        report_gpu_take_layout(&cursor, &largest_free, &segments);
        struct cJSON *object = cursor_json(&cursor, SEGMENTS_COLUMNS);
        json_integer_or_null(object, "largest_free", largest_free);
        json_integer_or_null(object, "segments", segments);
        json_append(array, object);
    }
    cursor_close(&cursor);
    return array;
}

/* ---- why segments were not used ---- */

struct cJSON *report_ladder_json(struct database *database, const struct report_options *options)
{
    struct cJSON *object = json_object();
    (void)options;
    json_add(object, "peak", query_json(database, sql_ladder_peaks, 0));
    json_add(object, "holes", query_json(database, sql_peak_holes, HOLES_JSON));
    return object;
}

/* ---- unattributed ---- */

static void print_unattributed_short(FILE *out, struct database *database, const char *title)
{
    static const struct table_column columns[] = {
        {"GPU", true}, {"memory", true}, {"most used", true}, {"attributed", true}, {"unattributed", true},
    };
    static const struct query query = {
        .sql = sql_unattributed_short,
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
    int64_t result = cursor_integer(cursor, 10);
    const char *name = report_cuda_result(result);
    struct callsite_row callsite = {.id = cursor_integer(cursor, 12)};
    fprintf(out, "  event %" PRId64 " at %s, GPU %" PRId64 " (process %" PRId64 "): ", cursor_integer(cursor, 0),
            format_duration(cursor_integer(cursor, 1)).text, cursor_integer(cursor, 5), cursor_integer(cursor, 3));
    format_print_safe(out, cursor_name(cursor, 8));
    fprintf(out, " of %s\n", format_bytes_exact(cursor_integer(cursor, 9)).text);
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
    cursor_open(&cursor, database, sql_report_failures_json);
    cursor_bind_integer(&cursor, 1, shown);
    while (cursor_next(&cursor)) {
        report_gpu_print_failure(out, database, &cursor, options->stacks.is_all ? FAILURE_FRAMES : 0);
    }
    cursor_close(&cursor);
    if (all > shown) {
        fprintf(out, "  and %s more (--json has all)\n", format_count(all - shown).text);
    }
}
