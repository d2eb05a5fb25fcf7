/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over time in equal steps, and a chart of them. */
#ifndef VARVE_ANALYSIS_QUERY_TIMELINE_QUERY_H
#define VARVE_ANALYSIS_QUERY_TIMELINE_QUERY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct database;
struct selection;

struct timeline_point {
    int64_t begin_ns, end_ns;
    int64_t allocated;     /* at the end of the step */
    int64_t allocated_max; /* within the step */
    int64_t live;          /* allocations at the end of the step */
};

struct timeline {
    struct timeline_point *points;
    size_t count;
    int64_t samples; /* rows of the view that went in */
};

void timeline_load(struct timeline *timeline, struct database *database, const struct selection *selection,
                   int64_t points);
void timeline_free(struct timeline *timeline);
/// Steps that a chart has columns for, beside its labels.
size_t timeline_chart_columns(void);
/// A chart of the maxima, `rows` lines high.
void timeline_chart(FILE *out, const struct timeline *timeline, int rows);

#endif
