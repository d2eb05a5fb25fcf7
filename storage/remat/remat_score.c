/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/planner.h"

#include <math.h>
#include <string.h>

#define MANTISSA 53
#define EXACT (UINT64_C(1) << MANTISSA)

/* Names as in simrd's classes: Ab… are its ablations. */
static const struct varve_remat_heuristic heuristics[] = {
    {.name = "dtr",
     .cost = VARVE_REMAT_COST_NEIGHBOURS,
     .has_size = true,
     .has_staleness = true,
     .summary = "cost with evicted neighbours / (size * staleness)"},
    {.name = "dtr-eq",
     .cost = VARVE_REMAT_COST_CLASSES,
     .has_size = true,
     .has_staleness = true,
     .summary = "the same with neighbourhoods approximated by classes: nearly as good, far cheaper"},
    {.name = "dtr-local",
     .cost = VARVE_REMAT_COST_LOCAL,
     .has_size = true,
     .has_staleness = true,
     .summary = "own cost / (size * staleness)"},
    {.name = "dtr-union",
     .cost = VARVE_REMAT_COST_UNION,
     .has_size = true,
     .has_staleness = true,
     .summary = "as dtr, each neighbour once, staleness of the most recent of them; found anew for each score"},
    {.name = "msps",
     .cost = VARVE_REMAT_COST_ANCESTORS,
     .has_size = true,
     .summary = "cost with the evicted storages that it needs / size (Capuchin)"},
    {.name = "lru", .score = VARVE_REMAT_SCORE_LAST_ACCESS, .summary = "least recently used"},
    {.name = "size", .has_size = true, .summary = "largest"},
    {.name = "random", .score = VARVE_REMAT_SCORE_RANDOM, .summary = "any, all with equal chance"},
    {.name = "free-neighbours",
     .cost = VARVE_REMAT_COST_CLASSES,
     .has_size = true,
     .has_staleness = true,
     .has_free_neighbours = true,
     .summary = "as dtr-eq, size with the free bytes beside the block (MegEngine)"},
    {.name = "window",
     .cost = VARVE_REMAT_COST_CLASSES,
     .has_staleness = true,
     .is_window = true,
     .summary = "cheapest run of neighbouring blocks that serves the request (Coop)"},
    {.name = "ab-e", .cost = VARVE_REMAT_COST_NEIGHBOURS, .summary = "ablation of dtr: cost alone"},
    {.name = "ab-e-size",
     .cost = VARVE_REMAT_COST_NEIGHBOURS,
     .has_size = true,
     .summary = "ablation of dtr: without staleness"},
    {.name = "ab-e-stale",
     .cost = VARVE_REMAT_COST_NEIGHBOURS,
     .has_staleness = true,
     .summary = "ablation of dtr: without size"},
    {.name = "ab-eq", .cost = VARVE_REMAT_COST_CLASSES, .summary = "ablation of dtr-eq: cost alone"},
    {.name = "ab-eq-size",
     .cost = VARVE_REMAT_COST_CLASSES,
     .has_size = true,
     .summary = "ablation of dtr-eq: without staleness"},
    {.name = "ab-eq-stale",
     .cost = VARVE_REMAT_COST_CLASSES,
     .has_staleness = true,
     .summary = "ablation of dtr-eq: without size"},
    {.name = "ab-local", .cost = VARVE_REMAT_COST_LOCAL, .summary = "ablation of dtr-local: cost alone"},
    {.name = "ab-local-size",
     .cost = VARVE_REMAT_COST_LOCAL,
     .has_size = true,
     .summary = "ablation of dtr-local: without staleness"},
    {.name = "ab-local-stale",
     .cost = VARVE_REMAT_COST_LOCAL,
     .has_staleness = true,
     .summary = "ablation of dtr-local: without size"},
    {.name = "ab-size-stale", .has_size = true, .has_staleness = true, .summary = "ablation: without cost"},
    {.name = "ab-stale", .has_staleness = true, .summary = "ablation: staleness alone"},
    {.name = NULL},
};

const struct varve_remat_heuristic *varve_remat_heuristics(void)
{
    return heuristics;
}

const struct varve_remat_heuristic *varve_remat_heuristic_find(const char *name)
{
    for (const struct varve_remat_heuristic *h = heuristics; h->name != NULL; h++) {
        if (strcmp(h->name, name) == 0) {
            return h;
        }
    }
    return NULL;
}

static int width(score_wide value)
{
    uint64_t high = (uint64_t)(value >> 64), low = (uint64_t)value;
    return high != 0 ? 128 - __builtin_clzll(high) : low != 0 ? 64 - __builtin_clzll(low) : 0;
}

/* Long division to three bits more than a double has, the last one set if anything is left: the conversion rounds once.
 * The divisor is below 2^126. */
static double remat_score_divide(uint64_t num, score_wide den)
{
    score_wide rest = num;
    int exponent = width(num) - width(den);
    if (exponent < 0) {
        rest <<= -exponent;
    } else {
        den <<= exponent;
    }
    if (rest < den) {
        rest <<= 1;
        exponent--;
    }
    uint64_t quotient = 0;
    for (int i = 0; i < MANTISSA + 3; i++) {
        quotient <<= 1;
        if (rest >= den) {
            rest -= den;
            quotient |= 1;
        }
        rest <<= 1;
    }
    return ldexp((double)(quotient | (rest != 0)), exponent - (MANTISSA + 2));
}

double score_round(struct score score)
{
    uint64_t size = score.num < 0 ? -(uint64_t)score.num : (uint64_t)score.num;
    if (score.den == 0) {
        return INFINITY;
    }
    if (size <= EXACT && score.den <= EXACT) {
        return (double)score.num / (double)score.den;
    }
    double quotient = remat_score_divide(size, score.den);
    return score.num < 0 ? -quotient : quotient;
}
