/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is live at the moment of the load, by call site: its sum is what the demand says, on random programs, also where
 * the history begins late and requests fail; and which call sites have to go is what trying them by hand gives. And the
 * smallest capacity that serves everything: for a program to which more memory does harm, with a request that failed
 * when it was recorded, and with settings that can't be run. Beside replays on recordings: conformance/test_compare.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/random.h"
#include "support/replay.h"

#include "analysis/whatif/capacity_search.h"
#include "analysis/whatif/live_demand.h"
#include "analysis/whatif/frontier_search.h"
#include "analysis/whatif/whatif_settings.h"

static void expect_load(const struct scene *scene)
{
    struct varve_message message = {""};
    struct whatif_demand demand;
    uint64_t sum = 0;
    assert_int_equal(whatif_demand_load(scene->history, &demand, &message), VARVE_OK);
    struct capacity_load load;
    assert_int_equal(capacity_load_find(scene->history, &load), VARVE_OK);
    assert_int_equal(load.bytes, demand.device_load_all);
    for (size_t i = 0; i < load.site_count; i++) {
        assert_true(i == 0 || load.sites[i].bytes <= load.sites[i - 1].bytes);
        assert_int_equal(load.sites[i].bytes, load.sites[i].blocks * load.sites[i].size); /* of one size each */
        sum += load.sites[i].bytes;
    }
    assert_int_equal(sum, load.bytes);
    capacity_load_free(&load);
}

TEST(test_load)
{
    uint64_t seed = test_first_seed(1);
    for (int round = 0; round < test_rounds(15, 40); round++) {
        const struct scene_life life = {"", 200 * MIB, 300, 32, 2, 1, false};
        struct scene *scene = scene_random(&life, &seed);
        expect_load(scene);
        scene_close(scene);
    }
}

TEST(test_late_beginning)
{
    struct scene *scene = scene_of("", 0, "a=30M +50M | +7M -a +3M");
    scene_cut(scene, scene->mark);
    struct capacity_load load;
    assert_int_equal(capacity_load_find(scene->history, &load), VARVE_OK);
    assert_int_equal(load.bytes, 87 * MIB);
    assert_int_equal(load.site_count, 3);
    capacity_load_free(&load);
    scene_close(scene);
}

static uint32_t add_stack(struct history *history, const char *user, uint32_t line)
{
    static const char library[] = "/usr/lib/python3/dist-packages/torch/nn/functional.py";
    struct history_frame frames[3] = {
        {history_text(history, "linear", 6), history_text(history, library, sizeof(library) - 1), 20},
        {history_text(history, "forward", 7), history_text(history, user, strlen(user)), line},
        {history_text(history, "main", 4), history_text(history, user, strlen(user)), 1},
    };
    return history_add_stack(history, frames, 3);
}

/* 3 of 100 MiB from one line, 4 of 50 MiB from another, 5 of 10 MiB from a third. */
static struct scene *three_lines(void)
{
    static const uint64_t sizes[] = {100 * MIB, 50 * MIB, 10 * MIB};
    struct scene *scene = scene_of("", 0, "+100M +100M +100M +50M +50M +50M +50M +10M +10M +10M +10M +10M");
    struct history_device *device = scene_device(scene);
    for (size_t i = 0; i < device->event_count; i++) {
        for (uint32_t j = 0; j < 3; j++) {
            if (device->events[i].size == sizes[j]) {
                device->events[i].stack = add_stack(scene->history, "model.py", 10 + j);
            }
        }
    }
    return scene;
}

TEST(test_call_sites)
{
    struct scene *scene = three_lines();
    struct capacity_load load;
    assert_int_equal(capacity_load_find(scene->history, &load), VARVE_OK);
    assert_int_equal(load.bytes, 550 * MIB);
    assert_true(load.has_callsites);
    assert_int_equal(load.site_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_string_equal(load.sites[i].user.file, "model.py");
        assert_string_equal(load.sites[i].user.function, "forward");
        assert_int_equal(load.sites[i].user.line, 10 + i);
        assert_string_equal(load.sites[i].inner.function, "linear");
        assert_int_equal(load.sites[i].blocks, 3 + i);
    }
    capacity_load_free(&load);
    scene_close(scene);
}

TEST(test_what_has_to_go)
{
    static const struct {
        uint64_t capacity, bytes;
        size_t gone;
    } cases[] = {
        {300 * MIB, 250 * MIB, 1}, /* without 300 of 550 */
        {250 * MIB, 10 * MIB, 1},  /* what is asked for is the least, and it is the largest that goes */
        {240 * MIB, 310 * MIB, 2}, {100 * MIB, 450 * MIB, 2},
        {40 * MIB, 510 * MIB, 3},  {1 * MIB, 549 * MIB, 3}, /* nothing is left */
    };
    struct scene *scene = three_lines();
    struct whatif *whatif;
    assert_int_equal(whatif_open(scene->history, &whatif, NULL), VARVE_OK);
    struct capacity_load load;
    assert_int_equal(capacity_load_find(scene->history, &load), VARVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct whatif_setting setting = {.conf = "", .capacity = cases[i].capacity};
        assert_int_equal(capacity_shed(whatif, scene->history, &load, &setting, cases[i].bytes), cases[i].gone);
    }
    whatif_close(whatif);
    capacity_load_free(&load);
    scene_close(scene);
}

/* ---- the smallest capacity ---- */

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
