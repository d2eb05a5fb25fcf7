/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a call site's allocations were left as it made more of them: marks at multiples of a number of its own
 * allocations, which doubles when there are too many. What most of is freed and a few stay shows here, however uneven
 * the work around it is. model_totals.c adds to it, store/derived_tables.c writes it.
 */
#ifndef VARVE_TRACE_MODEL_CURVE_H
#define VARVE_TRACE_MODEL_CURVE_H

#include <stddef.h>
#include <stdint.h>

#define CURVE_MARKS 32U /* even */
#define CURVE_EVERY_MIN UINT64_C(64)

#define CURVE_TENTHS 10U

struct curve_point {
    uint64_t allocations, bytes; /* live */
};

struct curve_mark {
    struct curve_point live;
    uint64_t seq; /* the event after which that was so */
};

struct curve {
    uint64_t
        every; /* a power of two; 0: of several call sites together, marks[i] is what was live after i + 1 tenths */
    uint32_t count;
    struct curve_mark marks[CURVE_MARKS]; /* when (i + 1) * every allocations had been made */
};

/// The `made`-th allocation, event `seq`, was the last one. Called for each multiple of CURVE_EVERY_MIN; the first call
/// makes the curve. Owner: whoever has `*curve`, by free. Without memory there is none.
void curve_add(struct curve **curve, uint64_t made, uint64_t seq, struct curve_point live);
/// What was live when `tenth` tenths of `made` allocations had been made, between two marks in proportion; `end`: after
/// all of them.
struct curve_point curve_at(const struct curve *curve, unsigned tenth, uint64_t made, struct curve_point end);

/* What of a curve of several call sites together one of them has. */
struct curve_part {
    const struct curve *curve;    /* NULL: it has made too few allocations */
    uint64_t first_seq, last_seq; /* all were made between these events */
    uint64_t made;
    struct curve_point end; /* live after all of them */
};

/// The curve of several call sites that are one: what they had made and what was live of it is added up at the same
/// moments. Between its marks each has made its allocations evenly; one without a curve, between its first and last
/// event. Owner: the caller, by free. NULL: no memory.
struct curve *curve_join(const struct curve_part *parts, size_t count);

#endif
