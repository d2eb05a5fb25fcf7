/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private pools of a history that does not name them: those whose segments are there at the end have names, the others
 * follow from what best fit passed over, and from the periods in which segments were used. Captures are on streams from
 * 50 on; scenes begin a pool anew for each request, which takes a reference each time.
 * Costs: 1 s
 */
#include "support/history_python.h"
#include "support/replay.h"

#include "analysis/history/infer_device.h"

static void derive(const struct scene *scene, struct replay_pools *pools)
{
    struct varve_alloc_snapshot start = {0};
    struct varve_alloc_config config;
    struct replay_hints hints = {0};
    varve_alloc_config_init(&config);
    *pools = (struct replay_pools){0};
    struct replay_reservations reservations;
    replay_reservations_find(scene->history, scene_device(scene), &start, &config, 1024 * MIB, &reservations);
    assert_int_equal(
        replay_pools_derive(scene->history, scene_device(scene), &start, &reservations, &hints, pools, NULL), VARVE_OK);
    replay_reservations_free(&reservations);
}

static uint16_t pool_of(const struct scene *scene, const struct replay_pools *pools, char letter)
{
    const struct history_device *device = scene_device(scene);
    for (size_t i = 0; i < device->event_count; i++) {
        if (device->events[i].action == HISTORY_ALLOC && device->events[i].addr == scene->blocks[letter - 'a']) {
            return pools->of_event[i];
        }
    }
    fail_msg("no such block");
    return 0;
}

static const struct {
    const char *conf, *calls;
    size_t given_back;
} scenes[] = {
    /* two graphs on one stream; the first one's pool is gone at the end, in the order that the history shows */
    {"",
     "g=100@50 a=6M@50 -a a=900@50#1 b=6M@50#1 c=6M@50#1 -a -b -c +200@50 +900@50#2 +6M@50#2 +6M@50#2 R1*3 E -g +3M",
     3},
    /* pools are released in the order of the history */
    {"",
     "+3M@50 +100@50#1 a=15M@50#1 +100@50#1 +100@51#2 b=15M@51#2 +100@51#2 +100@52#3 c=15M@52#3 +100@52#3 -a -b -c "
     "R3*3 R1*3 E +100 R2*3 E",
     3},
    /* two pools of expandable segments, one of them gone at the end */
    {"expandable_segments:True", "+5M@50 +100@50 +3M@50#1 a=45M@50#1 +3M@51#2 +45M@51#2 -a R1*2 E +30M@50", 0},
};

TEST(test_pools_that_are_gone_at_the_end)
{
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        struct scene *scene = scene_of(scenes[i].conf, 0, scenes[i].calls);
        assert_int_equal(scene_count(scene, HISTORY_SEGMENT_FREE), scenes[i].given_back);
        assert_int_equal(scene_count(scene, HISTORY_SEGMENT_UNMAP) > 0, scenes[i].conf[0] != '\0');
        scene_expect_equal(scene);
    }
}

/* A capture on its own stream while free blocks of the default pool would fit. */
TEST(test_pool_that_is_there_at_the_end)
{
    struct scene *scene = scene_of("", 0, "b=300K@50 -b i=300K@50#7 +5M@50#7 a=200K@50");
    assert_int_equal(scene->blocks['a' - 'a'], scene->blocks['b' - 'a']);
    struct replay_pools pools;
    derive(scene, &pools);
    assert_int_equal(pools.count, 2);
    assert_int_equal(pools.ids[1].capture, 7);
    assert_int_equal(pool_of(scene, &pools, 'b'), 0);
    assert_int_equal(pool_of(scene, &pools, 'i'), 1);
    replay_pools_free(&pools);
    scene_expect_equal(scene);
}

/* Nothing at the end names pools: the replay finds that it cannot be without. */
TEST(test_all_pools_are_gone_at_the_end)
{
    struct scene *scene = scene_of("", 0, "a=6M@50 -a b=6M@50#1 -b +6M@50 R1*1 E");
    assert_true(scene_expect_decisions(scene, 0).derived_pools);
    scene_close(scene);
}

/* Newer versions name the pool in each event: what no proof shows is known then. */
TEST(test_events_that_name_their_pool)
{
    struct scene *scene = scene_open("", 0, 0);
    scene->names_pools = true;
    scene_play(scene, "i=300K@50#9 -i R9*1 E +300K@50");
    scene_end(scene);
    struct replay_pools pools;
    derive(scene, &pools);
    assert_int_equal(pools.count, 2);
    assert_int_equal(pools.ids[1].capture, 9);
    assert_int_equal(pool_of(scene, &pools, 'i'), 1);
    replay_pools_free(&pools);
    scene_expect_equal(scene);
}

TEST(test_the_reader_takes_the_names)
{
    FILE *pipe = python_open("pack(snapshot(device_traces=[[event(pool_id=(5, 3))]]))\n", "");
    struct varve_message message = {""};
    struct made made;
    assert_true(python_next(pipe, &made));
    struct history *history;
    assert_int_equal(read_bytes(made.data, made.bytes, &history, &message), VARVE_OK);
    assert_int_equal(history->devices[0].events[0].pool, 1);
    assert_int_equal(history->pool_count, 1);
    assert_int_equal(history->pool_ids[0][0], 5);
    assert_int_equal(history->pool_ids[0][1], 3);
    assert_true(replay_pools_are_named(&history->devices[0]));
    history_free(history);
    made_free(&made);
    assert_false(python_next(pipe, &made));
}
