/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What would have served a request that failed, in programs made for one cause each, beside plain replays: an answer
 * serves the request when it is played alone, what is no answer does not, and the smallest limit passes where 2 MiB
 * less does not.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/replay.h"

#include "analysis/whatif/advise_explain.h"

#include <stdio.h>

static struct explain *open_scene(const struct scene *scene)
{
    struct explain_options options = {.memory_limit = scene->limit};
    struct varve_message message = {""};
    struct explain *explain;
    if (explain_open(scene->history, &options, &explain, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return explain;
}

static uint64_t failures_of(const struct scene *scene, const char *policy, const char *conf, uint64_t limit)
{
    struct replay_options options = {
        .policy = policy, .conf = conf, .memory_limit = limit, .finds_limit = scene->limit != 0};
    struct replay_result result;
    struct varve_message message = {""};
    if (replay_run(scene->history, &options, &result, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return result.ooms;
}

static const struct explain_answer *find(const struct explain_answer *answers, size_t count, enum explain_kind kind,
                                         const char *change)
{
    for (size_t i = 0; i < count; i++) {
        if (answers[i].kind == kind && strcmp(answers[i].change, change) == 0) {
            return &answers[i];
        }
    }
    return NULL;
}

/* Played alone, each leaves as many failures as it says: of scenes with one failure, none. */
static void check_answers(const struct scene *scene, const struct explain_answer *answers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (answers[i].kind == EXPLAIN_SETTING || answers[i].kind == EXPLAIN_RULE) {
            assert_int_equal(failures_of(scene, NULL, answers[i].conf, scene->limit), answers[i].failures);
            assert_int_equal(answers[i].failures, 0);
        }
        if (i > 0) {
            assert_true(answers[i - 1].kind <= answers[i].kind);
        }
    }
}

static void check_smallest(const struct scene *scene, struct explain *explain)
{
    uint64_t all = explain_smallest_limit(explain, EXPLAIN_ALL, EXPLAIN_RECORDED);
    assert_int_equal(all % (2 * MIB), 0);
    assert_true(all > scene->limit);
    assert_int_equal(failures_of(scene, NULL, NULL, all), 0);
    assert_true(failures_of(scene, NULL, NULL, all - 2 * MIB) > 0);
    assert_int_equal(explain_smallest_limit(explain, 0, EXPLAIN_RECORDED), all); /* it is the only one */
}

/* Small pieces of a large segment stay, so that the segment can't be given back. */
static const char pinned[] = "a=60M -a +4M !58M";

static const struct {
    const char *conf;
    uint64_t limit;
    const char *calls;
    struct {
        enum explain_kind kind;
        const char *change;
    } answers[3]; /* those that must be there; without one: there is none */
    const char *no_rule;
    uint64_t smallest; /* 0: only what a replay says */
} cases[] = {
    /* 60 MiB and a segment of 58 MiB beside it; a call of empty_cache takes the small block from the large segment */
    {"",
     100 * MIB,
     pinned,
     {{EXPLAIN_SETTING, "expandable_segments:True"},
      {EXPLAIN_POLICY, "none"},
      {EXPLAIN_EMPTY_CACHE, "torch.cuda.empty_cache()"}},
     "research_after_release:True",
     118 * MIB},
    /* what is in use and the request are more than the limit */
    {"", 100 * MIB, "+60M !42M", {{EXPLAIN_SETTING, NULL}}, "research_after_release:True", 102 * MIB},
    /* the block that fits waits for another stream; the chain waits for it, and then PyTorch does not search the pool
     * again */
    {"", 64 * MIB, "a=60M -a a=40M b=2M -a~7 +512 !38M -b", {{EXPLAIN_RULE, "research_after_release:True"}}, NULL, 0},
    /* the setting that it was recorded with is the reason: large blocks are not cut, 56 MiB have the whole segment */
    {"max_split_size_mb:32",
     100 * MIB,
     "a=60M -a +56M +38M !4M",
     {{EXPLAIN_SETTING, "without max_split_size_mb:32"}, {EXPLAIN_SETTING, "no settings"}},
     NULL,
     0},
};

TEST(test_causes)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_of(cases[i].conf, cases[i].limit, cases[i].calls);
        assert_int_equal(replay_settings(scene->history, scene->conf, &scene->history->settings, NULL), VARVE_OK);
        struct explain *explain = open_scene(scene);
        struct explain_answer answers[EXPLAIN_ANSWERS_MAX];
        size_t tried;
        size_t count = explain_find(explain, 0, answers, &tried);
        assert_int_equal(explain_get_facts(explain)->failure_count, 1);
        assert_true(explain_fails_again(explain, 0));
        assert_true(tried > count && (count > 0) == (cases[i].answers[0].change != NULL));
        for (size_t k = 0; k < 3 && cases[i].answers[k].change != NULL; k++) {
            if (find(answers, count, cases[i].answers[k].kind, cases[i].answers[k].change) == NULL) {
                fail_msg("%s: no answer %s", cases[i].calls, cases[i].answers[k].change);
            }
        }
        assert_true(cases[i].no_rule == NULL || find(answers, count, EXPLAIN_RULE, cases[i].no_rule) == NULL);
        check_answers(scene, answers, count);
        check_smallest(scene, explain);
        if (cases[i].smallest != 0) {
            assert_int_equal(explain_smallest_limit(explain, 0, EXPLAIN_RECORDED), cases[i].smallest);
        }
        explain_close(explain);
        scene_close(scene);
    }
}

TEST(test_empty_cache)
{
    struct scene *scene = scene_of("", 100 * MIB, pinned);
    struct explain *explain = open_scene(scene);
    struct explain_answer answers[EXPLAIN_ANSWERS_MAX];
    size_t tried;
    size_t count = explain_find(explain, 0, answers, &tried);
    const struct explain_answer *answer = find(answers, count, EXPLAIN_EMPTY_CACHE, "torch.cuda.empty_cache()");
    const struct history_device *device = &scene->history->devices[0];
    assert_int_equal(answer->failures, 0);
    assert_int_equal(answer->empty_live, 0);
    assert_int_equal(answer->empty_requests, 1);
    assert_int_equal(device->events[answer->empty_event].action, HISTORY_ALLOC);
    assert_int_equal(device->events[answer->empty_event].size, 4 * MIB);
    explain_close(explain);
    scene_close(scene);
}
