/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Victims that lie beside each other: the run of pieces of the allocator's memory, free or evictable, that serves a
 * request at the smallest sum of scores. Two ends that move forward over the pieces in the order of addresses.
 *
 * Source: Zhang et al., Coop: Memory is not a Commodity (NeurIPS 2023), section 4.1.
 */
#include "storage/remat/planner.h"

#include <math.h>

static double score_of_piece(struct varve_remat *remat, const struct varve_remat_piece *piece)
{
    return piece->is_free ? 0 : search_score(remat, piece->storage);
}

static bool is_usable(const struct varve_remat *remat, const struct varve_remat_piece *piece)
{
    return piece->is_free ||
           (piece->storage != VARVE_REMAT_NONE && remat->graph.storages[piece->storage].pool_slot != VARVE_REMAT_NONE);
}

/* Pieces from first on. Their scores are summed up from both ends of `middle`: before it for each beginning, in
 * remat->sums. So nothing is ever taken out of a sum, where an infinite score would leave nothing of the others, and a
 * great one next to nothing. */
struct run {
    size_t first, middle;
    double behind;
    uint64_t bytes;
};

static double sum_of(const struct varve_remat *remat, const struct run *run)
{
    return run->behind + (run->first < run->middle ? remat->sums[run->first] : 0);
}

static void drop_first(struct varve_remat *remat, const struct varve_remat_piece *pieces, struct run *run, size_t end)
{
    double sum = 0;
    if (run->first == run->middle) {
        for (size_t i = end; i > run->first; i--) {
            sum += score_of_piece(remat, &pieces[i - 1]);
            remat->sums[i - 1] = sum;
        }
        run->middle = end;
        run->behind = 0;
    }
    run->bytes -= pieces[run->first].bytes;
    run->first++;
}

bool search_window(struct varve_remat *remat, uint64_t bytes, const struct varve_remat_piece **pieces_out,
                   size_t *first_out, size_t *end_out)
{
    const struct varve_remat_piece *pieces;
    size_t count = remat->options.driver.layout(remat->options.driver.context, bytes, &pieces);
    *pieces_out = pieces;
    if (!growth_reserve(&remat->sums, &remat->sum_capacity, count, sizeof(*remat->sums))) {
        return false;
    }
    double best = INFINITY;
    struct run run = {0};
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].begins_segment || !is_usable(remat, &pieces[i])) {
            size_t next = i + !is_usable(remat, &pieces[i]);
            run = (struct run){.first = next, .middle = next};
        }
        if (!is_usable(remat, &pieces[i])) {
            continue;
        }
        run.bytes += pieces[i].bytes;
        run.behind += score_of_piece(remat, &pieces[i]);
        while (run.first < i && run.bytes - pieces[run.first].bytes >= bytes) {
            drop_first(remat, pieces, &run, i + 1);
        }
        if (run.bytes >= bytes && sum_of(remat, &run) < best) {
            best = sum_of(remat, &run);
            *first_out = run.first;
            *end_out = i + 1;
        }
    }
    return best < INFINITY;
}
