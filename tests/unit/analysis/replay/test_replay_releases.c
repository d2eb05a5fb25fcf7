/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releases in a history may come from a request's own chain (gc, release_available, release_cached) or from
 * empty_cache; a replay has to find which, also where completions of other streams come in between. The
 * statistics (retries, synchronisations) show whether it was right. Also what it cannot explain.
 */
#include "support/replay.h"

TEST(test_empty_cache_before_a_hit)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 100, 0);

    scene_alloc(scene, 100, 0);
    scene_free(scene, a);
    scene_free(scene, b);
    scene_empty_cache(scene);
    scene_alloc(scene, 100, 0);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 1);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_empty_cache_before_a_miss)
{
    struct scene *scene = scene_open("", 500 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 40 * MIB, 4);

    scene_free(scene, a);
    scene_free(scene, b);
    scene_empty_cache(scene);
    scene_alloc(scene, 30 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_alloc_retries, 0);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_retry_releases_all)
{
    struct scene *scene = scene_open("", 100 * MIB, 0);
    uint64_t blocks[4];

    for (size_t i = 0; i < 4; i++) {
        blocks[i] = scene_alloc(scene, (12 + 4 * i) * MIB, i % 2);
    }
    scene_alloc(scene, 100, 0);
    for (size_t i = 0; i < 4; i++) {
        scene_free(scene, blocks[i]);
    }
    scene_alloc(scene, 60 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_alloc_retries, 1);
    assert_int_equal(scene->stats.num_sync_all_streams, 1);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_out_of_memory)
{
    struct scene *scene = scene_open("", 100 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);

    scene_alloc(scene, 50 * MIB, 0);
    scene_free(scene, a);
    assert_int_equal(scene_alloc(scene, 70 * MIB, 0), 0); /* after everything was released */
    assert_int_equal(scene_alloc(scene, 70 * MIB, 0), 0); /* and when nothing is left to release */
    scene_alloc(scene, 20 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_ooms, 2);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_release_available)
{
    struct scene *scene = scene_open("max_split_size_mb:20", 200 * MIB, 0);
    uint64_t blocks[3];

    for (size_t i = 0; i < 3; i++) {
        blocks[i] = scene_alloc(scene, (30 + 10 * i) * MIB, 0);
    }
    scene_alloc(scene, 30 * MIB, 0);
    for (size_t i = 0; i < 3; i++) {
        scene_free(scene, blocks[i]);
    }
    scene_alloc(scene, 80 * MIB, 0); /* 50 and 40 go, 30 stays */
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 2);
    assert_int_equal(scene->stats.num_alloc_retries, 0);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_garbage_collection)
{
    struct scene *scene = scene_open("garbage_collection_threshold:0.5", 200 * MIB, 0);
    uint64_t blocks[4];

    for (size_t i = 0; i < 4; i++) {
        blocks[i] = scene_alloc(scene, 30 * MIB, 0);
    }
    for (size_t i = 0; i < 4; i++) {
        scene_free(scene, blocks[i]);
        scene_free(scene, scene_alloc(scene, 5 * MIB, 3));
    }
    scene_alloc(scene, 34 * MIB, 0);
    scene_end(scene);
    assert_true(scene_count(scene, HISTORY_SEGMENT_FREE) > 0);
    assert_int_equal(scene->stats.num_sync_all_streams, 0);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_empty_cache_and_then_garbage_collection)
{
    struct scene *scene = scene_open("garbage_collection_threshold:0.1", 200 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 30 * MIB, 0);

    scene_free(scene, a);
    scene_empty_cache(scene);
    scene_free(scene, b);
    scene_free(scene, scene_alloc(scene, 5 * MIB, 3));
    scene_alloc(scene, 40 * MIB, 0);
    scene_end(scene);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* A block that comes back with the wait in the middle of a request is not searched for. */
TEST(test_completion_within_a_request_that_fails)
{
    struct scene *scene = scene_open("", 100 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 600 * KIB, 0);

    scene_alloc(scene, 600 * KIB, 0);
    scene_alloc(scene, 60 * MIB, 0);
    scene_free_used(scene, a, 901);
    scene_free_used(scene, b, 900);
    assert_int_equal(scene_alloc(scene, 64 * MIB, 0), 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_ooms, 1);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_completion_within_a_request_that_would_have_hit)
{
    struct scene *scene = scene_open("", 24 * MIB, 0);
    uint64_t a = scene_alloc(scene, 5 * MIB, 0);

    scene_alloc(scene, 15 * MIB, 0); /* the rest of the same segment */
    scene_free_used(scene, a, 900);
    assert_int_equal(scene_alloc(scene, 5 * MIB, 0), 0); /* PyTorch does not look again */
    scene_alloc(scene, 5 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_ooms, 1);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_ALLOC), 1);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_completion_makes_the_segment_that_is_released)
{
    struct scene *scene = scene_open("", 62 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);

    scene_alloc(scene, 20 * MIB, 0);
    scene_free_used(scene, a, 900);
    scene_alloc(scene, 100, 0);
    scene_alloc(scene, 28 * MIB, 0); /* waits, releases 30 MiB, gets 28 */
    scene_end(scene);
    assert_int_equal(scene->stats.num_alloc_retries, 1);
    assert_int_equal(scene_count(scene, HISTORY_OOM), 0);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* release_available comes before the wait, release_cached behind it. */
TEST(test_releases_on_both_sides_of_completions)
{
    struct scene *scene = scene_open("max_split_size_mb:20", 120 * MIB, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 40 * MIB, 0);
    uint64_t c = scene_alloc(scene, 2 * MIB, 0);

    scene_free(scene, a);
    scene_free_used(scene, b, 900);
    scene_free(scene, c);
    scene_alloc(scene, 110 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->stats.num_alloc_retries, 1);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* The device was full, and no limit says so: the history does. */
TEST(test_full_device_without_a_limit)
{
    struct scene *scene = scene_open("", 0, 100 * MIB);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 40 * MIB, 5);
    struct replay_result result;

    scene_free(scene, a);
    scene_free(scene, b);
    assert_int_equal(scene_alloc(scene, 120 * MIB, 0), 0);
    scene_alloc(scene, 60 * MIB, 0);
    assert_int_equal(scene_alloc(scene, 120 * MIB, 0), 0);
    scene_end(scene);
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    assert_int_equal(result.stats.num_ooms, 2);
    assert_int_equal(result.stats.num_alloc_retries, 2);
    scene_close(scene);
}

TEST(test_unexplained_release)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 40 * MIB, 0);
    struct history_event *events;
    struct replay_result result;

    scene_free(scene, a);
    scene_free(scene, b);
    scene_empty_cache(scene);
    scene_alloc(scene, 50 * MIB, 0);
    scene_end(scene);
    events = scene->history->devices[0].events;
    assert_int_equal(events[8].action, HISTORY_SEGMENT_FREE);
    assert_int_equal(events[9].action, HISTORY_SEGMENT_FREE);
    for (int swap = 0; swap < 2; swap++) {
        struct history_event first = events[8];

        assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
        assert_int_equal(result.mismatches, swap);
        events[8] = events[9]; /* the order of releases counts */
        events[9] = first;
    }
    assert_int_equal(result.first.event, 8);
    assert_non_null(strstr(result.first.got, "neither"));
    scene_close(scene);
}
