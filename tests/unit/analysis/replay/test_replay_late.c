/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that begin late: cut off at any event, within calls too, with expandable segments that were
 * unmapped since, with blocks that other streams held all the time, with blocks whose size only a later
 * decision shows, and with nothing but the state at the end. Seeds are fixed.
 */
#include "support/random.h"
#include "support/replay.h"

#define BLOCKS 48

static uint64_t random_size(uint64_t *seed)
{
    uint64_t most = random_next(seed) % 2 == 0 ? 8 * KIB : 24 * MIB;

    return 1 + random_next(seed) % most;
}

static struct scene *random_scene(const char *conf, uint64_t limit, uint64_t seed)
{
    struct scene *scene = scene_open(conf, limit, 0);
    uint64_t blocks[BLOCKS] = {0};

    for (size_t i = 0; i < 250; i++) {
        uint64_t *block = &blocks[random_next(&seed) % BLOCKS];
        uint64_t choice = random_next(&seed) % 30;

        if (choice == 0) {
            scene_empty_cache(scene);
        } else if (choice == 1) {
            scene_finish_stream(scene, 900 + random_next(&seed) % 3);
        } else if (*block == 0) {
            *block = scene_alloc(scene, random_size(&seed), random_next(&seed) % 2);
        } else if (choice < 8) {
            scene_free_used(scene, *block, 900 + random_next(&seed) % 3);
            *block = 0;
        } else {
            scene_free(scene, *block);
            *block = 0;
        }
    }
    scene_end(scene);
    return scene;
}

/* Statistics count what happened before, too: only decisions and the end are compared. */
static void expect_decisions(const struct scene *scene, uint64_t seed, size_t cut)
{
    struct replay_result result;
    struct varve_message message = {""};

    if (scene_try(scene, &result, &message) != VARVE_OK) {
        fail_msg("seed %llu, cut %zu: %s", (unsigned long long)seed, cut, message.text);
    }
    if (result.mismatches != 0 || !result.segments_equal) {
        fail_msg("seed %llu, cut %zu, event %zu: expected %s; got %s; %s", (unsigned long long)seed, cut,
                 result.first.event, result.first.expected, result.first.got, result.difference);
    }
}

static void cut_anywhere(const char *conf, uint64_t limit)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 120; seed++) {
        struct scene *scene = random_scene(conf, limit, seed);
        size_t cut = seed * 7919 % (scene->history->devices[0].event_count + 1);

        scene_cut(scene, cut);
        expect_decisions(scene, seed, cut);
        scene_close(scene);
    }
}

TEST(test_cut_plain)
{
    cut_anywhere("", 0);
    cut_anywhere("", 150 * MIB);
    cut_anywhere("roundup_power2_divisions:4", 0);
}

TEST(test_cut_oversize)
{
    cut_anywhere("max_split_size_mb:24", 150 * MIB);
}

TEST(test_cut_expandable)
{
    cut_anywhere("expandable_segments:True", 0);
    cut_anywhere("expandable_segments:True", 160 * MIB);
}

/* Nothing says the size of `a`: 11 MiB, or with the 700 KiB that were too little to be split off. What is
 * free behind it is 12 MiB or 11.3; a request of 11.8 that gets a new segment says which. */
TEST(test_size_that_a_later_miss_emits)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t whole = scene_alloc(scene, 24 * MIB, 0);
    uint64_t first;
    uint64_t a;
    uint64_t b;
    size_t cut;

    scene_free(scene, whole);
    first = scene_alloc(scene, 11 * MIB + 700 * KIB, 0);
    b = scene_alloc(scene, 12 * MIB, 0);
    scene_free(scene, first);
    a = scene_alloc(scene, 11 * MIB, 0); /* all of the hole */
    assert_int_equal(a, first);
    cut = scene->history->devices[0].event_count;
    scene_free(scene, b);
    scene_alloc(scene, 12 * MIB + 600 * KIB, 0); /* does not fit behind the hole */
    scene_free(scene, a);
    scene_end(scene);
    scene_cut(scene, cut);
    expect_decisions(scene, 0, cut);
    scene_close(scene);
}

/* Held back before the beginning, and still at the end. */
TEST(test_pending_all_the_time)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 4 * KIB, 0);
    size_t cut;

    scene_free_used(scene, a, 900);
    cut = scene->history->devices[0].event_count;
    scene_alloc(scene, 4 * KIB, 0);
    scene_end(scene);
    scene_cut(scene, cut);
    expect_decisions(scene, 0, cut);
    scene_close(scene);
}

/* Cut between a segment and the alloc that it was made for, which the cache would not have served. */
TEST(test_beginning_within_a_request)
{
    struct scene *scene = scene_open("max_split_size_mb:24", 0, 0);
    struct replay_result result;

    scene_alloc(scene, 23 * MIB + 100, 0);
    scene_alloc(scene, 100, 0);
    scene_end(scene);
    assert_int_equal(scene->history->devices[0].events[0].action, HISTORY_SEGMENT_ALLOC);
    scene_cut(scene, 1);
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    assert_true(result.first_event <= 1);
    scene_close(scene);
}

TEST(test_segments_alone)
{
    static const char *const confs[] = {"", "expandable_segments:True"};

    for (size_t i = 0; i < 2; i++) {
        struct scene *scene = random_scene(confs[i], 0, 3 + i);

        scene_cut(scene, scene->history->devices[0].event_count);
        expect_decisions(scene, i, 0);
        scene_close(scene);
    }
}
