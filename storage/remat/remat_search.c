/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which storage to evict: the one with the lowest score, by looking at all, at some, or at the winner of a tournament.
 */
#include "storage/remat/planner.h"

#include <math.h>

#define ESTIMATE_ERROR 0x1p-48 /* of an estimate and of `best`, with room to spare */
#define TOURNAMENT_TRIES 16    /* winners whose scores turn out to be out of date, before one is taken as it is */

/* ---- scores ---- */

static int64_t remat_search_cost_of(struct varve_remat *remat, uint32_t number, int64_t *last_access)
{
    const struct remat_storage *storage = &remat->graph.storages[number];
    int64_t more;
    switch (remat->heuristic->cost) {
    case VARVE_REMAT_COST_NONE:
        return 1;
    case VARVE_REMAT_COST_LOCAL:
        return storage->compute;
    case VARVE_REMAT_COST_CLASSES:
        return storage->compute + classes_cost(&remat->classes, &remat->graph, storage);
    case VARVE_REMAT_COST_NEIGHBOURS:
        return storage->compute + regions_cost(&remat->regions, number, REACH_DOWN) +
               regions_cost(&remat->regions, number, REACH_UP);
    case VARVE_REMAT_COST_ANCESTORS:
        return storage->compute + regions_cost(&remat->regions, number, REACH_UP);
    case VARVE_REMAT_COST_UNION:
        remat->is_broken |= !regions_union_cost(&remat->regions, &remat->graph, number, &more, last_access);
        return storage->compute + more;
    }
    return 1;
}

static uint64_t remat_search_size_of(const struct varve_remat *remat, uint32_t number)
{
    uint64_t size = remat->graph.storages[number].size;
    if (remat->heuristic->has_free_neighbours) {
        size += remat->options.driver.free_neighbours(remat->options.driver.context, number);
    }
    return size;
}

static struct score score_of(struct varve_remat *remat, uint32_t number)
{
    const struct varve_remat_heuristic *heuristic = remat->heuristic;
    int64_t last_access = remat->graph.storages[number].last_access;
    struct score score = {.den = 1};
    remat->counters.heuristic_evals++;
    remat->counters.heuristic_accesses++;
    score.num = remat_search_cost_of(remat, number, &last_access);
    if (heuristic->has_size) {
        score.den *= remat_search_size_of(remat, number);
    }
    if (heuristic->has_staleness) {
        score.den *= (uint64_t)((int64_t)remat->clock - last_access);
    }
    return score;
}

double search_score(struct varve_remat *remat, uint32_t number)
{
    return score_round(score_of(remat, number));
}

/* ---- all of them ---- */

/* Whole numbers: no quotient rounds them. */
static uint32_t scan_numbers(struct varve_remat *remat, double *score_out)
{
    bool is_time = remat->heuristic->score == VARVE_REMAT_SCORE_LAST_ACCESS;
    uint32_t victim = VARVE_REMAT_NONE;
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < remat->pool.used; i++) {
        uint32_t number = remat->pool.slots[i];
        if (number == VARVE_REMAT_NONE) {
            continue;
        }
        int64_t score = score_of(remat, number).num;
        score = is_time ? remat->graph.storages[number].last_access : score;
        if (score <= best) {
            best = score;
            victim = number;
        }
        if (score == 0) {
            break;
        }
    }
    *score_out = (double)best;
    return victim;
}

/* `step` of 0: all. Otherwise a random number up to it is passed over each time. */
static uint32_t scan_quotients(struct varve_remat *remat, uint32_t step, double *score_out)
{
    uint32_t victim = VARVE_REMAT_NONE;
    double best = INFINITY;
    for (uint32_t i = 0; i < remat->pool.used; i += step == 0 ? 1 : 1 + twister_below(&remat->random, step)) {
        uint32_t number = remat->pool.slots[i];
        if (number == VARVE_REMAT_NONE) {
            continue;
        }
        struct score score = score_of(remat, number);
        double value = score.den == 0 ? INFINITY : score_estimate(score);
        if (value - fabs(value) * ESTIMATE_ERROR > best) {
            continue;
        }
        value = score_round(score);
        if (value <= best) {
            best = value;
            victim = number;
        }
        if (value == 0) {
            break;
        }
    }
    *score_out = best;
    return victim;
}

static uint32_t remat_search_sample(struct varve_remat *remat, double *score_out)
{
    pool_compact(&remat->pool, &remat->graph);
    uint32_t victim = scan_quotients(remat, (uint32_t)sqrt((double)remat->pool.count), score_out);
    return victim != VARVE_REMAT_NONE ? victim : remat->pool.slots[remat->pool.used - 1];
}

static uint32_t remat_search_any(struct varve_remat *remat)
{
    remat->counters.heuristic_evals++;
    remat->counters.heuristic_accesses++;
    pool_compact(&remat->pool, &remat->graph);
    return remat->pool.slots[twister_below(&remat->random, remat->pool.count)];
}

/* ---- the tournament ---- */

static struct tournament_entry remat_search_entry_of(struct varve_remat *remat, uint32_t number)
{
    const struct varve_remat_heuristic *heuristic = remat->heuristic;
    const struct remat_storage *storage = &remat->graph.storages[number];
    int64_t last_access = storage->last_access;
    if (heuristic->score == VARVE_REMAT_SCORE_LAST_ACCESS) {
        return (struct tournament_entry){.rate = 1, .since = (double)last_access};
    }
    remat->counters.heuristic_evals++;
    remat->counters.heuristic_accesses++;
    double cost = (double)remat_search_cost_of(remat, number, &last_access);
    double size = heuristic->has_size ? (double)remat_search_size_of(remat, number) : 1;
    /* What costs nothing comes before all others; it has no rate to speak of. */
    if (heuristic->has_staleness) {
        return (struct tournament_entry){.rate = cost > 0 ? size / cost : size * 0x1p62, .since = (double)last_access};
    }
    return (struct tournament_entry){.level = cost > 0 ? size / cost : size * 0x1p62};
}

void search_changed(struct varve_remat *remat, uint32_t number)
{
    if (remat->has_tournament && remat->graph.storages[number].pool_slot != VARVE_REMAT_NONE) {
        struct tournament_entry entry = remat_search_entry_of(remat, number);
        remat->is_broken |= !tournament_set(&remat->tournament, number, &entry, (double)remat->clock);
    }
}

void search_neighbours_changed(struct varve_remat *remat, uint32_t number)
{
    const struct number_list *neighbours = &remat->graph.storages[number].neighbours;
    for (uint32_t i = 0; remat->has_tournament && i < neighbours->count; i++) {
        search_changed(remat, neighbours->numbers[i]);
    }
}

void search_regions_changed(struct varve_remat *remat)
{
    for (unsigned d = 0; remat->has_tournament && d < REACH_DIRECTIONS; d++) {
        REACH_FOR_EACH(number, &remat->regions.ends[d])
        {
            search_changed(remat, number);
        }
    }
}

static uint32_t winner(struct varve_remat *remat, double *score_out)
{
    uint32_t number = VARVE_REMAT_NONE;
    double priority = 0;
    for (int i = 0; i < TOURNAMENT_TRIES; i++) {
        number = tournament_winner(&remat->tournament, (double)remat->clock);
        struct tournament_entry entry = remat_search_entry_of(remat, number);
        priority = tournament_priority(&entry, (double)remat->clock);
        /* A class's cost has changed without a word: enter it again, and see who wins now. */
        if (priority >= tournament_entered(&remat->tournament, number, (double)remat->clock)) {
            break;
        }
        remat->is_broken |= !tournament_set(&remat->tournament, number, &entry, (double)remat->clock);
    }
    *score_out = priority > 0 ? 1 / priority : INFINITY;
    return number;
}

/* ---- the door ---- */

uint32_t search_victim(struct varve_remat *remat, double *score_out)
{
    const struct varve_remat_heuristic *heuristic = remat->heuristic;
    *score_out = NAN;
    if (remat->pool.count == 0) {
        return VARVE_REMAT_NONE;
    }
    if (heuristic->score == VARVE_REMAT_SCORE_RANDOM) {
        return remat_search_any(remat);
    }
    switch (remat->options.search) {
    case VARVE_REMAT_SEARCH_SAMPLE:
        return remat_search_sample(remat, score_out);
    case VARVE_REMAT_SEARCH_KINETIC:
        return winner(remat, score_out);
    case VARVE_REMAT_SEARCH_SCAN:
        break;
    }
    return heuristic->score == VARVE_REMAT_SCORE_LAST_ACCESS || (!heuristic->has_size && !heuristic->has_staleness)
               ? scan_numbers(remat, score_out)
               : scan_quotients(remat, 0, score_out);
}
