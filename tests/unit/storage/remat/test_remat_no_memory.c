/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for the planner's own tables runs out: malloc and realloc in this program, which stand before the C
 * library's, refuse one request. The operation says so, whatever it was in, and so does everything after it; nothing
 * is lost, nothing crashes.
 * Program of its own: it defines malloc, realloc.
 * Costs: 2 s
 */
#include "programs.h"
#include "storage/remat/planner.h"

#include <dlfcn.h>
#include <stdlib.h>

static uint64_t until_refusal; /* requests; 0: none is refused */
static uint64_t refusals;

static bool refuses(void)
{
    if (until_refusal == 0 || --until_refusal > 0) {
        return false;
    }
    refusals++;
    return true;
}

void *malloc(size_t bytes)
{
    static void *(*next)(size_t);
    if (refuses()) {
        return NULL;
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "malloc");
    }
    return next(bytes);
}

void *realloc(void *old, size_t bytes)
{
    static void *(*next)(void *, size_t);
    if (refuses()) {
        return NULL;
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "realloc");
    }
    return next(old, bytes);
}

/* The n-th request of a program is refused. False: it has no n-th one. */
static bool play(const struct remat_world_options *options, uint64_t seed, uint64_t nth)
{
    struct remat_world world;
    uint64_t random = seed, before = refusals;
    assert_int_equal(remat_world_open(&world, options, programs_choose, &random), 0);
    assert_true(remat_world_step(&world)); /* the world's own tables */
    until_refusal = nth;
    for (unsigned i = 0; i < 250 && remat_world_step(&world); i++) {
        /* what a check lacks does not break the planner, and is not counted */
    }
    remat_world_finish(&world);
    until_refusal = 0;
    if (world.wrong[0] != '\0') {
        print_error("%s, request %" PRIu64 ": %s\n", options->heuristic, nth, world.wrong);
    }
    if (refusals > before && options->check_every == 0 && world.remat->is_broken) {
        uint64_t bytes = 1;
        uint32_t output;
        const struct varve_remat_op op = {
            .sizes = &bytes, .aliases = (const int32_t[]){-1}, .output_count = 1, .cost_ns = 1};
        assert_int_equal(varve_remat_compute(world.remat, &op, &output, NULL), VARVE_ERROR_NO_MEMORY);
    }
    assert_string_equal(world.wrong, "");
    remat_world_close(&world);
    return refusals > before;
}

TEST(test_each_request)
{
    static const struct {
        const char *heuristic;
        enum varve_remat_search search;
    } planners[] = {{"dtr", VARVE_REMAT_SEARCH_SCAN},       {"dtr", VARVE_REMAT_SEARCH_KINETIC},
                    {"dtr-eq", VARVE_REMAT_SEARCH_KINETIC}, {"dtr-eq", VARVE_REMAT_SEARCH_SAMPLE},
                    {"dtr-union", VARVE_REMAT_SEARCH_SCAN}, {"lru", VARVE_REMAT_SEARCH_SCAN}};
    for (unsigned i = 0; i < sizeof(planners) / sizeof(planners[0]); i++) {
        for (unsigned j = 0; j < 2; j++) {
            struct remat_world_options options = {.heuristic = planners[i].heuristic,
                                                  .search = planners[i].search,
                                                  .budget = 6000,
                                                  .is_live = j == 0,
                                                  .dealloc =
                                                      j == 0 ? VARVE_REMAT_DEALLOC_EAGER : VARVE_REMAT_DEALLOC_BANISH,
                                                  .has_views = true,
                                                  .has_wide_views = true};
            uint64_t nth = 1;
            while (play(&options, 3 + i, nth)) {
                nth++;
            }
            assert_true(nth > 100);
        }
    }
}
