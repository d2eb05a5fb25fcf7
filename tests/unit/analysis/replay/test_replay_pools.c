/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools of a history that does not name them: those whose segments are there at the end have names,
 * the others follow from what best fit passed over, and from the periods in which segments were used.
 */
#include "support/replay.h"

#include "analysis/replay/infer/pools.h"

#include <unistd.h>

#define CAPTURE_STREAM 50

static void release_pool(struct scene *scene, uint64_t pool)
{
    struct varve_pool_id id = {pool, 0};

    assert_int_equal(varve_alloc_release_pool(scene->alloc, id), VARVE_OK);
}

/* Scenes begin a pool anew for each request, which takes a reference each time. */
static void drop_references(struct scene *scene, uint64_t pool, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        release_pool(scene, pool);
    }
}

static void derive(const struct scene *scene, struct replay_pools *pools)
{
    struct varve_alloc_snapshot start = {0};
    struct varve_alloc_config config;
    struct replay_reservations reservations;
    struct replay_hints hints = {0};

    varve_alloc_config_init(&config);
    *pools = (struct replay_pools){0};
    replay_reservations_find(scene->history, &scene->history->devices[0], &start, &config, 1024 * MIB,
                             &reservations);
    assert_int_equal(replay_pools_derive(scene->history, &scene->history->devices[0], &start, &reservations,
                                         &hints, pools, NULL),
                     VARVE_OK);
    replay_reservations_free(&reservations);
}

static uint16_t pool_of_address(const struct scene *scene, const struct replay_pools *pools, uint64_t addr)
{
    const struct history_device *device = &scene->history->devices[0];

    for (size_t i = 0; i < device->event_count; i++) {
        if (device->events[i].action == HISTORY_ALLOC && device->events[i].addr == addr) {
            return pools->of_event[i];
        }
    }
    fail_msg("no such block");
    return 0;
}

/* A capture on its own stream while free blocks of the default pool would fit. */
TEST(test_pool_that_is_there_at_the_end)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t before = scene_alloc(scene, 300 * KIB, CAPTURE_STREAM);
    uint64_t inside;
    uint64_t after;
    struct replay_pools pools;

    scene_free(scene, before);
    inside = scene_pool_alloc(scene, 7, 300 * KIB, CAPTURE_STREAM);
    scene_pool_alloc(scene, 7, 5 * MIB, CAPTURE_STREAM);
    after = scene_alloc(scene, 200 * KIB, CAPTURE_STREAM);
    scene_end(scene);
    assert_int_equal(after, before);
    derive(scene, &pools);
    assert_int_equal(pools.count, 2);
    assert_int_equal(pools.ids[1].capture, 7);
    assert_int_equal(pool_of_address(scene, &pools, before), 0);
    assert_int_equal(pool_of_address(scene, &pools, inside), 1);
    replay_pools_free(&pools);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Two graphs on one stream; the first one's pool is gone at the end, in the order that the history shows. */
TEST(test_pool_that_is_gone_at_the_end)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t generator = scene_alloc(scene, 100, CAPTURE_STREAM);
    uint64_t first[3];
    uint64_t second[3];

    scene_free(scene, scene_alloc(scene, 6 * MIB, CAPTURE_STREAM));
    for (size_t i = 0; i < 3; i++) {
        first[i] = scene_pool_alloc(scene, 1, i == 0 ? 900 : 6 * MIB, CAPTURE_STREAM);
    }
    for (size_t i = 0; i < 3; i++) {
        scene_free(scene, first[i]);
    }
    scene_alloc(scene, 200, CAPTURE_STREAM);
    for (size_t i = 0; i < 3; i++) {
        second[i] = scene_pool_alloc(scene, 2, i == 0 ? 900 : 6 * MIB, CAPTURE_STREAM);
        assert_true(second[i] != first[i] && second[i] != generator);
    }
    drop_references(scene, 1, 3);
    scene_empty_cache(scene);
    scene_free(scene, generator);
    scene_alloc(scene, 3 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Nothing at the end names pools: the replay finds that it cannot be without. */
TEST(test_all_pools_are_gone_at_the_end)
{
    struct scene *scene = scene_open("", 0, 0);
    struct replay_result result;
    uint64_t inside;

    scene_free(scene, scene_alloc(scene, 6 * MIB, CAPTURE_STREAM));
    inside = scene_pool_alloc(scene, 1, 6 * MIB, CAPTURE_STREAM);
    scene_free(scene, inside);
    scene_alloc(scene, 6 * MIB, CAPTURE_STREAM);
    drop_references(scene, 1, 1);
    scene_empty_cache(scene);
    scene_end(scene);
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_int_equal(result.mismatches, 0);
    assert_true(result.segments_equal);
    assert_true(result.derived_pools);
    scene_close(scene);
}

TEST(test_pools_are_released_in_the_order_of_the_history)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t blocks[3];

    scene_alloc(scene, 3 * MIB, CAPTURE_STREAM);
    for (uint64_t pool = 0; pool < 3; pool++) {
        scene_pool_alloc(scene, 1 + pool, 100, CAPTURE_STREAM + pool);
        blocks[pool] = scene_pool_alloc(scene, 1 + pool, 15 * MIB, CAPTURE_STREAM + pool);
        scene_pool_alloc(scene, 1 + pool, 100, CAPTURE_STREAM + pool);
    }
    for (size_t pool = 0; pool < 3; pool++) {
        scene_free(scene, blocks[pool]);
    }
    drop_references(scene, 3, 3);
    drop_references(scene, 1, 3);
    scene_empty_cache(scene);
    scene_alloc(scene, 100, 0);
    drop_references(scene, 2, 3);
    scene_empty_cache(scene);
    scene_end(scene);
    assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), 3);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Two pools of expandable segments, one of them gone at the end. */
TEST(test_expandable_pools)
{
    struct scene *scene = scene_open("expandable_segments:True", 0, 0);
    uint64_t inside[2];

    scene_alloc(scene, 5 * MIB, CAPTURE_STREAM);
    scene_alloc(scene, 100, CAPTURE_STREAM);
    for (uint64_t pool = 0; pool < 2; pool++) {
        scene_pool_alloc(scene, 1 + pool, 3 * MIB, CAPTURE_STREAM + pool);
        inside[pool] = scene_pool_alloc(scene, 1 + pool, 45 * MIB, CAPTURE_STREAM + pool);
    }
    scene_free(scene, inside[0]);
    drop_references(scene, 1, 2);
    scene_empty_cache(scene);
    scene_alloc(scene, 30 * MIB, CAPTURE_STREAM);
    scene_end(scene);
    assert_true(scene_count(scene, HISTORY_SEGMENT_UNMAP) > 0);
    scene_expect_equal(scene);
    scene_close(scene);
}

/* Newer versions name the pool in each event: what no proof shows is known then. */
TEST(test_events_that_name_their_pool)
{
    struct scene *scene = scene_open("", 0, 0);
    uint64_t inside;
    struct replay_pools pools;

    scene->names_pools = true;
    inside = scene_pool_alloc(scene, 9, 300 * KIB, CAPTURE_STREAM);
    scene_free(scene, inside);
    drop_references(scene, 9, 1);
    scene_empty_cache(scene);
    scene_alloc(scene, 300 * KIB, CAPTURE_STREAM);
    scene_end(scene);
    derive(scene, &pools);
    assert_int_equal(pools.count, 2);
    assert_int_equal(pools.ids[1].capture, 9);
    assert_int_equal(pool_of_address(scene, &pools, inside), 1);
    replay_pools_free(&pools);
    scene_expect_equal(scene);
    scene_close(scene);
}

static size_t put_text(char *at, const char *text)
{
    at[0] = 'X';
    at[1] = (char)strlen(text);
    at[2] = at[3] = at[4] = 0;
    memcpy(at + 5, text, strlen(text));
    return 5 + strlen(text);
}

/* {'device_traces': [[{'action': 'alloc', 'addr': 7, 'size': 1, 'stream': 0, 'pool_id': (5, 3)}]]} */
TEST(test_the_reader_takes_the_names)
{
    static const char *const keys[] = {"addr", "size", "stream"};
    char path[] = "/tmp/varve-replay-pools-XXXXXX";
    struct varve_message message = {""};
    struct history *history;
    char bytes[256];
    size_t count = 0;
    int file = mkstemp(path);

    assert_true(file >= 0);
    memcpy(bytes, (const char[]){'\x80', 2, '}'}, 3);
    count = 3 + put_text(bytes + 3, "device_traces");
    memcpy(bytes + count, (const char[]){']', ']', '}'}, 3);
    count += 3;
    count += put_text(bytes + count, "action");
    count += put_text(bytes + count, "alloc");
    bytes[count++] = 's';
    for (size_t i = 0; i < 3; i++) {
        count += put_text(bytes + count, keys[i]);
        memcpy(bytes + count, (const char[]){'K', 1, 's'}, 3);
        count += 3;
    }
    count += put_text(bytes + count, "pool_id");
    memcpy(bytes + count, (const char[]){'K', 5, 'K', 3, '\x86', 's', 'a', 'a', 's', '.'}, 10);
    count += 10;
    assert_int_equal(write(file, bytes, count), count);
    assert_int_equal(close(file), 0);
    if (history_read_pytorch(path, &history, NULL, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(history->devices[0].event_count, 1);
    assert_int_equal(history->devices[0].events[0].pool, 1);
    assert_int_equal(history->pool_count, 1);
    assert_int_equal(history->pool_ids[0][0], 5);
    assert_int_equal(history->pool_ids[0][1], 3);
    assert_true(replay_pools_are_named(&history->devices[0]));
    history_free(history);
}
