/* SPDX-License-Identifier: Apache-2.0 */
/* Live blocks of a call site by the number of its allocations, in a fixed number of marks. */
#include "trace/model/curve.h"

#include "base/grown_array.h"

#include <stdbool.h>
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

void curve_add(struct curve **curve_out, uint64_t made, uint64_t seq, struct curve_point live)
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
        curve->marks[at] = (struct curve_mark){live, seq};
    }
}

static uint64_t between(uint64_t from, uint64_t to, double part)
{
    return (uint64_t)((double)from + ((double)to - (double)from) * part);
}

struct curve_point curve_at(const struct curve *curve, unsigned tenth, uint64_t made, struct curve_point end)
{
    if (curve->every == 0) {
        return curve->marks[tenth - 1].live;
    }
    const double at = (double)made * tenth / CURVE_TENTHS;
    uint64_t before = (uint64_t)at / curve->every;
    before = before < curve->count ? before : curve->count;
    const struct curve_point none = {0, 0};
    const struct curve_point *from = before > 0 ? &curve->marks[before - 1].live : &none;
    const struct curve_point *to = before < curve->count ? &curve->marks[before].live : &end;
    const double begin = (double)(before * curve->every);
    const double width = before < curve->count ? (double)curve->every : (double)made - begin;
    const double part = width > 0 ? (at - begin) / width : 1;
    return (struct curve_point){between(from->allocations, to->allocations, part),
                                between(from->bytes, to->bytes, part)};
}

/* ---- several call sites together ---- */

struct amount {
    double made, allocations, bytes;
};

/* From `seq` on so much more comes with each event, and so much at once. */
struct turn {
    uint64_t seq;
    struct amount slope, step;
};

struct turns {
    struct turn *turns;
    size_t count, capacity;
};

static bool turn_add(struct turns *turns, uint64_t seq, struct amount slope, struct amount step)
{
    if (!ARRAY_GROW(turns->turns, turns->capacity, turns->count + 1)) {
        return false;
    }
    turns->turns[turns->count++] = (struct turn){seq, slope, step};
    return true;
}

static struct amount amount_add(struct amount to, struct amount more, double times)
{
    return (struct amount){to.made + times * more.made, to.allocations + times * more.allocations,
                           to.bytes + times * more.bytes};
}

/* A part of a curve between two moments. */
static bool piece_add(struct turns *turns, uint64_t from_seq, struct amount from, uint64_t to_seq, struct amount to)
{
    const struct amount none = {0, 0, 0}, rise = amount_add(to, from, -1);
    if (to_seq <= from_seq) {
        return turn_add(turns, from_seq, none, rise);
    }
    const double width = (double)(to_seq - from_seq);
    return turn_add(turns, from_seq, amount_add(none, rise, 1 / width), none) &&
           turn_add(turns, to_seq, amount_add(none, rise, -1 / width), none);
}

static bool part_add(struct turns *turns, const struct curve_part *part)
{
    struct amount before = {0, 0, 0};
    uint64_t seq = part->first_seq;
    bool has_memory = true;
    for (uint32_t i = 0; part->curve != NULL && i < part->curve->count && has_memory; i++) {
        const struct curve_mark *mark = &part->curve->marks[i];
        const struct amount now = {(double)((i + 1) * part->curve->every), (double)mark->live.allocations,
                                   (double)mark->live.bytes};
        has_memory = piece_add(turns, seq, before, mark->seq, now);
        before = now;
        seq = mark->seq;
    }
    const struct amount end = {(double)part->made, (double)part->end.allocations, (double)part->end.bytes};
    return has_memory && piece_add(turns, seq, before, part->last_seq, end);
}

static int compare_turns(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* The tenths that are reached on the way from one amount to another. */
static void tenths_reach(struct curve *curve, double made, struct amount from, struct amount to)
{
    while (curve->count < CURVE_TENTHS && to.made >= made * (curve->count + 1) / CURVE_TENTHS) {
        const double rise = to.made - from.made;
        const double part = rise > 0 ? (made * (curve->count + 1) / CURVE_TENTHS - from.made) / rise : 1;
        const struct amount at = amount_add(from, amount_add(to, from, -1), part < 0 ? 0 : part);
        curve->marks[curve->count++].live = (struct curve_point){(uint64_t)(at.allocations > 0 ? at.allocations : 0),
                                                                 (uint64_t)(at.bytes > 0 ? at.bytes : 0)};
    }
}

/* From turn to turn; what rounding has left is made up for at the end. */
static void turns_walk(const struct turns *turns, struct curve *curve, struct amount end)
{
    struct amount now = {0, 0, 0}, slope = {0, 0, 0};
    for (size_t i = 0; i < turns->count; i++) {
        const struct turn *turn = &turns->turns[i];
        const struct amount then = amount_add(now, slope, i > 0 ? (double)(turn->seq - turns->turns[i - 1].seq) : 0);
        tenths_reach(curve, end.made, now, then);
        now = amount_add(then, turn->step, 1);
        tenths_reach(curve, end.made, then, now);
        slope = amount_add(slope, turn->slope, 1);
    }
    curve->count = curve->count < CURVE_TENTHS ? curve->count : CURVE_TENTHS - 1;
    while (curve->count < CURVE_TENTHS) {
        curve->marks[curve->count++].live = (struct curve_point){(uint64_t)end.allocations, (uint64_t)end.bytes};
    }
}

struct curve *curve_join(const struct curve_part *parts, size_t count)
{
    struct turns turns = {NULL, 0, 0};
    struct amount end = {0, 0, 0};
    struct curve *curve = calloc(1, sizeof(*curve));
    bool has_memory = curve != NULL;
    for (size_t i = 0; i < count && has_memory; i++) {
        const struct curve_part *part = &parts[i];
        has_memory = part_add(&turns, part);
        end = amount_add(
            end, (struct amount){(double)part->made, (double)part->end.allocations, (double)part->end.bytes}, 1);
    }
    if (has_memory) {
        if (turns.count > 1) {
            qsort(turns.turns, turns.count, sizeof(*turns.turns), compare_turns);
        }
        turns_walk(&turns, curve, end);
    } else {
        free(curve);
        curve = NULL;
    }
    free(turns.turns);
    return curve;
}
