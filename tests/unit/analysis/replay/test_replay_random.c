/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random lives of programs, with limits, streams, held-back frees and every option, are replayed from what PyTorch
 * would have recorded of them; then from any event on, within calls too. And histories that begin late with blocks
 * that only a later decision, or nothing but the state at the end, shows. VARVE_TEST_SEED is the first seed of others
 * for the lives that must replay.
 * Costs: 3 s, full 6 s
 */
#include "support/random.h"
#include "support/replay.h"

static const struct scene_life lives[] = {
    {"", 0, 200, 64, 3, 4, true},
    {"", 150 * MIB, 200, 64, 1, 0, true},
    {"max_split_size_mb:24", 200 * MIB, 200, 64, 3, 4, true},
    {"garbage_collection_threshold:0.6", 200 * MIB, 200, 64, 1, 0, true},
    {"garbage_collection_threshold:0.5,max_split_size_mb:32", 160 * MIB, 200, 64, 3, 4, true},
    {"roundup_power2_divisions:4", 150 * MIB, 200, 64, 3, 4, true},
    {"expandable_segments:True", 0, 200, 64, 3, 4, true},
    {"expandable_segments:True", 180 * MIB, 200, 64, 3, 4, true},
};

#define LIVES (sizeof(lives) / sizeof(lives[0]))

static struct scene *life_of(const struct scene_life *life, uint64_t seed)
{
    return scene_random(life, &seed);
}

/* Two counters do not follow from events where empty_cache came right before a request that retries. */
static void forget_ambiguous(struct varve_alloc_stats *stats)
{
    stats->num_sync_all_streams = 0;
    stats->num_alloc_retries = 0;
}

TEST(test_random_lives)
{
    uint64_t first = test_first_seed(1);
    for (uint64_t seed = first; seed < first + (uint64_t)test_rounds(120, 300); seed++) {
        struct scene *scene = life_of(&lives[seed % LIVES], seed);
        struct replay_result result = scene_expect_decisions(scene, seed);
        forget_ambiguous(&scene->stats);
        forget_ambiguous(&result.stats);
        if (memcmp(&result.stats, &scene->stats, sizeof(result.stats)) != 0) {
            fail_msg("seed %llu: other statistics", (unsigned long long)seed);
        }
        scene_close(scene);
    }
}

static struct replay_result replay_under(const struct scene *scene, uint64_t limit, struct replay_limit *found)
{
    struct replay_options options = {.conf = scene->conf,
                                     .memory_limit = limit,
                                     .capacity = 1024 * MIB,
                                     .finds_limit = true,
                                     .finds_most = true,
                                     .follow = true};
    struct replay_inference *inference;
    struct replay_result result;
    assert_int_equal(replay_infer(scene->history, &options, &inference, &result, NULL), VARVE_OK);
    *found = *replay_inference_limit(inference, 0);
    replay_inference_free(inference);
    return result;
}

static bool comes_out_under(struct scene *scene, uint64_t limit)
{
    struct replay_limit given;
    struct replay_result result = replay_under(scene, limit, &given);
    return result.mismatches == 0 && result.segments_equal;
}

/* No limit is given: the smallest under which the life comes out, and no more than it had. Where nothing was refused or
 * collected there is none to find. */
TEST(test_limits_are_found)
{
    unsigned found_count = 0;
    const uint64_t first = test_first_seed(1), rounds = (uint64_t)test_rounds(60, 600);
    for (uint64_t seed = first; seed < first + rounds; seed++) {
        const struct scene_life *life = &lives[seed % LIVES];
        struct scene *scene = life_of(life, seed);
        struct replay_limit found;
        struct replay_result result = replay_under(scene, 0, &found);
        if (result.mismatches > 0 || !result.segments_equal) {
            fail_msg("seed %llu, event %zu: expected %s; got %s", (unsigned long long)seed, result.first.event,
                     result.first.expected, result.first.got);
        }
        if (found.used > 0) {
            found_count++;
            bool is_bound = found.least <= found.used && found.used <= found.most;
            if (!is_bound || comes_out_under(scene, found.least - 1) || !comes_out_under(scene, found.least) ||
                !comes_out_under(scene, found.most) || (life->limit > 0 && found.least > life->limit)) {
                fail_msg("seed %llu: from %llu to %llu, not %llu", (unsigned long long)seed,
                         (unsigned long long)found.least, (unsigned long long)found.most,
                         (unsigned long long)life->limit);
            }
        }
        scene_close(scene);
    }
    assert_true(found_count > rounds / 6); /* as of the lives that have a limit */
}

/* Without collections: ages of blocks before the beginning are not known. Statistics count what happened before,
 * too. */
TEST(test_cut_anywhere)
{
    static const struct scene_life cut[] = {
        {"", 0, 250, 48, 2, 3, true},
        {"", 150 * MIB, 250, 48, 2, 3, true},
        {"roundup_power2_divisions:4", 0, 250, 48, 2, 3, true},
        {"max_split_size_mb:24", 150 * MIB, 250, 48, 2, 3, true},
        {"expandable_segments:True", 0, 250, 48, 2, 3, true},
        {"expandable_segments:True", 160 * MIB, 250, 48, 2, 3, true},
    };
    uint64_t first = test_first_seed(1);
    for (size_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++) {
        for (uint64_t seed = first; seed < first + (uint64_t)test_rounds(25, 120); seed++) {
            struct scene *scene = life_of(&cut[i], seed);
            scene_cut(scene, seed * 7919 % (scene_device(scene)->event_count + 1));
            scene_expect_decisions(scene, seed);
            scene_close(scene);
        }
    }
}

/* Cut at the '|'. */
TEST(test_late_beginnings)
{
    static const struct {
        const char *conf, *calls;
    } cases[] = {
        /* Nothing says the size of e: 11 MiB, or with the 700 KiB that were too little to be split off. What is free
         * behind it is 12 MiB or 11.3; a request of 12.6 that gets a new segment says which. */
        {"", "a=24M -a b=11M+700K c=12M -b e=11M | -c +12M+600K -e"},
        /* held back before the beginning, and still at the end */
        {"", "a=4K -a~900 | +4K"},
        /* nothing but segments */
        {"", "a=4K b=30M +5M@1 -a c=2M -c~900 +700 E -b |"},
        {"expandable_segments:True", "a=4K b=30M +5M@1 -a c=2M -c~900 +700 E -b |"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_of(cases[i].conf, 0, cases[i].calls);
        scene_cut(scene, scene->mark);
        assert_true(scene_expect_decisions(scene, i).starts_late);
        scene_close(scene);
    }
}

/* Cut between a segment and the alloc that it was made for, which the cache would not have served. */
TEST(test_beginning_within_a_request)
{
    struct scene *scene = scene_of("max_split_size_mb:24", 0, "+23M+100 +100");
    assert_int_equal(scene_device(scene)->events[0].action, HISTORY_SEGMENT_ALLOC);
    scene_cut(scene, 1);
    assert_true(scene_expect_decisions(scene, 0).first_event <= 1);
    scene_close(scene);
}
