/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice on made-up programs: growing buffers, which expandable segments serve with a fraction; a program that no setting helps; one
 * under a limit whose failures go. On random programs every pick has the figures of a replay, and is better than what was recorded.
 * Runs threads: plays.
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

/* Each buffer is larger than all that were freed. */
static struct scene *growing(uint64_t limit)
{
    struct scene *scene = scene_open("", limit, 0);

    for (uint64_t i = 1; i <= 8; i++) {
        uint64_t addr = scene_alloc(scene, i * 30 * MIB, 0);

        if (addr != 0) {
            scene_free(scene, addr);
        }
    }
    scene_end(scene);
    return scene;
}

TEST(test_expandable_helps)
{
    struct scene *scene = growing(0);
    struct advice advice;

    advise(scene, &(struct advise_options){.threads = 2}, &advice);
    assert_true(advice.is_followed);
    assert_int_equal(advice.own.outcome.figures.peak_reserved,
                     (30 + 60 + 90 + 120 + 150 + 180 + 210 + 240) * MIB);
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
    struct scene *scene = scene_open("", 0, 0);
    struct advice advice;

    scene_alloc(scene, 64 * MIB, 0);
    scene_alloc(scene, 32 * MIB, 0);
    scene_end(scene);
    advise(scene, &(struct advise_options){.threads = 1}, &advice);
    assert_true(advice.trial_count > 5);
    assert_int_equal(advice.pick_count, 0);
    advise_free(&advice);
    scene_close(scene);
}

/* Two buffers side by side, of which one is freed and another one does not fit in its place. */
TEST(test_failures_go)
{
    struct scene *scene = scene_open("", 100 * MIB, 0);
    uint64_t a = scene_alloc(scene, 40 * MIB, 0);
    struct advice advice;

    scene_free(scene, a);
    scene_alloc(scene, 20 * MIB, 0); /* in the first 20 of 40 MiB, which stay apart from what comes */
    assert_int_equal(scene_alloc(scene, 70 * MIB, 0), 0);
    scene_end(scene);
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
    struct scene *scene = scene_open(confs[random_below(seed, sizeof(confs) / sizeof(confs[0]))], limit, 0);
    uint64_t blocks[24] = {0};

    scene->history->settings.is_known = true;
    snprintf(scene->history->settings.text, sizeof(scene->history->settings.text), "%s", scene->conf);
    scene->history->settings.max_split_size = strstr(scene->conf, "split") != NULL ? 40 * (int64_t)MIB : -1;
    for (size_t i = 0; i < 16; i++) {
        scene->history->settings.divisions[i] = strstr(scene->conf, "roundup") != NULL ? 4 : 0;
    }
    for (size_t i = 0; i < 300; i++) {
        uint64_t *block = &blocks[random_below(seed, 24)];

        if (*block == 0) {
            *block = scene_alloc(scene, 1 + random_below(seed, (1 + random_below(seed, 60)) * MIB), 0);
        } else {
            scene_free(scene, *block);
            *block = 0;
        }
    }
    scene_end(scene);
    return scene;
}

static void expect_replay(const struct scene *scene, const struct advice *advice,
                          const struct advise_trial *trial)
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
    size_t picks = 0;

    for (int round = 0; round < 12; round++) {
        uint64_t limit = round % 2 == 0 ? 0 : 500 * MIB;
        struct scene *scene = random_scene(&seed, limit);
        struct advise_options options = {.threads = 1, .memory_limit = limit};
        struct advice advice;

        options.capacity = round % 3 == 0 ? 400 * MIB : 0;
        advise(scene, &options, &advice);
        assert_string_equal(advice.own.text, scene->conf);
        assert_true(advice.capacity != 0 || advice.is_followed);
        for (size_t i = 0; i < advice.pick_count; i++) {
            const struct advise_trial *trial = advice.picks[i].trial;
            const struct replay_figures *after = &trial->outcome.figures,
                                        *before = &advice.own.outcome.figures;

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
    assert_true(picks > 0);
}
