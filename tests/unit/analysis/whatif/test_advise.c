/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings that are tried: the program's own string taken apart and put together means the same to the allocator, with
 * options that are not tried kept; values of max_split_size_mb lie between sizes that occur, and no two mean the same.
 * And advice on made-up programs: growing buffers, which expandable segments serve with a fraction; a program that no
 * setting helps; one under a limit whose failures go. That picks have the figures of replays is shown by
 * tests/conformance/test_advise.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include "support/random.h"
#include "support/replay.h"

#include "analysis/whatif/advise_search.h"
#include "analysis/whatif/advise_candidates.h"

#include <stdio.h>

static void expect_same_rules(const char *left, const char *right)
{
    struct varve_alloc_config a, b;
    assert_int_equal(varve_alloc_config_parse(left, &a, NULL), VARVE_OK);
    assert_int_equal(varve_alloc_config_parse(right, &b, NULL), VARVE_OK);
    assert_int_equal(a.max_split_size, b.max_split_size);
    assert_int_equal(a.large_segment_size, b.large_segment_size);
    assert_int_equal(a.max_non_split_rounding_size, b.max_non_split_rounding_size);
    assert_true(a.garbage_collection_threshold >= b.garbage_collection_threshold &&
                a.garbage_collection_threshold <= b.garbage_collection_threshold);
    assert_true(a.memory_fraction >= b.memory_fraction && a.memory_fraction <= b.memory_fraction);
    assert_int_equal(a.expandable_segments, b.expandable_segments);
    assert_int_equal(a.release_lock_on_cudamalloc, b.release_lock_on_cudamalloc);
    assert_memory_equal(a.roundup_power2_divisions, b.roundup_power2_divisions, sizeof(a.roundup_power2_divisions));
}

static struct history *with_settings(const char *text)
{
    struct history *history = history_new();
    history->settings.is_known = true;
    history->settings.max_split_size = -1;
    snprintf(history->settings.text, sizeof(history->settings.text), "%s", text);
    return history;
}

TEST(test_own_string)
{
    static const char *const items[] = {
        "expandable_segments:True",
        "expandable_segments:False",
        "max_split_size_mb:64",
        "large_segment_size_mb:32",
        "roundup_power2_divisions:8",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
        "garbage_collection_threshold:.7",
        "per_process_memory_fraction:0.5",
        "release_lock_on_cudamalloc:True",
        " max_split_size_mb : 128 ",
        "backend:native",
    };
    uint64_t seed = test_first_seed(1);
    for (int round = 0; round < 500; round++) {
        char text[512] = "", again[CANDIDATE_TEXT_BYTES];
        for (uint64_t i = random_below(&seed, 5); i > 0; i--) {
            size_t used = strlen(text);
            snprintf(text + used, sizeof(text) - used, "%s%s", used > 0 ? "," : "",
                     items[random_below(&seed, sizeof(items) / sizeof(items[0]))]);
        }
        struct history *history = with_settings(text);
        struct candidate candidate;
        assert_true(candidate_of_history(history, &candidate));
        candidate_text(&candidate, again);
        expect_same_rules(text, again);
        history_free(history);
    }
}

TEST(test_words_of_another_version)
{
    struct history *history = with_settings("an_option_of_2030:1,max_split_size_mb:64");
    history->settings.max_split_size = 64 * (int64_t)MIB;
    history->settings.expandable_segments = true;
    for (size_t i = 0; i < sizeof(history->settings.divisions) / sizeof(history->settings.divisions[0]); i++) {
        history->settings.divisions[i] = 4;
    }
    struct candidate candidate;
    assert_false(candidate_of_history(history, &candidate));
    char text[CANDIDATE_TEXT_BYTES];
    candidate_text(&candidate, text);
    expect_same_rules(text, "max_split_size_mb:64,expandable_segments:True,roundup_power2_divisions:4");
    assert_int_equal(candidate_size(&candidate), 3);
    history_free(history);
}

/* How many requests of the history split blocks under that value. */
static size_t below(const struct history *history, uint64_t mib)
{
    size_t count = 0;
    for (size_t i = 0; i < history->devices[0].event_count; i++) {
        count += history->devices[0].events[i].size < mib * MIB;
    }
    return count;
}

TEST(test_max_split)
{
    uint64_t seed = test_first_seed(1);
    for (int round = 0; round < 100; round++) {
        struct history *history = history_new();
        struct history_device *device = history_device(history, 0);
        uint64_t largest = 0;
        size_t least = 0;
        for (uint64_t i = random_below(&seed, 200); i > 0; i--) {
            struct history_event *event = history_add_event(device);
            *event = (struct history_event){.action = HISTORY_ALLOC,
                                            .size = 1 + random_below(&seed, (1 + random_below(&seed, 100)) * MIB)};
            largest = event->size > largest ? event->size : largest;
        }
        struct candidate_range range = candidate_range(history, CANDIDATE_MAX_SPLIT, false);
        assert_true((range.count > 0) == (largest >= 20 * MIB));
        for (size_t i = 0; i < range.count; i++) {
            uint64_t value = strtoull(range.values[i].text, NULL, 10);
            assert_true(value >= 20 &&
                        value * MIB <= largest); /* what PyTorch takes, and some request does not split */
            assert_true(i == 0 || below(history, value) > least);
            least = below(history, value);
        }
        history_free(history);
    }
}

/* ---- advice ---- */

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
