/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest capacity that serves everything, beside a plain search that tries each capacity by a replay: for random
 * programs, policies and settings; and for a program made for it, to which more memory does harm.
 * Runs threads: plays.
 * Costs: 3 s, full 6 s
 */
#include "support/random.h"
#include "support/replay.h"

#include "analysis/whatif/frontier.h"
#include "analysis/whatif/profile.h"
#include "analysis/whatif/settings.h"

#include <inttypes.h>

static const char *const confs[] = {"", "garbage_collection_threshold:0.6", "max_split_size_mb:24",
                                    "expandable_segments:True"};

static void find(const struct scene *scene, const struct whatif_setting *settings, size_t count,
                 struct frontier_options options, struct frontier *frontiers)
{
    struct varve_message message = {""};
    struct whatif_demand demand;
    struct whatif *whatif;
    if (whatif_open(scene->history, &whatif, &message) != VARVE_OK ||
        whatif_demand_load(scene->history, &demand, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    frontier_find(whatif, &demand, settings, count, &options, frontiers);
    whatif_close(whatif);
}

static bool passes(const struct scene *scene, const struct whatif_setting *setting, uint64_t limit, bool served_only)
{
    struct replay_options options = {
        .policy = setting->policy, .conf = setting->conf, .memory_limit = limit, .served_only = served_only};
    struct replay_result result;
    struct varve_message message = {""};
    if (replay_run(scene->history, &options, &result, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return result.ooms == 0;
}

/* A block of 28 MiB is asked for while 20 MiB are cached. Within 44 MiB the cached segment has to go, so that nothing
 * lies in it later; from 48 MiB on it stays, is used for 12 MiB, and the rest of it is lost to what comes then. */
static const char harmed_by_memory[] = "a=20M -a b=28M +12M -b +32M";

TEST(test_more_memory_does_harm)
{
    struct scene *scene = scene_of("", 0, harmed_by_memory);
    struct whatif_setting setting = {0};
    struct frontier frontier;
    for (int exhaustive = 0; exhaustive <= 1; exhaustive++) {
        find(scene, &setting, 1, (struct frontier_options){.is_exhaustive = exhaustive != 0}, &frontier);
        assert_int_equal(frontier.error, VARVE_OK);
        assert_int_equal(frontier.bytes, 44 * MIB); /* the load: 12 and 32 */
        assert_int_equal(frontier.fails_above, 50 * MIB);
        assert_int_equal(frontier.safe, 52 * MIB);
        assert_int_equal(frontier.free.figures.peak_reserved, 80 * MIB);
        assert_int_equal(frontier.at.figures.peak_reserved, 44 * MIB);
        assert_int_equal(frontier.at.result.ooms, 0);
    }
    scene_close(scene);
}

/* By one replay for each capacity: the lowest that passes, and the highest above it that fails. Some 20 MiB above the
 * peak may be needed: of an expandable segment the size for its kind of request counts against the limit, not what is
 * mapped. */
static void search_plainly(const struct scene *scene, const struct whatif_setting *setting, uint64_t peak,
                           uint64_t *lowest_out, uint64_t *fails_above_out)
{
    *lowest_out = 0;
    *fails_above_out = 0;
    for (uint64_t limit = FRONTIER_STEP; limit < peak + 40 * MIB; limit += FRONTIER_STEP) {
        bool is_enough = passes(scene, setting, limit, false);
        if (is_enough && *lowest_out == 0) {
            *lowest_out = limit;
        } else if (!is_enough && *lowest_out != 0) {
            *fails_above_out = limit;
        }
    }
}

static void check_one(const struct scene *scene, const struct whatif_setting *setting, const struct frontier *frontier,
                      const struct frontier *exhaustive)
{
    assert_int_equal(frontier->error, VARVE_OK);
    uint64_t lowest, fails_above;
    search_plainly(scene, setting, (uint64_t)frontier->free.figures.peak_reserved, &lowest, &fails_above);
    if (exhaustive->bytes != lowest) {
        fail_msg("%s %s: %" PRIu64 ", not %" PRIu64, setting->policy, setting->conf, exhaustive->bytes, lowest);
    }
    assert_int_equal(exhaustive->fails_above, fails_above);
    assert_int_equal(exhaustive->safe, fails_above != 0 ? fails_above + FRONTIER_STEP : lowest);
    /* what was not tried is not known, but what is said holds */
    assert_true(frontier->bytes >= lowest);
    assert_true(passes(scene, setting, frontier->bytes, false));
    assert_false(passes(scene, setting, frontier->bytes - FRONTIER_STEP, false));
    assert_true(passes(scene, setting, frontier->safe, false));
    assert_true(frontier->fails_above == 0 || !passes(scene, setting, frontier->fails_above, false));
    assert_true(frontier->fails_above <= fails_above);
    assert_true(frontier->probes <= exhaustive->probes);
}

TEST(test_beside_a_plain_search)
{
    uint64_t seed = test_first_seed(1);
    const struct scene_life life = {.conf = "", .steps = (unsigned)test_rounds(24, 80), .blocks = 24, .streams = 1};
    struct scene *scene = scene_random(&life, &seed);
    size_t number = 0;
    for (const char *const *policy = varve_alloc_policies(); *policy != NULL; policy++, number++) {
        if (whatif_needs_profile(*policy)) {
            continue; /* a replay alone has no plan */
        }
        for (size_t i = test_is_full() ? 0 : number % 2; i < sizeof(confs) / sizeof(confs[0]);
             i += test_is_full() ? 1 : 2) {
            struct whatif_setting setting = {.policy = *policy, .conf = confs[i]};
            struct frontier frontier, exhaustive;
            find(scene, &setting, 1, (struct frontier_options){.threads = 2}, &frontier);
            find(scene, &setting, 1, (struct frontier_options){.is_exhaustive = true}, &exhaustive);
            check_one(scene, &setting, &frontier, &exhaustive);
        }
    }
    scene_close(scene);
}

/* A request that failed in the history is to be served, too, unless it is left out. */
TEST(test_recorded_failure)
{
    struct scene *scene = scene_of("", 60 * MIB, "+20M !100M +10M");
    struct whatif_setting setting = {0};
    struct frontier all, served;
    find(scene, &setting, 1, (struct frontier_options){.with_failed = true}, &all);
    find(scene, &setting, 1, (struct frontier_options){.with_failed = false}, &served);
    assert_int_equal(all.bytes, 120 * MIB); /* the one that failed is freed at once where it is served */
    assert_int_equal(served.bytes, 30 * MIB);
    assert_true(passes(scene, &setting, 30 * MIB, true));
    assert_false(passes(scene, &setting, 30 * MIB, false));
    scene_close(scene);
}

/* A setting that can't be run does not keep the others from their answers. */
TEST(test_one_that_cannot_be_run)
{
    struct scene *scene = scene_of("", 0, harmed_by_memory);
    struct whatif_setting settings[3] = {{.policy = "pytorch"}, {.policy = "nosuch"}, {.conf = "nosuch:1"}};
    struct frontier frontiers[3];
    find(scene, settings, 3, (struct frontier_options){.threads = 1}, frontiers);
    assert_int_equal(frontiers[0].bytes, 44 * MIB);
    assert_int_not_equal(frontiers[1].error, VARVE_OK);
    assert_non_null(strstr(frontiers[1].message.text, "nosuch"));
    assert_int_not_equal(frontiers[2].error, VARVE_OK);
    scene_close(scene);
}
