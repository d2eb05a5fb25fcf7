/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/* Random programs above a planner (support/storage/remat_world.h), played to their end. */
#ifndef VARVE_TESTS_UNIT_STORAGE_REMAT_PROGRAMS_H
#define VARVE_TESTS_UNIT_STORAGE_REMAT_PROGRAMS_H

#include "support/random.h"
#include "support/storage/remat_world.h"

#include <cmocka.h>
#include <inttypes.h>

static inline uint64_t programs_choose(void *source, uint64_t limit)
{
    return random_below(source, limit);
}

/// Returns how many operations failed, as they may.
static inline uint64_t programs_play(const struct remat_world_options *options, uint64_t seed, uint64_t steps)
{
    struct remat_world world;
    uint64_t random = seed;
    bool is_right = true;
    assert_int_equal(remat_world_open(&world, options, programs_choose, &random), 0);
    for (uint64_t i = 0; i < steps && is_right; i++) {
        is_right = remat_world_step(&world);
    }
    is_right = is_right && remat_world_finish(&world);
    if (!is_right) {
        print_error("%s, search %d, dealloc %d, seed %" PRIu64 ": %s\n", options->heuristic, (int)options->search,
                    (int)options->dealloc, seed, world.wrong);
    }
    uint64_t failures = world.failures;
    remat_world_close(&world);
    assert_true(is_right);
    return failures;
}

#endif
