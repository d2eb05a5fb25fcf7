/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * The allocator on the sim device and its naive model, given the same operations side by side. After every
 * step the results, addresses and recorded events must be equal; every so often the whole snapshot and all
 * statistics too. Operations name their blocks by position ("the 7th live one"), so that a sequence stays
 * meaningful when some of it is taken away. For unit/alloc/core/test_alloc_model.c and fuzz_alloc_ops.c.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_PAIR_H
#define VARVE_TESTS_SUPPORT_ALLOC_PAIR_H

#include "alloc/alloc.h"

#include <stdio.h>

#define ALLOC_PAIR_STREAMS 5U
#define ALLOC_PAIR_POOLS 4U
#define ALLOC_PAIR_FILTERS 4U

/* X(NAME, name): what a step can do. */
/* clang-format off */
#define ALLOC_PAIR_LIST(X)                                      \
    X(ALLOC, alloc)                                             \
    X(FREE, free)                                               \
    X(RECORD_STREAM, record_stream)                             \
    X(COMPLETE, complete) /* all that a stream has been given */ \
    X(EMPTY_CACHE, empty_cache)                                 \
    X(BEGIN, begin)                                             \
    X(END, end)                                                 \
    X(RELEASE, release)                                         \
    X(NO_SPLIT, no_split)                                       \
    X(USE_ON_OOM, use_on_oom)                                   \
    X(LIMIT, limit)                                             \
    X(FRACTION, fraction)                                       \
    X(FAIL, fail) /* of the device, scripted */                 \
    X(RESET_PEAK, reset_peak)                                   \
    X(RESET_ACCUMULATED, reset_accumulated)                     \
    X(FREE_WRONG, free_wrong) /* an address that isn't allocated, mostly */
/* clang-format on */

enum alloc_pair_kind {
#define ALLOC_PAIR_ENUM(NAME, name) ALLOC_PAIR_##NAME,
    ALLOC_PAIR_LIST(ALLOC_PAIR_ENUM)
#undef ALLOC_PAIR_ENUM
        ALLOC_PAIR_KINDS,
};

struct alloc_pair_op {
    enum alloc_pair_kind kind;
    uint64_t bytes;  /* of an allocation, a limit; thousandths of a fraction */
    uint32_t pick;   /* which live block, pool or device call */
    uint32_t salt;   /* where new segments come to lie */
    uint32_t stream; /* which stream, or filter */
    uint32_t nth, count;
    int error;
};

struct alloc_pair_setup {
    struct varve_alloc_config config;
    uint64_t memory_limit, capacity;
    unsigned miss_frees;  /* blocks that a callback may free when a pool has nothing; 0: no callback */
    unsigned check_every; /* steps between two calls of varve_alloc_check */
    bool folds;           /* the recorder takes folded records */
};

/* The first difference. */
struct alloc_pair_difference {
    size_t step;
    char text[1000];
};

/// Run all; false with the first difference.
bool alloc_pair_run(const struct alloc_pair_setup *setup, const struct alloc_pair_op *ops, size_t count,
                    struct alloc_pair_difference *difference_out);
/// One readable line, with a newline.
void alloc_pair_print_op(FILE *file, const struct alloc_pair_op *op);
void alloc_pair_print_setup(FILE *file, const struct alloc_pair_setup *setup);

#endif
