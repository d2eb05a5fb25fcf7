/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice on made-up programs: growing buffers, which expandable segments serve with a fraction; a program that no
 * setting helps; one under a limit whose failures go. That picks have the figures of replays is shown by
 * tests/conformance/test_advise.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/replay.h"

#include "analysis/whatif/advise.h"

static void advise(const struct scene *scene, const struct advise_options *options, struct advice *out)
{
    struct varve_message message = {""};
    struct whatif *whatif;
    assert_int_equal(whatif_open(scene->history, &whatif, &message), VARVE_OK);
    if (advise_run(scene->history, whatif, options, out, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    whatif_close(whatif);
}

TEST(test_expandable_helps)
{
    /* each buffer is larger than all that were freed */
    struct scene *scene =
        scene_of("", 0, "a=30M -a a=60M -a a=90M -a a=120M -a a=150M -a a=180M -a a=210M -a a=240M -a");
    struct advice advice;
    advise(scene, &(struct advise_options){.threads = 2}, &advice);
    assert_true(advice.is_followed);
    assert_int_equal(advice.own.outcome.figures.peak_reserved, (30 + 60 + 90 + 120 + 150 + 180 + 210 + 240) * MIB);
    assert_true(advice.pick_count >= 1);
    assert_string_equal(advice.picks[0].trial->text, "expandable_segments:True");
    assert_int_equal(advice.picks[0].reason, ADVISE_BEST);
    assert_int_equal(advice.picks[0].trial->outcome.figures.peak_reserved, 240 * MIB);
    assert_true(advice.waste.is_known);
    assert_int_equal(advice.waste.cached_segments, (30 + 60 + 90 + 120 + 150 + 180 + 210) * MIB);
    assert_int_equal(advice.waste.reserved - advice.waste.live_requested, advice.waste.cached_segments);
    assert_int_equal(advice.picks[0].waste.reserved, advice.picks[0].waste.live_requested);
    advise_free(&advice);
    scene_close(scene);
}

TEST(test_nothing_helps)
{
    struct scene *scene = scene_of("", 0, "+64M +32M");
    struct advice advice;
    advise(scene, &(struct advise_options){.threads = 1}, &advice);
    assert_true(advice.trial_count > 5);
    assert_int_equal(advice.pick_count, 0);
    advise_free(&advice);
    scene_close(scene);
}

/* Two buffers side by side, of which one is freed and another one does not fit in its place. */
TEST(test_failures_go)
{
    /* 20 in the first of the 40 MiB, which stay apart from what comes */
    struct scene *scene = scene_of("", 100 * MIB, "a=40M -a +20M !70M");
    struct advice advice;
    advise(scene, &(struct advise_options){.threads = 1, .memory_limit = 100 * MIB}, &advice);
    assert_int_equal(advice.own.outcome.figures.ooms, 1);
    assert_int_equal(advice.least_ooms, 0);
    assert_true(advice.pick_count > 0);
    assert_int_equal(advice.picks[0].trial->outcome.figures.ooms, 0);
    advise_free(&advice);
    scene_close(scene);
}
