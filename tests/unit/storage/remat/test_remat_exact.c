/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planners that do as the published simulator does: random programs under each heuristic, search and dealloc policy.
 * Its decisions, ties among them, are compared in tests/conformance; here, values, counters, events, and that every
 * victim has the lowest score.
 * Costs: 3 s
 */
#include "programs.h"

static bool is_served(const struct varve_remat_heuristic *heuristic, enum varve_remat_search search)
{
    bool is_random = heuristic->score == VARVE_REMAT_SCORE_RANDOM, is_union = heuristic->cost == VARVE_REMAT_COST_UNION;
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
                                                  .stumbles = i / 9 == 1,
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

TEST(test_programs)
{
    play_all(false, false);
}

TEST(test_views)
{
    play_all(true, false);
}

TEST(test_wide_views)
{
    play_all(true, true);
}

static void expect_open(const char *heuristic, enum varve_remat_search search, bool is_live,
                        enum varve_remat_dealloc dealloc, int expected)
{
    struct varve_remat_options options;
    struct varve_message message = {.text = ""};
    varve_remat_options_init(&options);
    options.heuristic = varve_remat_heuristic_find(heuristic);
    options.search = search;
    options.is_live = is_live;
    options.dealloc = dealloc;
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, &message), expected);
    assert_true((remat == NULL) == (expected != 0) && (message.text[0] != '\0') == (expected != 0));
    varve_remat_close(remat);
}

TEST(test_refused_options)
{
    const int invalid = VARVE_ERROR_INVALID;
    expect_open("dtr", VARVE_REMAT_SEARCH_KINETIC, true, VARVE_REMAT_DEALLOC_EAGER, 0);
    expect_open("lru", VARVE_REMAT_SEARCH_KINETIC, false, VARVE_REMAT_DEALLOC_IGNORE, 0);
    expect_open("lru", VARVE_REMAT_SEARCH_SAMPLE, false, VARVE_REMAT_DEALLOC_EAGER, invalid);
    expect_open("random", VARVE_REMAT_SEARCH_SAMPLE, false, VARVE_REMAT_DEALLOC_EAGER, invalid);
    expect_open("dtr-union", VARVE_REMAT_SEARCH_KINETIC, false, VARVE_REMAT_DEALLOC_EAGER, invalid);
    expect_open("window", VARVE_REMAT_SEARCH_SCAN, false, VARVE_REMAT_DEALLOC_EAGER, invalid);
    expect_open("free-neighbours", VARVE_REMAT_SEARCH_SCAN, false, VARVE_REMAT_DEALLOC_EAGER, invalid);
    expect_open("dtr", VARVE_REMAT_SEARCH_SCAN, true, VARVE_REMAT_DEALLOC_BANISH, invalid);
    assert_null(varve_remat_heuristic_find("dt"));
}

/* Nothing changes, and the planner goes on. */
static void expect_refused(struct varve_remat *remat, struct varve_remat_op op)
{
    struct varve_message message = {.text = ""};
    struct varve_remat_counters before, after;
    varve_remat_get_counters(remat, &before);
    uint32_t outputs[2];
    assert_int_equal(varve_remat_compute(remat, &op, outputs, &message), VARVE_ERROR_INVALID);
    assert_true(message.text[0] != '\0');
    varve_remat_get_counters(remat, &after);
    assert_memory_equal(&before, &after, sizeof(before));
}

TEST(test_refused_operators)
{
    uint32_t output = 0;
    const struct varve_remat_op good = {
        .sizes = (const uint64_t[]){1, 2}, .aliases = (const int32_t[]){-1, -1}, .output_count = 2, .cost_ns = 5};
    struct varve_remat_op op = good;
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.remat_limit_ns = 9;
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, NULL), 0);
    op.output_count = 0;
    expect_refused(remat, op);
    op = good;
    op.cost_ns = UINT64_C(1) << 62;
    expect_refused(remat, op);
    op = good;
    op.sizes = (const uint64_t[]){1, UINT64_C(1) << 62};
    expect_refused(remat, op);
    op = good;
    op.inputs = &output;
    op.input_count = 1;
    expect_refused(remat, op); /* there is no tensor yet */
    uint32_t outputs[2];
    assert_int_equal(varve_remat_compute(remat, &good, outputs, NULL), 0);
    op.aliases = (const int32_t[]){-1, 1};
    expect_refused(remat, op);
    for (unsigned i = 0; i < 2; i++) { /* the second time recomputation costs more than the limit */
        assert_int_equal(varve_remat_evict(remat, outputs[0], NULL), 0);
        assert_int_equal(varve_remat_materialize(remat, outputs[0], NULL), i == 0 ? 0 : VARVE_ERROR_FULL);
    }
    varve_remat_close(remat);
}
