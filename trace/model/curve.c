/* SPDX-License-Identifier: Apache-2.0 */
/* Live blocks of a call site by the number of its allocations, in a fixed number of marks. */
#include "trace/model/curve.h"

#include <stdlib.h>

/* The allocation of number `made` is due for a mark: at which place. -1: at none, since it is no multiple of `every`
 * (a power of two) or, as all places (an even number) were taken, every second mark was kept and that doubled. */
static int next_mark(struct curve *curve, uint64_t made)
{
    if ((made & (curve->every - 1)) != 0) {
        return -1;
    }
    if (curve->count < CURVE_MARKS) {
        return (int)curve->count++;
    }
    curve->count = CURVE_MARKS / 2;
    curve->every *= 2;
    for (uint32_t i = 0; i < curve->count; i++) {
        curve->marks[i] = curve->marks[2 * i + 1];
    }
    return -1; /* behind an even number of marks comes one of the kind that is dropped */
}

void curve_add(struct curve **curve_out, uint64_t made, struct curve_point live)
{
    if (*curve_out == NULL) {
        *curve_out = calloc(1, sizeof(**curve_out));
    }
    struct curve *curve = *curve_out;
    if (curve == NULL) {
        return;
    }
    curve->every = curve->every != 0 ? curve->every : CURVE_EVERY_MIN;
    const int at = next_mark(curve, made);
    if (at >= 0) {
        curve->marks[at] = live;
    }
}

static uint64_t between(uint64_t from, uint64_t to, double part)
{
    return (uint64_t)((double)from + ((double)to - (double)from) * part);
}

struct curve_point curve_at(const struct curve *curve, unsigned tenth, uint64_t made, struct curve_point end)
{
    const double at = (double)made * tenth / 10.0;
    uint64_t before = (uint64_t)at / curve->every;
    before = before < curve->count ? before : curve->count;
    const struct curve_point none = {0, 0};
    const struct curve_point *from = before > 0 ? &curve->marks[before - 1] : &none;
    const struct curve_point *to = before < curve->count ? &curve->marks[before] : &end;
    const double begin = (double)(before * curve->every);
    const double width = before < curve->count ? (double)curve->every : (double)made - begin;
    const double part = width > 0 ? (at - begin) / width : 1;
    return (struct curve_point){between(from->allocations, to->allocations, part),
                                between(from->bytes, to->bytes, part)};
}
