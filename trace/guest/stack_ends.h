/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of a stack of any depth: its two ends. While it is walked, the innermost frames lie in the first slots
 * of an array and the outermost ones go round in the others; when their number is known, the middle becomes one mark.
 */
#ifndef VARVE_TRACE_GUEST_STACK_ENDS_H
#define VARVE_TRACE_GUEST_STACK_ENDS_H

#include <limits.h>
#include <stdbool.h>

enum {
    STACK_INSIDE = 320, /* a multiple of: */
    STACK_OUTSIDE = 64,
    STACK_ENDS = STACK_INSIDE + STACK_OUTSIDE, /* slots */
    STACK_NUMBERS = 64,                        /* different figures that marks have: bounds what recursion costs */
};

#define STACK_UNENDED UINT_MAX /* the number of frames of a stack that was not walked to its end */

/// Where frame `index` of a walk is, the innermost being 0.
static inline unsigned stack_slot(unsigned index)
{
    return index < STACK_INSIDE ? index : STACK_INSIDE + index % STACK_OUTSIDE;
}

struct stack_cut {
    unsigned inside; /* frames before the mark */
    unsigned outside;
    unsigned first_outside; /* index in the whole stack */
    unsigned left_out;      /* 0: not known, or too many to be told apart */
};

/// Of `total` frames, how many are kept if `depth` (at most 256) are wanted: false, all of them. A quarter are
/// outermost ones. What is left out grows in steps of that quarter, so that a recursion that goes one frame deeper
/// mostly goes on below frames that are known: at least three quarters, and less than all of `depth`, are innermost.
/// Very deep stacks have a mark without a figure: these are alike whatever their depth is, up to one step.
static inline bool stack_is_cut(unsigned total, unsigned depth, struct stack_cut *cut)
{
    const unsigned outside = depth / 4, step = outside > 0 ? outside : 1;
    if (total == STACK_UNENDED) {
        *cut = (struct stack_cut){.inside = depth};
        return true;
    }
    if (total < depth + step) {
        return false;
    }
    const unsigned left_out = (total - depth) / step * step;
    *cut = (struct stack_cut){.inside = total - outside - left_out,
                              .outside = outside,
                              .first_outside = total - outside,
                              .left_out = left_out < STACK_NUMBERS * step ? left_out : 0};
    return true;
}

#endif
