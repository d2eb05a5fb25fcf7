/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the requests of a history need is what a plain sum of the live ones says; metrics are worked out by hand for a
 * program of four requests; settings from words. That a play is what a replay gives: tests/conformance/test_compare.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/replay.h"

#include "analysis/whatif/live_demand.h"
#include "analysis/whatif/whatif_settings.h"

#include <math.h>

static void play(const struct scene *scene, const struct whatif_setting *settings, size_t count, unsigned threads,
                 struct whatif_outcome *outcomes)
{
    struct varve_message message;
    struct whatif *whatif;
    assert_int_equal(whatif_open(scene->history, &whatif, &message), VARVE_OK);
    whatif_play(whatif, settings, count, threads, outcomes, NULL);
    whatif_close(whatif);
}

/* ---- settings ---- */

static int make(const char *policies, const char *const *confs, size_t conf_count, struct whatif_settings *settings,
                struct varve_message *message)
{
    static const uint64_t limits[] = {64 * MIB, 128 * MIB};
    struct whatif_grid grid = {
        .policies = policies, .confs = confs, .conf_count = conf_count, .limits = limits, .limit_count = 2};
    *message = (struct varve_message){""};
    return whatif_settings_make(&grid, settings, message);
}

TEST(test_settings)
{
    static const char *const confs[] = {"", "expandable_segments:True"};
    struct whatif_settings settings;
    struct varve_message message;
    assert_int_equal(make("first-fit,pytorch", confs, 2, &settings, &message), VARVE_OK);
    assert_int_equal(settings.count, 8);
    assert_string_equal(settings.items[0].policy, "pytorch"); /* what others are compared with is in front */
    assert_string_equal(settings.items[7].policy, "first-fit");
    assert_string_equal(settings.items[7].conf, "expandable_segments:True");
    assert_int_equal(settings.items[7].memory_limit, 128 * MIB);
    char name[128];
    whatif_setting_name(&settings.items[7], name, sizeof(name));
    assert_string_equal(name, "first-fit expandable_segments:True, limit 128 MiB");
    whatif_setting_name(&settings.items[7], name, 10); /* cut, not written past */
    assert_string_equal(name, "first-fit");
    const char *policy_options;
    whatif_setting_policy(&(struct whatif_setting){.policy = "a:b=1:c=2"}, name, sizeof(name), &policy_options);
    assert_string_equal(name, "a");
    assert_string_equal(policy_options, "b=1:c=2");
    whatif_settings_free(&settings);
    for (int i = 0; i < 2; i++) {
        size_t count = 0;
        assert_int_equal(make(i == 0 ? NULL : "all", NULL, 0, &settings, &message), VARVE_OK);
        while (varve_alloc_policies()[count] != NULL) {
            count++;
        }
        assert_int_equal(settings.count, 2 * count);
        whatif_settings_free(&settings);
    }
}

/* ---- plays ---- */

TEST(test_stop_at_oom)
{
    const struct scene_life life = {"", 0, 300, 32, 2, 1, false};
    uint64_t seed = 7;
    struct scene *scene = scene_random(&life, &seed);
    struct whatif_setting settings[2] = {{.memory_limit = 60 * MIB}, {.memory_limit = 60 * MIB, .stop_at_oom = true}};
    struct whatif_outcome outcomes[2];
    play(scene, settings, 2, 1, outcomes);
    assert_true(outcomes[0].result.ooms > 1);
    assert_int_equal(outcomes[1].result.ooms, 1);
    assert_true(outcomes[1].result.allocations < outcomes[0].result.allocations);
    scene_close(scene);
}

/* ---- what is needed ---- */

TEST(test_demand)
{
    /* a is not live any more when it was freed, whoever holds it back */
    struct scene *scene = scene_of("", 100 * MIB, "a=30M+1 b=100 -a~900 +40M !80M -b");
    struct varve_message message = {""};
    struct whatif_demand demand;
    assert_int_equal(whatif_demand_load(scene->history, &demand, &message), VARVE_OK);
    assert_int_equal(demand.load, 40 * MIB + 100);
    assert_int_equal(demand.load_all, 120 * MIB + 100);
    assert_int_equal(demand.device_load, demand.load);
    assert_int_equal(demand.largest, 40 * MIB);
    assert_int_equal(demand.largest_all, 80 * MIB);
    assert_int_equal(demand.served, 3);
    assert_int_equal(demand.failed, 1);
    assert_int_equal(scene->history->devices[0].events[demand.largest_event].size, 40 * MIB);
    scene_cut(scene, 2); /* began with the first block in use */
    assert_int_equal(whatif_demand_load(scene->history, &demand, &message), VARVE_OK);
    assert_int_equal(demand.load, 40 * MIB + 100);
    assert_int_equal(demand.served, 2);
    scene_close(scene);
}

/* ---- metrics ---- */

static void expect_metric(const struct whatif_outcome *outcome, enum whatif_metric metric, uint64_t load,
                          double expected)
{
    double value = whatif_metric(metric, &outcome->result, &outcome->moments, load);
    if (fabs(value - expected) > 1e-12 * fabs(expected)) {
        fail_msg("%s: %g, not %g", whatif_metrics[metric].key, value, expected);
    }
}

/* 20 MiB that are cached, 12 MiB - 100 bytes in them, 32 MiB beside: then most is reserved, 52 MiB. */
TEST(test_metrics)
{
    struct scene *scene = scene_of("", 0, "a=20M -a +12582812 +32M");
    struct whatif_setting settings[2] = {{.policy = NULL}, {.memory_limit = 40 * MIB}};
    struct whatif_outcome outcomes[2];
    uint64_t load = 44 * MIB - 100;
    play(scene, settings, 2, 1, outcomes);
    expect_metric(&outcomes[0], WHATIF_UTILIZATION_ACTIVE, load, 44.0 / 52);
    expect_metric(&outcomes[0], WHATIF_UTILIZATION_ALLOCATED, load, 44.0 / 52);
    expect_metric(&outcomes[0], WHATIF_UNUSED_AT_PEAK, load, 8.0 / 52);
    expect_metric(&outcomes[0], WHATIF_INTERNAL_AT_PEAK, load, 100);
    expect_metric(&outcomes[0], WHATIF_EXTERNAL_AT_PEAK, load, 8.0 * (double)MIB);
    expect_metric(&outcomes[0], WHATIF_INACTIVE_SPLIT, load, 8.0 * (double)MIB);
    expect_metric(&outcomes[0], WHATIF_EXTERNAL_INDEX, load, 0);
    expect_metric(&outcomes[0], WHATIF_MAKESPAN, load, (double)(52 * MIB - load) / (double)load);
    expect_metric(&outcomes[0], WHATIF_LOWEST_GAP, load, -1);                /* nothing failed */
    expect_metric(&outcomes[1], WHATIF_LOWEST_GAP, load, 8.0 * (double)MIB); /* 20 reserved, 12 used */
    scene_close(scene);
}
