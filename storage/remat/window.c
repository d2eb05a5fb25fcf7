/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Victims that lie beside each other: the run of pieces of the allocator's memory, free or evictable, that serves a request at the
 * smallest sum of scores. Two ends that move forward over the pieces in the order of addresses.
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
    return piece->is_free || (piece->storage != VARVE_REMAT_NONE &&
                              remat->graph.storages[piece->storage].pool_slot != VARVE_REMAT_NONE);
}

bool search_window(struct varve_remat *remat, uint64_t bytes, const struct varve_remat_piece **pieces_out,
                   size_t *first_out, size_t *end_out)
{
    const struct varve_remat_piece *pieces;
    size_t count = remat->options.driver.layout(remat->options.driver.context, bytes, &pieces), first = 0;
    double sum = 0, best = INFINITY;
    uint64_t size = 0;

    *pieces_out = pieces;
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].begins_segment || !is_usable(remat, &pieces[i])) {
            size = 0;
            sum = 0;
            first = i + !is_usable(remat, &pieces[i]);
        }
        if (!is_usable(remat, &pieces[i])) {
            continue;
        }
        size += pieces[i].bytes;
        sum += score_of_piece(remat, &pieces[i]);
        while (size - pieces[first].bytes >= bytes) {
            size -= pieces[first].bytes;
            sum -= score_of_piece(remat, &pieces[first]);
            first++;
        }
        if (size >= bytes && sum < best) {
            best = sum;
            *first_out = first;
            *end_out = i + 1;
        }
    }
    return best < INFINITY;
}
