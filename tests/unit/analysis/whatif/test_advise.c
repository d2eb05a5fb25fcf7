/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice on made-up programs: growing buffers, which expandable segments serve with a fraction; a program that no
 * setting helps; one under a limit whose failures go. On random programs every pick has the figures of a replay, and is
 * better than what was recorded.
 * Runs threads: plays.
 * Costs: 2 s, full 3 s
 */
#include "support/random.h"
#include "support/replay.h"

#include "analysis/whatif/advise.h"

#include <stdio.h>

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

static struct scene *random_scene(uint64_t *seed, uint64_t limit)
{
    static const char *const confs[] = {"", "", "roundup_power2_divisions:4", "max_split_size_mb:40"};
    const struct scene_life life = {
        .conf = confs[random_below(seed, 4)], .limit = limit, .steps = 300, .blocks = 24, .streams = 1};
    struct scene *scene = scene_random(&life, seed);
    assert_int_equal(replay_settings(scene->history, scene->conf, &scene->history->settings, NULL), VARVE_OK);
    return scene;
}

static void expect_replay(const struct scene *scene, const struct advice *advice, const struct advise_trial *trial)
{
    struct replay_options options = {.conf = trial->text,
                                     .memory_limit = advice->limit,
                                     .capacity = advice->capacity,
                                     .recorded_limit = advice->before.limit};
    struct replay_result result;
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    assert_memory_equal(&result.stats, &trial->outcome.result.stats, sizeof(result.stats));
    assert_int_equal(result.ooms, trial->outcome.result.ooms);
    assert_int_equal(result.device_ns, trial->outcome.result.device_ns);
}

TEST(test_random_programs)
{
    uint64_t seed = test_first_seed(1);
    const int rounds = test_rounds(6, 12);
    size_t picks = 0;
    for (int round = 0; round < rounds; round++) {
        uint64_t limit = round % 2 == 0 ? 0 : 500 * MIB;
        struct scene *scene = random_scene(&seed, limit);
        struct advise_options options = {.threads = 1, .memory_limit = limit};
        options.capacity = round % 3 == 0 ? 400 * MIB : 0;
        struct advice advice;
        advise(scene, &options, &advice);
        assert_string_equal(advice.own.text, scene->conf);
        assert_true(advice.capacity != 0 || advice.is_followed);
        for (size_t i = 0; i < advice.pick_count; i++) {
            const struct advise_trial *trial = advice.picks[i].trial;
            const struct replay_figures *after = &trial->outcome.figures, *before = &advice.own.outcome.figures;
            expect_replay(scene, &advice, trial);
            assert_true(advise_helps(&advice, trial));
            assert_true(after->ooms < before->ooms ||
                        (after->ooms == before->ooms && after->peak_reserved <= before->peak_reserved));
            assert_int_equal(advice.picks[i].waste.reserved, after->peak_reserved);
            picks++;
        }
        advise_free(&advice);
        scene_close(scene);
    }
    assert_true(picks > 0 || rounds < 6); /* a sanitizer has fewer */
}
