/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capacities are counted in steps. Each setting has a search of its own, and all searches go in rounds: each wants some
 * probes, as many that all processors have work; they are played together; the answers are entered. A search
 *   1. looks for a capacity that passes, from the unlimited peak upwards;
 *   2. narrows the gap between its lowest pass and the highest failure below that until nothing lies between;
 *   3. checks FRONTIER_CHECKS capacities on either side (or all of them). A pass below takes it back to 2;
 *   4. narrows the gap between the highest failure above the frontier, if there is one, and the lowest pass above that.
 */
#include "analysis/whatif/frontier_search.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/parallel.h"
#include "analysis/base/number_format.h"
#include "analysis/base/progress.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define GROWTH_STEPS 16
#define GROWTH_MAX 8 /* times the unlimited peak */

enum verdict { UNKNOWN, FAILS, PASSES, WANTED };

struct search {
    const struct whatif_setting *setting;
    struct frontier *frontier;
    uint64_t first;    /* step below which nothing can pass */
    uint64_t last;     /* highest step that is looked at */
    uint8_t *verdicts; /* of step `first` + i: enum verdict */
    uint64_t checked;  /* frontier whose surroundings were checked; 0: none */
    bool is_done;
};

/* Probes of a round. */
struct round {
    struct whatif_setting *settings;
    struct search **searches;
    uint64_t *steps;
    size_t count, setting_capacity, search_capacity, step_capacity;
};

static enum verdict verdict_of(const struct search *search, uint64_t step)
{
    return step < search->first ? FAILS : (enum verdict)search->verdicts[step - search->first];
}

static void want(struct search *search, uint64_t step, bool served_only, struct round *round)
{
    if (verdict_of(search, step) != UNKNOWN) {
        return;
    }
    search->verdicts[step - search->first] = WANTED;
    round->settings = memory_grow(round->settings, &round->setting_capacity, round->count, sizeof(*round->settings));
    round->searches = memory_grow(round->searches, &round->search_capacity, round->count, sizeof(struct search *));
    round->steps = memory_grow(round->steps, &round->step_capacity, round->count, sizeof(*round->steps));
    round->settings[round->count] = *search->setting;
    round->settings[round->count].memory_limit = step * FRONTIER_STEP;
    round->settings[round->count].stop_at_oom = true;
    round->settings[round->count].served_only = served_only;
    round->searches[round->count] = search;
    round->steps[round->count++] = step;
}

/* Up to `count` steps between `low` and `high`, evenly spaced, without these two. */
static void want_between(struct search *search, uint64_t low, uint64_t high, size_t count, bool served_only,
                         struct round *round)
{
    uint64_t gap = high - low;
    for (size_t i = 1; i <= count && gap > 1; i++) {
        uint64_t step = low + (uint64_t)((double)gap * (double)i / (double)(count + 1) + 0.5);
        step = step <= low ? low + 1 : step >= high ? high - 1 : step;
        want(search, step, served_only, round);
    }
}

/* Lowest step from `from` to the last one with that verdict; 0: none. */
static uint64_t lowest(const struct search *search, uint64_t from, enum verdict verdict)
{
    for (uint64_t step = from; step <= search->last; step++) {
        if (verdict_of(search, step) == verdict) {
            return step;
        }
    }
    return 0;
}

/* Highest step from `to` down to `from` that fails; `from` - 1: none. */
static uint64_t highest_failure(const struct search *search, uint64_t from, uint64_t to)
{
    while (to >= from && verdict_of(search, to) != FAILS) {
        to--;
    }
    return to;
}

/* Nothing has passed yet: the unlimited peak, then more. A limit counts the size of a whole segment where an expandable
 * one is mapped in parts, and may let blocks be collected that were used again without it. */
static void want_more(struct search *search, bool served_only, struct round *round)
{
    uint64_t peak = (uint64_t)search->frontier->free.figures.peak_reserved / FRONTIER_STEP + 1;
    uint64_t last = search->last + search->last / 16 + GROWTH_STEPS;
    if (verdict_of(search, search->last) == UNKNOWN) {
        want(search, search->last, served_only, round);
        return;
    }
    if (last > GROWTH_MAX * peak) {
        search->is_done = true;
        search->frontier->error =
            varve_message_set(&search->frontier->message, VARVE_ERROR_NO_MEMORY,
                              "a request fails under every limit up to %s, and without a limit none does",
                              BYTES(search->last * FRONTIER_STEP));
        return;
    }
    search->verdicts = memory_resize(search->verdicts, last - search->first + 1);
    memset(search->verdicts + (search->last - search->first) + 1, UNKNOWN, last - search->last);
    search->last = last;
    want(search, last, served_only, round);
}

/* The next probes of a search, or its end. */
static void next_probes(struct search *search, const struct frontier_options *options, size_t at_once,
                        struct round *round)
{
    uint64_t pass = lowest(search, search->first, PASSES);
    size_t checks = options->is_exhaustive ? SIZE_MAX : FRONTIER_CHECKS;
    bool served_only = !options->with_failed;
    if (pass == 0) {
        want_more(search, served_only, round);
        return;
    }
    uint64_t below = highest_failure(search, search->first, pass);
    if (pass - below > 1) {
        want_between(search, below, pass, at_once, served_only, round);
        return;
    }
    if (search->checked != pass) {
        search->checked = pass;
        want_between(search, search->first - 1, below, checks < below ? checks : below, served_only, round);
        want_between(search, pass, search->last, checks < search->last ? checks : search->last, served_only, round);
        return;
    }
    uint64_t above = highest_failure(search, pass, search->last);
    uint64_t next = above < pass ? pass : lowest(search, above, PASSES);
    if (above >= pass && next - above > 1) {
        want_between(search, above, next, at_once, served_only, round);
        return;
    }
    search->is_done = true;
    search->frontier->bytes = pass * FRONTIER_STEP;
    search->frontier->fails_above = above < pass ? 0 : above * FRONTIER_STEP;
    search->frontier->safe = next * FRONTIER_STEP;
}

static void frontier_search_enter(struct search *search, uint64_t step, const struct whatif_outcome *outcome)
{
    struct frontier *frontier = search->frontier;
    bool passes = outcome->error == VARVE_OK && outcome->result.ooms == 0;
    uint64_t pass = lowest(search, search->first, PASSES);
    frontier->probes++;
    if (outcome->error != VARVE_OK) {
        frontier->error = outcome->error;
        frontier->message = outcome->message;
        search->is_done = true;
    }
    if (passes && (pass == 0 || step < pass)) {
        frontier->at = *outcome;
    }
    search->verdicts[step - search->first] = passes ? PASSES : FAILS;
}

/* One round of all searches; false when none wants to know anything more. */
static bool play_round(struct whatif *whatif, struct search *searches, size_t count,
                       const struct frontier_options *options)
{
    unsigned threads = parallel_threads(options->threads);
    size_t open = 0;
    for (size_t i = 0; i < count; i++) {
        open += searches[i].is_done ? 0 : 1;
    }
    struct round round = {0};
    for (size_t i = 0; i < count; i++) {
        /* a search that was checked and found nothing ends at once; others go on until they want something */
        for (size_t before = round.count; !searches[i].is_done && round.count == before;) {
            next_probes(&searches[i], options, (threads + open - 1) / open, &round);
        }
    }
    struct whatif_outcome *outcomes = memory_resize(NULL, (round.count + 1) * sizeof(*outcomes));
    whatif_play(whatif, round.settings, round.count, threads, outcomes, NULL);
    for (size_t i = 0; i < round.count; i++) {
        frontier_search_enter(round.searches[i], round.steps[i], &outcomes[i]);
    }
    free(outcomes);
    free(round.settings);
    free(round.searches);
    free(round.steps);
    return round.count > 0;
}

static void begin_search(struct search *search, const struct whatif_demand *demand, bool with_failed)
{
    struct frontier *frontier = search->frontier;
    uint64_t load = with_failed ? demand->device_load_all : demand->device_load;
    search->first = (load + FRONTIER_STEP - 1) / FRONTIER_STEP;
    search->first = search->first == 0 ? 1 : search->first;
    if (frontier->error == VARVE_OK && frontier->free.result.ooms > 0) {
        frontier->error =
            varve_message_set(&frontier->message, VARVE_ERROR_NO_MEMORY, "a request fails even without a limit");
    }
    search->is_done = frontier->error != VARVE_OK;
    if (!search->is_done) {
        uint64_t peak = (uint64_t)frontier->free.figures.peak_reserved;
        search->last = (peak + FRONTIER_STEP - 1) / FRONTIER_STEP;
        search->last = search->last < search->first ? search->first : search->last;
        search->verdicts = memory_resize(NULL, search->last - search->first + 1);
        memset(search->verdicts, UNKNOWN, search->last - search->first + 1);
    }
}

static void play_unlimited(struct whatif *whatif, const struct whatif_setting *settings, size_t count,
                           const struct frontier_options *options, struct frontier *frontiers)
{
    struct whatif_setting *unlimited = memory_resize(NULL, (count + 1) * sizeof(*unlimited));
    struct whatif_outcome *outcomes = memory_resize(NULL, (count + 1) * sizeof(*outcomes));
    for (size_t i = 0; i < count; i++) {
        unlimited[i] = settings[i];
        unlimited[i].memory_limit = 0;
        unlimited[i].stop_at_oom = false;
        unlimited[i].served_only = !options->with_failed;
    }
    whatif_play(whatif, unlimited, count, options->threads, outcomes, options->progress);
    for (size_t i = 0; i < count; i++) {
        frontiers[i] = (struct frontier){.free = outcomes[i], .error = outcomes[i].error};
        frontiers[i].message = outcomes[i].message;
    }
    free(unlimited);
    free(outcomes);
}

void frontier_find(struct whatif *whatif, const struct whatif_demand *demand, const struct whatif_setting *settings,
                   size_t count, const struct frontier_options *options, struct frontier *frontiers)
{
    struct search *searches = memory_resize(NULL, (count + 1) * sizeof(*searches));
    play_unlimited(whatif, settings, count, options, frontiers);
    for (size_t i = 0; i < count; i++) {
        searches[i] = (struct search){.setting = &settings[i], .frontier = &frontiers[i]};
        begin_search(&searches[i], demand, options->with_failed);
    }
    uint64_t rounds = 0;
    while (play_round(whatif, searches, count, options)) {
        if (options->progress != NULL) {
            progress_step(options->progress, "looking for the smallest capacity", ++rounds, 0);
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(searches[i].verdicts);
    }
    free(searches);
}
