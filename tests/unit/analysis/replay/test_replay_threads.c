/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One inference, played by several threads at once: each gets what one thread alone gets, following the history
 * and under other rules.
 * Costs: 1 s
 */
#include "support/replay.h"

#include <pthread.h>

#define THREADS 4
#define PLAYS 10

struct player {
    const struct replay_inference *inference;
    struct replay_options options;
    struct replay_result results[PLAYS];
    int errors[PLAYS];
};

static void *play(void *context)
{
    struct player *player = context;

    for (size_t i = 0; i < PLAYS; i++) {
        player->errors[i] = replay_play(player->inference, &player->options, &player->results[i], NULL);
    }
    return NULL;
}

/* Late, so that there is a start, with a private pool, deferred frees and expandable segments. */
static struct scene *make_scene(const char *conf)
{
    struct scene *scene = scene_open(conf, 0, 0);
    uint64_t blocks[200];

    scene_pool_alloc(scene, 7, 3 * MIB, 50);
    for (size_t i = 0; i < 200; i++) {
        blocks[i] = scene_alloc(scene, (i % 17 + 1) * 300 * KIB, i % 3);
        if (i % 3 == 2) {
            scene_free_used(scene, blocks[i - 1], 900 + i % 2);
        }
        if (i % 20 == 19) {
            scene_finish_stream(scene, 900);
            scene_finish_stream(scene, 901);
            scene_pool_alloc(scene, 7, i * 10 * KIB, 50);
            scene_empty_cache(scene);
        }
    }
    scene_end(scene);
    scene_cut(scene, 60);
    return scene;
}

static void play_together(const char *conf, const char *other_conf, bool follow)
{
    struct scene *scene = make_scene(conf);
    struct replay_options options = {
        .conf = follow ? conf : other_conf, .capacity = 1024 * MIB, .follow = follow};
    struct replay_inference *inference;
    struct replay_result first;
    struct varve_message message = {""};
    static struct player players[THREADS];
    pthread_t threads[THREADS];

    if (replay_infer(scene->history, &options, &inference, &first, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_int_equal(first.mismatches, 0);
    assert_int_equal(replay_play(inference, &options, &first, NULL), VARVE_OK);
    assert_true(first.allocations > 100);
    for (size_t i = 0; i < THREADS; i++) {
        players[i] = (struct player){.inference = inference, .options = options};
        assert_int_equal(pthread_create(&threads[i], NULL, play, &players[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (size_t i = 0; i < THREADS * PLAYS; i++) {
        const struct replay_result *result = &players[i / PLAYS].results[i % PLAYS];

        assert_int_equal(players[i / PLAYS].errors[i % PLAYS], VARVE_OK);
        assert_int_equal(result->mismatches, 0);
        assert_true(result->segments_equal);
        assert_int_equal(result->allocations, first.allocations);
        assert_int_equal(result->segments, first.segments);
        assert_memory_equal(&result->stats, &first.stats, sizeof(first.stats));
    }
    replay_inference_free(inference);
    scene_close(scene);
}

TEST(test_following)
{
    play_together("", NULL, true);
    play_together("expandable_segments:True", NULL, true);
}

TEST(test_under_other_rules)
{
    play_together("", "expandable_segments:True", false);
    play_together("expandable_segments:True", "max_split_size_mb:64", false);
}
