/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows over time, of which there may be millions, as at most REDUCE_POINTS points. A point stands for as many rows as
 * every other one: it has the last of them, the largest of each figure, and, whole, the first of those with the
 * most of one figure.
 */
#ifndef VARVE_ANALYSIS_QUERY_PAGE_REDUCE_H
#define VARVE_ANALYSIS_QUERY_PAGE_REDUCE_H

#include <stddef.h>
#include <stdint.h>

#define REDUCE_FIGURES 9

struct reduce_row {
    int64_t ts_ns;
    int64_t figures[REDUCE_FIGURES];
};

struct reduce_point {
    struct reduce_row last, top;
    int64_t most[REDUCE_FIGURES];
    uint64_t rows;
};

struct reduce {
    struct reduce_point *points;
    size_t count, capacity;
    size_t points_max; /* even */
    int top_figure;    /* by which `top` is chosen */
    uint64_t stride;   /* rows of a point */
};

void reduce_init(struct reduce *reduce, size_t points_max, int top_figure);
/// Rows come in the order of time.
void reduce_add(struct reduce *reduce, const struct reduce_row *row);
void reduce_free(struct reduce *reduce);

#endif
