/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay finds out which calls a program made: frees at once and held back, completions in any order,
 * empty_cache, requests with their segments, several devices, expandable segments, snapshots in between. Each
 * test is a short life of a program with a known course; events and all statistics must come out again.
 */
#include "support/random.h"
#include "support/replay.h"

TEST(test_hits_splits_merges)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 100, 0);
    uint64_t b = scene_alloc(scene, 4000, 0);
    uint64_t c = scene_alloc(scene, 3 * MIB, 0);

    scene_free(scene, a);
    scene_alloc(scene, 700, 0);
    scene_free(scene, b);
    scene_free(scene, c);
    scene_alloc(scene, 30 * MIB, 0);
    scene_alloc(scene, 10 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_ALLOC), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_published_offsets)
{
    static const uint64_t sizes[] = {37683, 256, 256, 256, 256, 8};
    static const uint64_t offsets[] = {0, 37888, 38400, 38912, 39424, 39936};
    struct scene *scene = scene_open("", 0, 0);
    uint64_t base = 0;

    for (size_t i = 0; i < 6; i++) {
        uint64_t addr = scene_alloc(scene, sizes[i], 0);

        base = i == 0 ? addr : base;
        assert_int_equal(addr - base, offsets[i]);
    }
    scene_end(scene);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_deferred_frees_in_the_order_of_the_trace)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 4 * KIB, 0);
    uint64_t b = scene_alloc(scene, 4 * KIB, 0);
    uint64_t c = scene_alloc(scene, 4 * KIB, 0);

    /* completed by handle, that is c, b, a: not in the order of the frees */
    scene_free_used(scene, a, 903);
    scene_free_used(scene, b, 902);
    scene_free_used(scene, c, 901);
    scene_finish_stream(scene, 901);
    scene_finish_stream(scene, 902);
    scene_finish_stream(scene, 903);
    scene_alloc(scene, 12 * KIB, 0);
    scene_end(scene);
    assert_int_equal(scene->history->devices[0].events[7].addr, c);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_some_complete_some_wait)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t blocks[6];

    for (size_t i = 0; i < 6; i++) {
        blocks[i] = scene_alloc(scene, 8 * KIB, 7);
    }
    for (size_t i = 0; i < 6; i++) {
        scene_free_used(scene, blocks[i], 900 + i % 3);
        if (i == 3) {
            scene_finish_stream(scene, 901);
            scene_alloc(scene, 512, 7);
        }
    }
    scene_finish_stream(scene, 900);
    scene_alloc(scene, 512, 0);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_FREE_COMPLETED), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* A completion that comes right behind its free by chance is replayed as a free at once. */
TEST(test_deferred_free_that_looks_immediate)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 3 * MIB, 0);

    scene_free_used(scene, a, 900);
    scene_finish_stream(scene, 900);
    scene_alloc(scene, 2 * MIB, 0);
    scene_end(scene);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_empty_cache_completes_and_releases)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 30 * MIB, 0);
    uint64_t b = scene_alloc(scene, 30 * MIB, 5);
    uint64_t c = scene_alloc(scene, 100, 5);
    uint64_t d = scene_alloc(scene, 100, 0);

    scene_free_used(scene, a, 902);
    scene_free_used(scene, b, 901);
    scene_free(scene, c);
    scene_empty_cache(scene);
    scene_free(scene, d);
    scene_empty_cache(scene);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 4);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Completions and then a free: only empty_cache waits for streams without a request. */
TEST(test_empty_cache_that_releases_nothing)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t a = scene_alloc(scene, 100, 0);
    uint64_t b = scene_alloc(scene, 100, 0);

    scene_free_used(scene, a, 900);
    scene_alloc(scene, 5 * MIB, 0);
    scene_empty_cache(scene);
    scene_free(scene, b);
    scene_end(scene);
    assert_int_equal(scene->stats.num_sync_all_streams, 1);
    scene_expect_equal(scene);
    scene_close(scene);
}

TEST(test_expandable_segments)
{
    struct scene *scene = scene_open("expandable_segments:True", 0, 0);
    uint64_t a = scene_alloc(scene, 45 * MIB, 0);
    uint64_t b = scene_alloc(scene, 50 * MIB, 0);
    uint64_t c = scene_alloc(scene, 3 * MIB, 0);
    uint64_t d = scene_alloc(scene, 100 * KIB, 0);

    scene_free(scene, b);
    scene_alloc(scene, 33 * MIB, 0);
    scene_free(scene, a);
    scene_empty_cache(scene); /* holes in the middle */
    scene_alloc(scene, 70 * MIB, 0);
    scene_free(scene, c);
    scene_free(scene, d);
    scene_empty_cache(scene);
    scene_alloc(scene, 900 * KIB, 0);
    scene_end(scene);
    assert_true(scene_count(scene, HISTORY_SEGMENT_UNMAP) >= 2);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* How much memory the device had is not known then; reservations of 9/8 of it must not overlap. */
TEST(test_expandable_segments_of_a_small_device)
{
    struct scene *scene = scene_open("expandable_segments:True", 0, 0);
    struct replay_options options = {.follow = true, .conf = scene->conf};
    struct replay_result result;

    for (uint64_t stream = 0; stream < 4; stream++) {
        scene_alloc(scene, 30 * MIB, stream);
        scene_alloc(scene, 100, stream);
    }
    scene_end(scene);
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    scene_cut(scene, 9);
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    scene_close(scene);
}

static void add_snapshots(struct history_device *device, uint64_t seed)
{
    size_t count = device->event_count;
    struct history_event *events = calloc(count, sizeof(*events));

    assert_non_null(events);
    memcpy(events, device->events, count * sizeof(*events));
    device->event_count = 0;
    for (size_t i = 0; i < count; i++) {
        while (random_below(&seed, 3) == 0) {
            history_add_event(device)->action = HISTORY_SNAPSHOT;
        }
        *history_add_event(device) = events[i];
    }
    history_add_event(device)->action = HISTORY_SNAPSHOT;
    free(events);
}

TEST(test_snapshots_in_between_do_not_matter)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct scene *scene = scene_open("", 64 * MIB, 0);
        uint64_t a = scene_alloc(scene, 30 * MIB, 0);
        uint64_t b = scene_alloc(scene, 100, 0);

        scene_free_used(scene, b, 900);
        scene_finish_stream(scene, 900);
        scene_free(scene, a);
        scene_alloc(scene, 50 * MIB, 0); /* after a retry */
        scene_alloc(scene, 60 * MIB, 0); /* none */
        scene_end(scene);
        assert_int_equal(scene->stats.num_alloc_retries, 2);
        assert_int_equal(scene->stats.num_ooms, 1);
        add_snapshots(&scene->history->devices[0], seed);
        scene_expect_equal(scene);
        scene_close(scene);
    }
}

TEST(test_several_devices)
{
    struct scene *scene = scene_open("", 0, 0);
    struct replay_result result;
    struct history_device *second;

    scene_alloc(scene, 5 * MIB, 0);
    scene_alloc(scene, 100, 3);
    scene_end(scene);
    second = history_device(scene->history, 2);
    assert_non_null(second);
    for (size_t i = 0; i < scene->history->devices[0].event_count; i++) {
        *history_add_event(second) = scene->history->devices[0].events[i];
    }
    for (size_t i = 0; i < scene->history->devices[0].segment_count; i++) {
        *history_add_segment(second) = scene->history->devices[0].segments[i];
    }
    for (size_t i = 0; i < scene->history->devices[0].block_count; i++) {
        *history_add_block(second) = scene->history->devices[0].blocks[i];
    }
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    assert_int_equal(result.events, 8);
    assert_int_equal(result.allocations, 4);
    assert_int_equal(result.stats.reserved_bytes[0].current, 2 * 22 * (int64_t)MIB);
    assert_int_equal(result.stats.max_split_size, -1);
    second->events[3].addr += 512;
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 1);
    assert_int_equal(result.first.device, 2);
    assert_int_equal(result.first.event, 3);
    scene_close(scene);
}

/* Nothing is said on the command line: what the snapshot holds, figures and text, has to do. */
TEST(test_settings_of_the_snapshot)
{
    static const char *const confs[] = {
        "max_split_size_mb:40,large_segment_size_mb:32", "roundup_power2_divisions:[1:4,4:2,>:8]",
        "garbage_collection_threshold:0.5", "expandable_segments:True", "large_segment_size_mb:12"};

    for (size_t i = 0; i < sizeof(confs) / sizeof(confs[0]); i++) {
        struct scene *scene = scene_open(confs[i], 256 * MIB, 0);

        for (uint64_t size = 3 * MIB; size < 60 * MIB; size += 7 * MIB) {
            uint64_t addr = scene_alloc(scene, size + 4321, 0);

            scene_alloc(scene, size / 3, 0);
            scene_free(scene, addr);
        }
        scene_end(scene);
        assert_int_equal(replay_settings(scene->history, confs[i], &scene->history->settings, NULL),
                         VARVE_OK);
        scene->conf = NULL;
        scene_expect_equal(scene);
        scene_close(scene);
    }
}

/* Without the limit that it acts on, garbage collection cannot come out: what to give is said. */
TEST(test_limit_that_is_missing)
{
    struct scene *scene = scene_open("garbage_collection_threshold:0.3", 200 * MIB, 0);
    struct replay_result result;

    for (size_t i = 0; i < 3; i++) {
        scene_free(scene, scene_alloc(scene, (30 + 20 * i) * MIB, 0));
        scene_alloc(scene, MIB / 2, 0);
    }
    scene_alloc(scene, 90 * MIB, 0);
    scene_alloc(scene, 20 * MIB, 0);
    scene_end(scene);
    assert_true(scene_count(scene, HISTORY_SEGMENT_FREE) > 0);
    scene_expect_equal(scene);
    scene->limit = 0;
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_true(result.mismatches > 0);
    assert_non_null(result.advice);
    assert_non_null(strstr(result.advice, "--memory-limit"));
    scene_close(scene);
}

TEST(test_nothing_happened)
{
    struct scene *scene = scene_open("", 0, 0);

    scene_end(scene);
    scene_expect_equal(scene);
    scene_close(scene);
}
