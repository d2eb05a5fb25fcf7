/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a call site's allocations were left as it made more of them: marks at multiples of a number of its own
 * allocations, which doubles when there are too many. What most of is freed and a few stay shows here, however uneven
 * the work around it is. model_totals.c adds to it, store/derived_tables.c writes it.
 */
#ifndef VARVE_TRACE_MODEL_CURVE_H
#define VARVE_TRACE_MODEL_CURVE_H

#include <stdint.h>

#define CURVE_MARKS 32U /* even */
#define CURVE_EVERY_MIN UINT64_C(64)

struct curve_point {
    uint64_t allocations, bytes; /* live */
};

struct curve {
    uint64_t every; /* a power of two */
    uint32_t count;
    struct curve_point marks[CURVE_MARKS]; /* when (i + 1) * every allocations had been made */
};

/// The `made`-th allocation was the last one. Called for each multiple of CURVE_EVERY_MIN; the first call makes the
/// curve. Owner: whoever has `*curve`, by free. Without memory there is none.
void curve_add(struct curve **curve, uint64_t made, struct curve_point live);
/// What was live when `tenth` tenths of `made` allocations had been made, between two marks in proportion; `end`: after
/// all of them.
struct curve_point curve_at(const struct curve *curve, unsigned tenth, uint64_t made, struct curve_point end);

#endif
