/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: bytes as the choices of a program above a planner of rematerialization
 * (support/storage/remat_world.h). Whatever they are, values, locks, counters, events and the planner's own check agree
 * after each step, and nothing is left of a live one.
 */
#include "fuzz/target.h"

#include "support/storage/remat_world.h"

#include <stdio.h>
#include <stdlib.h>

#define STEPS_MOST 400

struct input {
    const uint8_t *data;
    size_t size;
};

/* Zeros once the input has ended. A second byte where one does not reach. */
static uint64_t choose(void *source, uint64_t limit)
{
    struct input *input = source;
    uint64_t value = 0;
    for (uint64_t reached = 1; reached < limit && input->size > 0; reached *= 256) {
        value = value << 8 | *input->data++;
        input->size--;
    }
    return value % limit;
}

static void choose_options(struct input *input, struct remat_world_options *options)
{
    const struct varve_remat_heuristic *heuristics = varve_remat_heuristics();
    uint64_t flags = choose(input, 256), count = 0;
    while (heuristics[count].name != NULL) {
        count++;
    }
    *options = (struct remat_world_options){.heuristic = heuristics[choose(input, count)].name,
                                            .search = (enum varve_remat_search)choose(input, 3),
                                            .budget = 1000 + 100 * choose(input, 256),
                                            .seed = choose(input, 256),
                                            .is_live = (flags & 1) != 0,
                                            .has_views = (flags & 2) != 0,
                                            .has_wide_views = (flags & 4) != 0,
                                            .fails = (flags & 8) != 0,
                                            .stumbles = (flags & 16) != 0,
                                            .check_every = 1};
    if (!options->is_live) {
        options->dealloc = (enum varve_remat_dealloc)(flags >> 6 & 1 ? VARVE_REMAT_DEALLOC_BANISH : flags >> 7);
    }
    /* Of classes alone the tournament need not know at once. */
    options->checks_victims = options->search == VARVE_REMAT_SEARCH_SCAN &&
                              varve_remat_heuristic_find(options->heuristic)->score != VARVE_REMAT_SCORE_RANDOM;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    struct remat_world_options options;
    bool is_right = true;
    choose_options(&input, &options);
    struct remat_world world;
    if (remat_world_open(&world, &options, choose, &input) != 0) {
        return 0; /* the heuristic wants an allocator, or a scan */
    }
    for (unsigned i = 0; i < STEPS_MOST && input.size > 0 && is_right; i++) {
        is_right = remat_world_step(&world);
    }
    if (!is_right || !remat_world_finish(&world)) {
        fprintf(stderr, "%s: %s\n", options.heuristic, world.wrong);
        abort();
    }
    remat_world_close(&world);
    return 0;
}
