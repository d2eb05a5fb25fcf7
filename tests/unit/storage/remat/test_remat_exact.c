/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planners that do as the published simulator does: random programs under each heuristic, search and dealloc policy. Its decisions are
 * compared in tests/conformance; here, values, counters, events, and that every victim has the lowest score.
 */
#include "programs.h"

static bool is_served(const struct varve_remat_heuristic *heuristic, enum varve_remat_search search)
{
    bool is_random = heuristic->score == VARVE_REMAT_SCORE_RANDOM,
         is_union = heuristic->cost == VARVE_REMAT_COST_UNION;

    if (heuristic->is_window || heuristic->has_free_neighbours) {
        return false;
    }
    return search == VARVE_REMAT_SEARCH_SCAN ||
           (!is_random && !is_union &&
            (search == VARVE_REMAT_SEARCH_KINETIC || heuristic->score != VARVE_REMAT_SCORE_LAST_ACCESS));
}

/* A class's cost may be another one than the tournament was told. */
static bool is_certain(const struct varve_remat_heuristic *heuristic, enum varve_remat_search search)
{
    return heuristic->score != VARVE_REMAT_SCORE_RANDOM &&
           (search == VARVE_REMAT_SEARCH_SCAN ||
            (search == VARVE_REMAT_SEARCH_KINETIC && heuristic->cost != VARVE_REMAT_COST_CLASSES));
}

static void play_all(bool has_views, bool has_wide_views)
{
    uint64_t seed = test_first_seed(1), failures = 0, programs = 0;

    for (const struct varve_remat_heuristic *h = varve_remat_heuristics(); h->name != NULL; h++) {
        for (unsigned i = 0; i < 36; i++) {
            struct remat_world_options options = {.heuristic = h->name,
                                                  .dealloc = (enum varve_remat_dealloc)(i / 3 % 3),
                                                  .search = (enum varve_remat_search)(i % 3),
                                                  .budget = 8000 + 4000 * (i / 9),
                                                  .seed = seed,
                                                  .has_views = has_views,
                                                  .has_wide_views = has_wide_views,
                                                  .check_every = 1};

            if (is_served(h, options.search)) {
                options.checks_victims = is_certain(h, options.search);
                failures += programs_play(&options, seed++, 300);
                programs++;
            }
        }
    }
    print_message("%" PRIu64 " programs, %" PRIu64 " ended by a failure\n", programs, failures);
    assert_true(failures < programs);
}

static void test_programs(void **state)
{
    (void)state;
    play_all(false, false);
}

static void test_views(void **state)
{
    (void)state;
    play_all(true, false);
}

static void test_wide_views(void **state)
{
    (void)state;
    play_all(true, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_wide_views),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
