/* SPDX-License-Identifier: Apache-2.0 */
/* Where the points are full, each two of them become one, and a point has twice as many rows from then on. */
#include "analysis/query/page/reduce.h"

#include "analysis/base/memory.h"

#include <stdlib.h>

void reduce_init(struct reduce *reduce, size_t points_max, int top_figure)
{
    *reduce = (struct reduce){.points_max = points_max, .top_figure = top_figure, .stride = 1};
}

void reduce_free(struct reduce *reduce)
{
    free(reduce->points);
    *reduce = (struct reduce){0};
}

static void merge(const struct reduce *reduce, struct reduce_point *into, const struct reduce_point *next)
{
    for (int i = 0; i < REDUCE_FIGURES; i++) {
        into->most[i] = next->most[i] > into->most[i] ? next->most[i] : into->most[i];
    }
    if (next->top.figures[reduce->top_figure] > into->top.figures[reduce->top_figure]) {
        into->top = next->top;
    }
    into->last = next->last;
    into->rows += next->rows;
}

static void halve(struct reduce *reduce)
{
    for (size_t i = 0; i < reduce->count / 2; i++) {
        struct reduce_point point = reduce->points[2 * i];
        merge(reduce, &point, &reduce->points[2 * i + 1]);
        reduce->points[i] = point;
    }
    reduce->count /= 2;
    reduce->stride *= 2;
}

void reduce_add(struct reduce *reduce, const struct reduce_row *row)
{
    struct reduce_point point = {.last = *row, .top = *row, .rows = 1};
    for (int i = 0; i < REDUCE_FIGURES; i++) {
        point.most[i] = row->figures[i];
    }
    if (reduce->count > 0 && reduce->points[reduce->count - 1].rows < reduce->stride) {
        merge(reduce, &reduce->points[reduce->count - 1], &point);
        return;
    }
    if (reduce->count == reduce->points_max) {
        halve(reduce);
    }
    reduce->points = memory_grow(reduce->points, &reduce->capacity, reduce->count, sizeof(reduce->points[0]));
    reduce->points[reduce->count++] = point;
}
