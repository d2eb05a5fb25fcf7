/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The totals of the views `total` and `total_process`, and the duration of a recording. Used by report, info, leaks,
 * peak, timeline and diff.
 */
#include "analysis/query/total_query.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/query_print.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_totals_load(struct report_totals *totals, struct database *database, int64_t process_id)
{
    *totals = (struct report_totals){0};
    struct cursor cursor;
    cursor_open(&cursor, database, process_id == 0 ? sql_totals : sql_totals_of_processes);
    if (process_id != 0) {
        cursor_bind_integer(&cursor, 1, process_id);
    }
    while (cursor_next(&cursor)) {
        totals->rows = memory_resize(totals->rows, (totals->count + 1) * sizeof(totals->rows[0]));
        struct report_total *row = &totals->rows[totals->count++];
        int64_t *const figures[] = {
            &row->device,   &row->allocations,      &row->frees,      &row->bytes,      &row->temporary,
            &row->failed,   &row->live_allocations, &row->live_bytes, &row->peak_bytes, &row->peak_allocations,
            &row->peak_seq, &row->peak_ns,          &row->process_id, &row->pid,
        };
        *row = (struct report_total){.domain = memory_copy_text(cursor_name(&cursor, 0))};
        for (int i = 0; i < (int)(sizeof(figures) / sizeof(figures[0])) && i + 1 < cursor_column_count(&cursor); i++) {
            bool is_missing = cursor_is_null(&cursor, i + 1);
            *figures[i] = is_missing && (figures[i] == &row->peak_seq || figures[i] == &row->peak_ns)
                              ? -1
                              : cursor_integer(&cursor, i + 1);
        }
    }
    cursor_close(&cursor);
}

void report_totals_free(struct report_totals *totals)
{
    for (size_t i = 0; i < totals->count; i++) {
        free(totals->rows[i].domain);
    }
    free(totals->rows);
    *totals = (struct report_totals){0};
}

struct format_text report_total_name(const struct report_totals *totals, const struct report_total *row)
{
    bool has_several = row->device > 0;
    for (size_t i = 0; i < totals->count && !has_several; i++) {
        has_several = totals->rows[i].process_id == row->process_id && totals->rows[i].device != row->device &&
                      strcmp(totals->rows[i].domain, row->domain) == 0;
    }
    struct format_text name;
    if (has_several) {
        snprintf(name.text, sizeof(name.text), "%.30s, GPU %d", row->domain, (int)row->device);
    } else {
        snprintf(name.text, sizeof(name.text), "%.40s", row->domain);
    }
    return name;
}

struct cJSON *report_totals_json(struct database *database)
{
    return query_json(database, sql_totals, 0);
}

/* A damaged file may hold any number. */
static int64_t bounded_ns(int64_t ns)
{
    return ns < 0 ? 0 : ns > INT64_MAX / 2 ? INT64_MAX / 2 : ns;
}

static int64_t recording_number(struct database *database, int column)
{
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT processes, images, duration_ns FROM recording");
    const int64_t number = cursor_next(&cursor) ? cursor_integer(&cursor, column) : 0;
    cursor_close(&cursor);
    return number;
}

int64_t report_process_count(struct database *database)
{
    return recording_number(database, 0);
}

int64_t report_image_count(struct database *database)
{
    return recording_number(database, 1);
}

int64_t report_duration_ns(struct database *database)
{
    return bounded_ns(recording_number(database, 2));
}

int64_t report_figure(struct database *database, const char *name, int64_t otherwise)
{
    return database_integer_named(database, sql_figure, name, otherwise);
}

void report_processes_words(char *text, size_t bytes, int64_t processes, int64_t images)
{
    int length = snprintf(text, bytes, "%s process%s", format_count(processes).text, processes == 1 ? "" : "es");
    if (images > processes && length > 0 && (size_t)length < bytes) {
        snprintf(text + length, bytes - (size_t)length, " (%s program images)", format_count(images).text);
    }
}
