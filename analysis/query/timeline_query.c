/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes over time. The views timeline and timeline_process have a row per event or, of long traces, those with the
 * largest values of each interval of time among them; here they are put into equal steps of time. A step begins with
 * the state at the end of the one before.
 */
#include "analysis/query/timeline_query.h"

#include "analysis/base/number_format.h"
#include "analysis/base/terminal.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/query/database.h"
#include "analysis/query/query_selection.h"
#include "analysis/query/total_query.h"

#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

#define LABEL_COLUMNS 10

static void fill_step(struct timeline *timeline, size_t *step, size_t to)
{
    for (; *step < to; (*step)++) {
        struct timeline_point *next = &timeline->points[*step + 1];
        next->allocated = timeline->points[*step].allocated;
        next->allocated_max = next->allocated;
        next->live = timeline->points[*step].live;
    }
}

void timeline_load(struct timeline *timeline, struct database *database, const struct selection *selection,
                   int64_t points)
{
    int64_t span = report_duration_ns(database) + 1;
    *timeline = (struct timeline){.count = (size_t)points};
    timeline->points = memory_resize(NULL, timeline->count * sizeof(timeline->points[0]));
    for (size_t i = 0; i < timeline->count; i++) {
        /* in doubles, as ns times points may exceed 64 bits */
        timeline->points[i] = (struct timeline_point){
            .begin_ns = (int64_t)((double)span * (double)i / (double)points),
            .end_ns = (int64_t)((double)span * (double)(i + 1) / (double)points),
        };
    }
    struct cursor cursor;
    cursor_open(&cursor, database, selection->process_id == 0 ? sql_timeline : sql_timeline_of_process);
    cursor_bind_text(&cursor, 1, selection->domain);
    cursor_bind_integer(&cursor, 2, selection->device);
    if (selection->process_id != 0) {
        cursor_bind_integer(&cursor, 3, selection->process_id);
    }
    size_t step = 0;
    while (cursor_next(&cursor)) {
        int64_t when = cursor_integer(&cursor, 0);
        size_t at = step;
        while (at + 1 < timeline->count && when >= timeline->points[at].end_ns) {
            at++;
        }
        fill_step(timeline, &step, at);
        struct timeline_point *point = &timeline->points[step];
        point->allocated = cursor_integer(&cursor, 1);
        point->live = cursor_integer(&cursor, 4);
        if (point->allocated > point->allocated_max) {
            point->allocated_max = point->allocated;
        }
        timeline->samples++;
    }
    cursor_close(&cursor);
    fill_step(timeline, &step, timeline->count - 1);
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->points);
    *timeline = (struct timeline){0};
}

/* How much of the cell in `row` the maximum of a step fills, in eighths from the bottom. */
static int cell_eighths(const struct timeline_point *point, int row, int rows, int64_t highest)
{
    double cells = (double)point->allocated_max * (double)rows / (double)highest;
    int eighths = cells <= (double)row ? 0 : cells >= (double)row + 1 ? 8 : (int)((cells - (double)row) * 8.0 + 0.5);

    /* what is not nothing is seen */
    return row == 0 && eighths == 0 && point->allocated_max > 0 ? 1 : eighths;
}

static void print_row(FILE *out, const struct timeline *timeline, int row, int rows, int64_t highest)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t end = timeline->count;
    while (end > 0 && cell_eighths(&timeline->points[end - 1], row, rows, highest) == 0) {
        end--;
    }
    for (size_t i = 0; i < end; i++) {
        fputs(blocks[cell_eighths(&timeline->points[i], row, rows, highest)], out);
    }
    fputc('\n', out);
}

size_t timeline_chart_columns(void)
{
    return terminal_columns() - LABEL_COLUMNS - 2;
}

void timeline_chart(FILE *out, const struct timeline *timeline, int rows)
{
    const struct timeline_point *last = &timeline->points[timeline->count - 1];
    int64_t highest = 1;
    for (size_t i = 0; i < timeline->count; i++) {
        if (timeline->points[i].allocated_max > highest) {
            highest = timeline->points[i].allocated_max;
        }
    }
    for (int row = rows - 1; row >= 0; row--) {
        bool is_labelled = row == rows - 1 || row == rows / 2 || row == 0;
        int64_t value = (int64_t)((double)highest * (double)(row + 1) / (double)rows);
        fprintf(out, "%*s |", LABEL_COLUMNS, is_labelled ? format_bytes(value).text : "");
        print_row(out, timeline, row, rows, highest);
    }
    fprintf(out, "%*s +", LABEL_COLUMNS, "");
    for (size_t i = 0; i < timeline->count; i++) {
        fputc('-', out);
    }
    fprintf(out, "\n%*s 0%*s\n", LABEL_COLUMNS + 1, "", (int)timeline->count - 1, format_duration(last->end_ns).text);
}
