/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of a history under other rules: the same rules cost the same, a limit makes requests fail and
 * leaves out their frees, another policy serves them all, and a history that began late takes its start
 * along. Also what a replay refuses before it begins.
 * Costs: 1 s
 */
#include "support/replay.h"

#include "analysis/replay/replay_before.h"

static struct scene *make_scene(void)
{
    return scene_of("", 0, "a=30M b=40M@3 c=700@3 -a~900 +5M /900 +20M -b E -c");
}

static struct replay_result whatif(const struct scene *scene, struct replay_options options)
{
    struct replay_result result;
    struct varve_message message = {""};
    if (replay_run(scene->history, &options, &result, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return result;
}

TEST(test_same_rules_cost_the_same)
{
    struct scene *scene = make_scene();
    struct replay_result result = whatif(scene, (struct replay_options){.conf = ""});
    assert_memory_equal(&result.stats, &scene->stats, sizeof(result.stats));
    assert_int_equal(result.allocations, 5);
    assert_int_equal(result.ooms, 0);
    scene_close(scene);
}

TEST(test_limit_makes_requests_fail)
{
    struct scene *scene = make_scene();
    struct replay_result result = whatif(scene, (struct replay_options){.conf = "", .memory_limit = 60 * MIB});
    struct replay_result smaller = whatif(scene, (struct replay_options){.conf = "", .capacity = 25 * MIB});
    assert_int_equal(result.ooms, 1); /* 40 MiB */
    assert_int_equal(result.skipped, 1);
    assert_int_equal(result.stats.num_ooms, 1);
    assert_true(result.stats.reserved_bytes[0].peak <= 60 * (int64_t)MIB);
    assert_true(smaller.ooms >= 2);
    assert_true(smaller.stats.reserved_bytes[0].peak <= 25 * (int64_t)MIB);
    scene_close(scene);
}

TEST(test_every_policy_serves)
{
    struct scene *scene = make_scene();
    for (const char *const *policy = varve_alloc_policies(); *policy != NULL; policy++) {
        struct replay_result result = whatif(scene, (struct replay_options){.policy = *policy});
        assert_int_equal(result.allocations, 5);
        assert_int_equal(result.ooms, 0);
        assert_int_equal(result.stats.requested_bytes[0].allocated, 95 * (int64_t)MIB + 700);
    }
    scene_close(scene);
}

TEST(test_late_beginning_under_other_rules)
{
    struct scene *scene = make_scene();
    scene_cut(scene, 2);
    struct replay_result result = whatif(scene, (struct replay_options){.conf = "roundup_power2_divisions:2"});
    assert_true(result.starts_late);
    assert_int_equal(result.allocations, 4);
    assert_int_equal(result.skipped, 0); /* the block of the start was freed */
    scene_close(scene);
}

static int try_with(const struct scene *scene, struct replay_options options, struct varve_message *message)
{
    struct replay_result result;
    return replay_run(scene->history, &options, &result, message);
}

TEST(test_what_is_refused)
{
    struct scene *scene = make_scene();
    struct history_device *device = scene_device(scene);
    struct varve_message message = {""};
    assert_int_not_equal(try_with(scene, (struct replay_options){.policy = "nosuch"}, &message), VARVE_OK);
    assert_non_null(strstr(message.text, "nosuch"));
    assert_int_equal(try_with(scene, (struct replay_options){.conf = "nosuch:1"}, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "nosuch"));
    device->events[3].size = UINT64_C(1) << 60;
    assert_int_equal(try_with(scene, (struct replay_options){.follow = true}, &message), VARVE_ERROR_FORMAT);
    assert_non_null(strstr(message.text, "event 3"));
    device->events[3].size = 40 * MIB;
    device->events[0].action = HISTORY_FREE_COMPLETED;
    device->events[0].size = 0;
    device->segments[0].size = 0;
    assert_int_equal(try_with(scene, (struct replay_options){.follow = true}, &message), VARVE_ERROR_FORMAT);
    scene_close(scene);
}

/* A limit that is not in the history, but follows from its retries and failures. */
TEST(test_before_finds_the_limit)
{
    struct scene *scene = scene_of("", 60 * MIB, "a=30M -a +40M"); /* the second after a retry */
    struct replay_options options = {.memory_limit = 50 * MIB};
    struct replay_before before;
    assert_int_equal(replay_before_load(scene->history, NULL, &before), 0);
    assert_true(before.is_reproduced);
    assert_int_equal(before.limit, 40 * MIB);
    assert_int_equal(before.figures.retries, 1);
    assert_int_equal(before.figures.peak_reserved, 40 * (int64_t)MIB);
    assert_int_equal(before.figures.device_calls, 3);
    assert_true(replay_changes_nothing(scene->history, &options, &before));
    options.memory_limit = 39 * MIB;
    assert_false(replay_changes_nothing(scene->history, &options, &before));
    options.memory_limit = 0; /* the retry needs one */
    assert_false(replay_changes_nothing(scene->history, &options, &before));
    scene_close(scene);
}

/* The reason begins with `words`; NULL: the setting has an effect, or may have one. */
static void expect_ineffective(const struct scene *scene, struct replay_options options, const char *setting,
                               const char *words)
{
    struct replay_ineffective items[REPLAY_INEFFECTIVE_MAX];
    struct replay_result result = whatif(scene, options);
    size_t count = replay_ineffective(scene->history, &options, &result, items);
    const char *reason = NULL;
    for (size_t i = 0; i < count; i++) {
        reason = strcmp(items[i].setting, setting) == 0 ? items[i].reason : reason;
    }
    if ((reason != NULL) != (words != NULL) || (words != NULL && strncmp(reason, words, strlen(words)) != 0)) {
        fail_msg("%s: %s, not %s", options.conf, reason != NULL ? reason : "none", words != NULL ? words : "none");
    }
}

TEST(test_settings_without_effect)
{
    struct scene *scene = make_scene(); /* requests of 30 MiB, 40 MiB, 700 bytes, 5 MiB, 20 MiB */
    static const struct {
        const char *conf, *setting, *words;
        uint64_t memory_limit;
        const char *policy;
    } cases[] = {
        {"garbage_collection_threshold:0.5", "garbage_collection_threshold", "it is a share of a memory limit", 0,
         NULL},
        {"garbage_collection_threshold:0.5", "garbage_collection_threshold", NULL, 100 * MIB, NULL},
        {"garbage_collection_threshold:0.9", "garbage_collection_threshold", "at most", 1000 * MIB, NULL},
        {"garbage_collection_threshold:0.5,expandable_segments:True", "garbage_collection_threshold",
         "it releases whole segments", 100 * MIB, NULL},
        {"garbage_collection_threshold:0.5", "garbage_collection_threshold", "policy first-fit", 100 * MIB,
         "first-fit"},
        {"max_split_size_mb:41", "max_split_size_mb", "no block can be that large", 0, NULL},
        {"max_split_size_mb:40", "max_split_size_mb", NULL, 0, NULL},
        {"max_non_split_rounding_mb:30", "max_non_split_rounding_mb", "it is about requests", 0, NULL},
        {"roundup_power2_divisions:2", "roundup_power2_divisions", NULL, 0, NULL}, /* 30 MiB to 32 */
        {"roundup_power2_divisions:8", "roundup_power2_divisions", "no request is rounded", 0, NULL},
        {"expandable_segments:False", "expandable_segments", "False is the default", 0, NULL},
        {"expandable_segments:True", "expandable_segments", NULL, 0, NULL},
        {"large_segment_size_mb:64", "large_segment_size_mb", NULL, 0, NULL},
        {"pinned_num_register_threads:8", "pinned_num_register_threads", "it is about pinned memory", 0, NULL},
        {"", "--memory-limit", "it was never reached", 1000 * MIB, NULL},
        {"", "--memory-limit", NULL, 60 * MIB, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_ineffective(scene,
                           (struct replay_options){
                               .conf = cases[i].conf, .memory_limit = cases[i].memory_limit, .policy = cases[i].policy},
                           cases[i].setting, cases[i].words);
    }
    scene_close(scene);
}
