/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heuristics as data, and scores as numbers: correctly rounded quotients of integers, as Python's int / int is, so that
 * decisions are those of the published simulator.
 */
#ifndef VARVE_STORAGE_REMAT_REMAT_SCORE_H
#define VARVE_STORAGE_REMAT_REMAT_SCORE_H

#include "storage/remat.h"

__extension__ typedef unsigned __int128 score_wide;

/* num / den; den 0: infinite. */
struct score {
    int64_t num;
    score_wide den;
};

/// The nearest double to num / den, ties to even; infinite for den 0.
double score_round(struct score score);
/// Within 2^-50 of its size.
static inline double score_estimate(struct score score)
{
    return (double)score.num / (double)score.den;
}

#endif
