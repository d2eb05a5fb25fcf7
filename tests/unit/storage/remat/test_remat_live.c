/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live planners: random programs whose values show whether each recomputation was right, whose runs fail, and of
 * which nothing is left at the end; long ones that forget as they go; chains of any depth.
 * Costs: 9 s
 */
#include "programs.h"

#include <stdlib.h>
#include <string.h>

static const char *const heuristics[] = {"dtr", "dtr-eq", "dtr-local", "dtr-union", "msps",
                                         "lru", "size",   "random",    "ab-e",      "ab-eq-stale"};
#define HEURISTICS (sizeof(heuristics) / sizeof(heuristics[0]))

/* Budgets from what an operator hardly goes into to easy ones; with runs that fail; with views of each kind. */
static void play_all(enum varve_remat_search search, uint64_t steps)
{
    uint64_t seed = test_first_seed(1);
    for (unsigned i = 0; i < HEURISTICS; i++) {
        for (unsigned j = 0; j < 4; j++) {
            struct remat_world_options options = {.heuristic = heuristics[i],
                                                  .search = search,
                                                  .budget = 2200 + 3000 * j,
                                                  .seed = seed,
                                                  .is_live = true,
                                                  .has_views = j != 0,
                                                  .has_wide_views = j > 1,
                                                  .fails = j % 2 == 1,
                                                  .stumbles = j > 1,
                                                  .check_every = 1};
            const struct varve_remat_heuristic *heuristic = varve_remat_heuristic_find(heuristics[i]);
            if (search == VARVE_REMAT_SEARCH_SCAN ||
                (heuristic->score == VARVE_REMAT_SCORE_QUOTIENT && heuristic->cost != VARVE_REMAT_COST_UNION)) {
                uint64_t failures = programs_play(&options, seed++, steps);
                assert_true(failures > 0 || !options.fails);
            }
        }
    }
}

TEST(test_programs)
{
    play_all(VARVE_REMAT_SEARCH_SCAN, (uint64_t)test_rounds(400, 1500));
}

TEST(test_programs_sample)
{
    play_all(VARVE_REMAT_SEARCH_SAMPLE, (uint64_t)test_rounds(300, 800));
}

TEST(test_programs_kinetic)
{
    play_all(VARVE_REMAT_SEARCH_KINETIC, (uint64_t)test_rounds(300, 800));
}

/* A window of tensors moves over up to 50,000 operators, some of them views of a constant: what the planner keeps
 * does not grow. */
TEST(test_forgets)
{
    static const struct {
        const char *heuristic;
        uint64_t operators;
    } programs[] = {{"dtr", 12000}, {"dtr-eq", 50000}, {"lru", 5000}};
    for (unsigned i = 0; i < 3; i++) {
        struct remat_world_options options = {.heuristic = programs[i].heuristic,
                                              .budget = 12000,
                                              .is_live = true,
                                              .has_views = true,
                                              .check_every = 1000};
        struct remat_world world;
        uint64_t random = 7, warm = 0, most = 0;
        assert_int_equal(remat_world_open(&world, &options, programs_choose, &random), 0);
        struct varve_remat_counters c;
        while (world.serial < programs[i].operators && remat_world_step(&world)) {
            if (world.serial % 1000 == 0) {
                uint64_t *to = world.serial < programs[i].operators / 4 ? &warm : &most;
                varve_remat_get_counters(world.remat, &c);
                *to = c.metadata_bytes > *to ? c.metadata_bytes : *to;
            }
        }
        assert_string_equal(world.wrong, "");
        assert_true(remat_world_finish(&world));
        remat_world_close(&world);
        print_message("%s: at most %" PRIu64 " bytes in the first quarter, %" PRIu64 " later\n", programs[i].heuristic,
                      warm, most);
        assert_true(most <= 3 * warm);
    }
}

static struct varve_remat *open_live(const char *heuristic, uint64_t budget)
{
    struct varve_remat_options options;
    varve_remat_options_init(&options);
    options.heuristic = varve_remat_heuristic_find(heuristic);
    options.budget = budget;
    options.is_live = true;
    struct varve_remat *remat;
    assert_int_equal(varve_remat_open(&options, &remat, NULL), 0);
    return remat;
}

static uint32_t make(struct varve_remat *remat, const uint32_t *input, uint64_t bytes, bool is_view)
{
    struct varve_remat_op op = {.inputs = input,
                                .sizes = &bytes,
                                .aliases = (const int32_t[]){is_view ? 0 : -1},
                                .input_count = input != NULL,
                                .output_count = 1,
                                .cost_ns = 1};
    uint32_t output;
    assert_int_equal(varve_remat_compute(remat, &op, &output, NULL), 0);
    return output;
}

/* Views of a storage that lives on are forgotten one by one. */
TEST(test_views_of_a_constant)
{
    struct varve_remat *remat = open_live("dtr", VARVE_REMAT_UNLIMITED);
    uint32_t constant = make(remat, NULL, 100, false);
    varve_remat_drop_recipe(remat, constant);
    struct varve_remat_counters first, last;
    for (unsigned i = 0; i < 10000; i++) {
        uint32_t view = make(remat, &constant, 0, true), used = make(remat, &view, 10, false);
        varve_remat_release(remat, view); /* what is made of it still needs it */
        assert_true(varve_remat_is_defined(remat, view));
        varve_remat_release(remat, used);
        if (i == 10) {
            varve_remat_get_counters(remat, &first);
        }
    }
    varve_remat_get_counters(remat, &last);
    assert_int_equal(last.metadata_bytes, first.metadata_bytes);
    assert_int_equal(last.storages, 1);
    varve_remat_unpin(remat, constant);
    assert_int_equal(varve_remat_evict(remat, constant, NULL), VARVE_ERROR_BUSY);
    assert_int_equal(varve_remat_check(remat, NULL), 0);
    varve_remat_close(remat);
}

/* A view that is pinned needs none of what its storage was made from. */
TEST(test_pinned_views)
{
    static const char *const names[] = {"dtr", "dtr-eq"};
    for (unsigned i = 0; i < 2; i++) {
        struct varve_remat *remat = open_live(names[i], VARVE_REMAT_UNLIMITED);
        uint32_t weights = make(remat, NULL, 100, false);
        struct varve_remat_counters c;
        for (unsigned j = 0; j < 100; j++) {
            uint32_t next = make(remat, &weights, 100, false), view = make(remat, &next, 0, true);
            uint32_t other = make(remat, &next, 0, true);
            assert_int_equal(varve_remat_evict(remat, next, NULL), 0);
            assert_int_equal(varve_remat_materialize(remat, view, NULL), 0);
            varve_remat_drop_recipe(remat, view);
            varve_remat_release(remat, weights);
            varve_remat_release(remat, next);
            assert_int_equal(varve_remat_materialize(remat, other, NULL), 0);
            varve_remat_release(remat, other);
            weights = view;
            varve_remat_get_counters(remat, &c);
            assert_int_equal(c.storages, 1);
            assert_int_equal(c.used_bytes, 100);
            assert_int_equal(varve_remat_check(remat, NULL), 0);
        }
        varve_remat_release(remat, weights);
        varve_remat_get_counters(remat, &c);
        assert_int_equal(c.storages, 0);
        varve_remat_close(remat);
    }
}

/* Sums of costs end with an error, however they grow: by operators, by their outputs, by recomputation. */
TEST(test_sums_of_costs)
{
    const uint64_t sizes[] = {1, 1, 1, 1};
    const int32_t aliases[] = {-1, -1, -1, -1};
    struct varve_remat_op op = {.sizes = sizes, .aliases = aliases, .output_count = 4};
    struct varve_remat_counters c;
    uint32_t outputs[4], last, more;
    int error = 0;
    for (unsigned i = 0; i < 2; i++) {
        struct varve_remat *remat = open_live(i == 0 ? "dtr" : "dtr-eq", VARVE_REMAT_UNLIMITED);
        op.cost_ns = UINT64_C(1) << 59;
        op.input_count = 0;
        assert_int_equal(varve_remat_compute(remat, &op, outputs, NULL), VARVE_ERROR_INVALID);
        op.cost_ns--;
        assert_int_equal(varve_remat_compute(remat, &op, outputs, NULL), 0);
        op.cost_ns = 0;
        op.input_count = 4;
        op.inputs = outputs;
        op.output_count = 1;
        assert_int_equal(varve_remat_compute(remat, &op, &last, NULL), 0);
        more = make(remat, NULL, 1, false);
        for (unsigned j = 0; j < 4; j++) {
            assert_int_equal(varve_remat_evict(remat, outputs[j], NULL), 0);
        }
        (void)varve_remat_make_room(remat, 1);
        for (error = 0; error == 0;) {
            for (unsigned j = 0; j < 4; j++) {
                (void)varve_remat_evict(remat, outputs[j], NULL);
            }
            error = varve_remat_materialize(remat, outputs[0], NULL);
        }
        assert_int_equal(error, VARVE_ERROR_FULL);
        varve_remat_get_counters(remat, &c);
        assert_true(c.clock < UINT64_C(1) << 62 && c.clock > UINT64_C(7) << 59);
        varve_remat_release(remat, more);
        assert_int_equal(varve_remat_check(remat, NULL), 0);
        varve_remat_close(remat);
        op.output_count = 4;
    }
}

/* All of a chain is evicted, and its end is wanted again. */
TEST(test_deep_chain)
{
    static const struct {
        const char *heuristic;
        uint32_t length;
    } chains[] = {{"dtr-local", 100000}, {"dtr-eq", 100000}, {"dtr", 2000}};
    for (unsigned i = 0; i < 3; i++) {
        struct varve_remat *remat = open_live(chains[i].heuristic, VARVE_REMAT_UNLIMITED);
        uint32_t *chain = malloc(chains[i].length * sizeof(*chain));
        for (uint32_t j = 0; j < chains[i].length; j++) {
            chain[j] = make(remat, j == 0 ? NULL : &chain[j - 1], 8, false);
        }
        for (uint32_t j = 0; j < chains[i].length; j++) {
            assert_int_equal(varve_remat_evict(remat, chain[j], NULL), 0);
        }
        assert_int_equal(varve_remat_materialize(remat, chain[chains[i].length - 1], NULL), 0);
        struct varve_remat_counters c;
        varve_remat_get_counters(remat, &c);
        assert_int_equal(c.depth_max, chains[i].length);
        assert_int_equal(c.remats_direct, chains[i].length);
        assert_int_equal(c.used_bytes, 8 * chains[i].length);
        for (uint32_t j = 0; j < chains[i].length; j++) {
            varve_remat_release(remat, chain[j]);
        }
        varve_remat_get_counters(remat, &c);
        assert_int_equal(c.storages, 0);
        free(chain);
        varve_remat_close(remat);
    }
}

/* What a failure says would do does, and one byte less does not; a failure changes nothing. */
TEST(test_figure)
{
    struct varve_remat *remat = open_live("dtr", 100);
    uint32_t pinned = make(remat, NULL, 40, false), input = make(remat, NULL, 30, false), output;
    struct varve_remat_op op = {.inputs = &input,
                                .sizes = (const uint64_t[]){50},
                                .aliases = (const int32_t[]){-1},
                                .input_count = 1,
                                .output_count = 1,
                                .cost_ns = 1};
    varve_remat_pin(remat, pinned);
    make(remat, NULL, 30, false);
    struct varve_message message;
    struct varve_remat_counters before, after;
    for (unsigned i = 0; i < 2; i++) {
        varve_remat_set_budget(remat, i == 0 ? 100 : 119);
        varve_remat_get_counters(remat, &before);
        assert_int_equal(varve_remat_compute(remat, &op, &output, &message), VARVE_ERROR_NO_MEMORY);
        assert_non_null(strstr(message.text, "50 bytes are needed, and 70 can't be evicted"));
        assert_non_null(strstr(message.text, "a budget of 120 bytes would do here"));
        varve_remat_get_counters(remat, &after);
        assert_int_equal(after.used_bytes, 100);
        assert_int_equal(after.storages, before.storages);
        assert_int_equal(after.evictions, before.evictions);
        assert_int_equal(after.failures, before.failures + 1);
    }
    varve_remat_set_budget(remat, 120);
    assert_int_equal(varve_remat_compute(remat, &op, &output, &message), 0);
    assert_int_equal(varve_remat_check(remat, &message), 0);
    varve_remat_close(remat);
}

/* An output that was forgotten is no duplicate when its operator runs again. */
TEST(test_forgotten_output)
{
    struct varve_remat *remat = open_live("dtr", VARVE_REMAT_UNLIMITED);
    const struct varve_remat_op op = {.sizes = (const uint64_t[]){10, 20, 40},
                                      .aliases = (const int32_t[]){-1, -1, -1},
                                      .output_count = 3,
                                      .cost_ns = 1};
    uint32_t outputs[3];
    assert_int_equal(varve_remat_compute(remat, &op, outputs, NULL), 0);
    varve_remat_release(remat, outputs[1]);
    assert_int_equal(varve_remat_evict(remat, outputs[0], NULL), 0);
    assert_int_equal(varve_remat_materialize(remat, outputs[0], NULL), 0);
    struct varve_remat_counters c;
    varve_remat_get_counters(remat, &c);
    assert_int_equal(c.duplicates, 1);
    assert_int_equal(c.duplicate_bytes, 40);
    assert_int_equal(c.used_bytes, 50);
    assert_int_equal(c.storages, 2);
    assert_int_equal(varve_remat_check(remat, NULL), 0);
    varve_remat_close(remat);
}

/* A search that the heuristic can't be searched by is a scan, whenever it is asked for. */
TEST(test_search_of_another_heuristic)
{
    struct varve_remat *remat = open_live("lru", 100);
    varve_remat_set_search(remat, VARVE_REMAT_SEARCH_SAMPLE);
    uint32_t tensors[9];
    for (unsigned i = 0; i < 9; i++) {
        tensors[i] = make(remat, NULL, 12, false);
        assert_true(i < 8 || !varve_remat_is_defined(remat, tensors[0]));
    }
    varve_remat_close(remat);
}
