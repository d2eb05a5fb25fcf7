/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest capacity that serves everything: for a program to which more memory does harm, with a request that failed
 * when it was recorded, and with settings that can't be run. Beside replays on recordings: conformance/test_compare.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/replay.h"

#include "analysis/whatif/frontier.h"
#include "analysis/whatif/settings.h"

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
