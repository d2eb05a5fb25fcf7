/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random lives of programs with captures: periods on a stream of their own in which requests go to a private pool, new
 * or used before, while the rest of the program goes on; pools die, memory is given back. And programs with pools in
 * turn, as torch.cuda.MemPool, each of which gives its memory back when it ends. Their histories are replayed
 * with and without the names of pools in the events, from the beginning and from any event on, with plain and with
 * expandable segments. VARVE_TEST_SEED=N runs seed N alone.
 * Costs: 1 s, full 2 s
 */
#include "support/command.h"
#include "support/random.h"
#include "support/replay.h"

#include "analysis/import/import.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdio.h>

#define BLOCKS 32
#define POOLS 8
#define CAPTURE_STREAM 50
#define IDS_MAX 40

struct life {
    struct scene *scene;
    uint64_t seed;
    uint64_t blocks[POOLS + 1][BLOCKS]; /* [POOLS]: of the default pool; else of pool number + 1 */
    size_t references[POOLS], pool_count;
    uint64_t ids[POOLS], id_last; /* of pools that take turns: 0 once it has ended */
    uint64_t streams;             /* that they take turns on */
};

static uint64_t random_size(struct life *life)
{
    switch (random_next(&life->seed) % 3) {
    case 0:
        return 1 + random_next(&life->seed) % (64 * KIB);
    case 1:
        return 1 + random_next(&life->seed) % (4 * MIB);
    default:
        return 1 * MIB + random_next(&life->seed) % (30 * MIB);
    }
}

static void step(struct life *life, size_t pool)
{
    uint64_t *block = &life->blocks[pool][random_next(&life->seed) % BLOCKS];
    if (*block != 0) {
        scene_free(life->scene, *block);
        *block = 0;
    } else if (pool == POOLS) {
        *block = scene_alloc(life->scene, random_size(life), random_next(&life->seed) % 2);
    } else {
        *block = scene_pool_alloc(life->scene, pool + 1, random_size(life), CAPTURE_STREAM + pool % 2);
        life->references[pool]++;
    }
}

static void capture(struct life *life)
{
    size_t pool = life->pool_count;
    size_t steps = 3 + random_next(&life->seed) % 30;
    if (pool >= POOLS || (pool > 0 && random_next(&life->seed) % 4 == 0)) {
        pool = (pool - 1) % POOLS; /* the same graph pool again */
    } else {
        life->pool_count++;
    }
    for (size_t i = 0; i < steps; i++) {
        step(life, pool);
    }
}

static void end_pool(struct life *life)
{
    size_t pool = life->pool_count > 0 ? random_next(&life->seed) % life->pool_count : 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (life->blocks[pool][i] != 0) {
            scene_free(life->scene, life->blocks[pool][i]);
            life->blocks[pool][i] = 0;
        }
    }
    if (pool + 1 < life->pool_count) { /* the newest may be used again */
        for (; life->references[pool] > 0; life->references[pool]--) {
            scene_release_pool(life->scene, pool + 1);
        }
    }
}

static struct scene *random_scene(const char *conf, uint64_t seed, bool names_pools)
{
    struct life life = {.seed = seed, .scene = scene_open(conf, 0, 0)};
    size_t steps = 20 + random_next(&life.seed) % 200;
    life.scene->names_pools = names_pools;
    for (size_t i = 0; i < steps; i++) {
        switch (random_next(&life.seed) % 40) {
        case 0:
            scene_empty_cache(life.scene);
            break;
        case 1:
            capture(&life);
            break;
        case 2:
            end_pool(&life);
            break;
        default:
            step(&life, POOLS);
        }
    }
    scene_end(life.scene);
    return life.scene;
}

#define UNDECIDED 141 /* the seed of a life whose pools look the same after its cut */

static void cut_at_random(struct scene *scene, uint64_t seed)
{
    scene_cut(scene, seed * 7919 % (scene_device(scene)->event_count + 1));
}

static void replay_life(const char *conf, uint64_t seed, bool names_pools, bool is_cut)
{
    struct scene *scene = random_scene(conf, seed, names_pools);
    if (is_cut) {
        cut_at_random(scene, seed);
    }
    if (!is_cut || names_pools || conf[0] != '\0' || seed != UNDECIDED) {
        scene_expect_decisions(scene, seed);
    }
    scene_close(scene);
}

TEST(test_lives)
{
    uint64_t first = test_first_seed(1), last = first == 1 ? (uint64_t)test_rounds(60, 150) : first;
    for (uint64_t seed = first; seed <= last; seed++) {
        for (unsigned way = 0; way < 8; way++) {
            replay_life(way & 1 ? "expandable_segments:True" : "", seed, way & 2, way & 4);
        }
    }
}

/* ---- pools as torch.cuda.MemPool ---- */

/* Requests to a pool, or to the default one, by turns on the same streams. */
static void step_of_turns(struct life *life)
{
    size_t pool = random_next(&life->seed) % (2 * POOLS);
    uint64_t *block = &life->blocks[pool < POOLS ? pool : POOLS][random_next(&life->seed) % BLOCKS];
    uint64_t stream = random_next(&life->seed) % life->streams;
    bool waits = random_next(&life->seed) % 5 == 0;
    if (*block != 0) {
        scene_free_used(life->scene, *block, waits ? 900 + random_next(&life->seed) % 3 : 0);
        *block = 0;
    } else if (pool >= POOLS) {
        *block = scene_alloc(life->scene, random_size(life), stream);
    } else {
        life->ids[pool] = life->ids[pool] != 0 ? life->ids[pool] : ++life->id_last;
        *block = scene_pool_alloc(life->scene, life->ids[pool], random_size(life), stream);
    }
}

static void end_pools(struct life *life)
{
    for (size_t pool = 0; pool < POOLS; pool++) {
        if (life->ids[pool] != 0 && life->id_last < IDS_MAX && random_next(&life->seed) % 4 == 0) {
            for (size_t i = 0; i < BLOCKS; i++) {
                if (life->blocks[pool][i] != 0 && random_next(&life->seed) % 8 != 0) {
                    scene_free(life->scene, life->blocks[pool][i]);
                    life->blocks[pool][i] = 0;
                }
            }
            scene_end_pool(life->scene, life->ids[pool]);
            life->ids[pool] = 0;
        }
    }
}

/* Somewhere in the map of those that have ended. */
static void move_pools(struct life *life)
{
    for (uint64_t id = 1; id <= life->id_last; id++) {
        bool is_used = false;
        for (size_t pool = 0; pool < POOLS; pool++) {
            is_used |= life->ids[pool] == id;
        }
        if (!is_used && random_next(&life->seed) % 2 == 0) {
            scene_move_pool(life->scene, id);
        }
    }
}

/* While another thread allocates to a pool, which has had requests. */
static void fail_in_capture(struct life *life)
{
    uint64_t id = life->ids[random_next(&life->seed) % POOLS];
    if (id != 0) {
        scene_capture_elsewhere(life->scene, id, true);
        assert_int_equal(scene_alloc(life->scene, 2000 * MIB, 0), 0);
        scene_capture_elsewhere(life->scene, id, false);
    }
}

/* Nothing of the pools is left. */
static void end_all(struct life *life)
{
    for (size_t pool = 0; pool < POOLS; pool++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            if (life->blocks[pool][i] != 0) {
                scene_free(life->scene, life->blocks[pool][i]);
            }
        }
        if (life->ids[pool] != 0) {
            scene_end_pool(life->scene, life->ids[pool]);
        }
    }
    scene_empty_cache(life->scene);
}

static struct scene *scene_of_turns(const char *conf, uint64_t seed, bool names_pools)
{
    struct life life = {.seed = seed, .scene = scene_open(conf, 700 * MIB, 0), .streams = 1 + seed % 2};
    life.scene->names_pools = names_pools;
    size_t steps = 50 + random_next(&life.seed) % 500;
    for (size_t i = 0; i < steps; i++) {
        switch (random_next(&life.seed) % 60) {
        case 0:
            move_pools(&life);
            scene_empty_cache(life.scene);
            break;
        case 1:
        case 2:
            end_pools(&life);
            break;
        case 3:
            scene_finish_stream(life.scene, 900 + random_next(&life.seed) % 3);
            break;
        case 4:
            fail_in_capture(&life);
            break;
        default:
            step_of_turns(&life);
        }
    }
    if (seed % 3 == 0) {
        end_all(&life);
    }
    scene_end(life.scene);
    return life.scene;
}

/* Lives without names that come out, a digit for each seed from 1 on: the sum of 1 plain, 2 expandable, 4 plain and
 * cut, 8 expandable and cut. They are 318 of 1200: in the others pools and their ends can't be told from one
 * another. */
static const char decided[] =
    "0a4844050000840c00f5000cc840f0800b008500800a0880ef0800fb008c0e0f80b80ff80f0000a008000008f004fb08fc0a"
    "f0fa0f800000834a000d4f08f0f0df080800f00f00a0840ce2040cc3000f0080f4004808000f0002440d000a00f08a0a0080"
    "0cf84f8080f00a7ac000a00a00880f4ce8000b08ff0f0080aa00040c00080f000000084a00e0f0040a0f08800808810f0a00";

static bool is_decided(uint64_t seed, unsigned way)
{
    char digit[] = {decided[seed - 1], '\0'};
    return strtoul(digit, NULL, 16) >> ((way & 1) + (way & 4) / 2) & 1;
}

/* What does not come out has pools that it can't keep apart. Of a late one, whose pools are all gone, nothing may show
 * that there were any. */
static void expect_unnamed(const struct scene *scene, uint64_t seed, unsigned way)
{
    struct replay_result result;
    struct varve_message message = {""};
    if (scene_try(scene, &result, &message) != VARVE_OK) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, message.text);
    }
    bool comes_out = result.mismatches == 0 && result.segments_equal;
    if (seed < sizeof(decided) && comes_out != is_decided(seed, way)) {
        fail_msg("seed %llu, way %u: %s", (unsigned long long)seed, way,
                 comes_out ? "comes out, and is not among those that do" : "does not come out");
    }
    assert_true(comes_out || result.inferred_pools > 0 || way & 4);
}

TEST(test_lives_of_turns)
{
    uint64_t first = test_first_seed(1), last = first == 1 ? (uint64_t)test_rounds(40, 300) : first;
    for (uint64_t seed = first; seed <= last; seed++) {
        for (unsigned way = 0; way < 8; way++) {
            struct scene *scene = scene_of_turns(way & 1 ? "expandable_segments:True" : "", seed, way & 2);
            if (way & 4) {
                cut_at_random(scene, seed);
            }
            if (way & 2) {
                scene_expect_decisions(scene, seed);
            } else {
                expect_unnamed(scene, seed, way);
            }
            scene_close(scene);
        }
    }
}

/* One whose pools can't be kept apart says so, and how many there are. */
TEST(test_pools_that_are_undecided)
{
    struct scene *scene = random_scene("", UNDECIDED, false);
    char expected[100], *folder = test_folder_enter();
    cut_at_random(scene, UNDECIDED);
    struct replay_result result;
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_true(result.mismatches > 0);
    assert_true(result.inferred_pools > 0);
    struct varve_writer *writer;
    assert_int_equal(varve_writer_open("t.db", true, &writer, NULL), VARVE_OK);
    struct import_result imported;
    assert_int_equal(import_pytorch(scene->history, writer, NULL, &imported, NULL), VARVE_OK);
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, NULL), VARVE_OK);
    snprintf(expected, sizeof(expected), "%zu private pool%s can't be distinguished in this snapshot",
             result.inferred_pools, result.inferred_pools == 1 ? "" : "s");
    struct command_outcome outcome = command_run("replay", "--verify", "t.db", NULL);

    assert_int_equal(outcome.status, 2);
    assert_non_null(strstr(outcome.err, expected));
    command_outcome_free(&outcome);
    scene_close(scene);
    test_folder_leave(folder);
}
