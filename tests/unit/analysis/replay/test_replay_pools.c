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

/* … nor is there a stream on which a graph could have been captured: these are of a MemPool. */
TEST(test_all_pools_of_one_stream_are_gone_at_the_end)
{
    static const char *const calls[] = {
        "a=6M -a b=6M#1 -b +6M R1*1 E",
        "a=700 -a b=700#1 d=6M#1 -b -d c=9M -c P1 +700 E",
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct scene *scene = scene_of("", 0, calls[i]);
        assert_int_equal(scene->history->stream_count, 1);
        assert_true(scene_expect_decisions(scene, i).derived_pools);
        scene_close(scene);
    }
}

/* A failure has no address, so that nothing says which pool it was in. As in the program, nothing waits for all
 * streams: no pool ended, and the request did not release all. */
TEST(test_failures_in_pools_without_names)
{
    static const struct {
        const char *calls;
        bool is_known; /* else one that waits for all releases the same */
    } cases[] = {
        {"a=30M b=24M#1 c=24M#1 d=21M#1 -a -b !70M#1 +100", true},              /* nothing of the default pool goes */
        {"a=30M b=24M#1 c=24M#1 d=21M#1 -a -b -c !90M#1 +100", true},           /* oversize blocks of the pool do */
        {"a=30M b=24M#1 c=24M#1 d=21M#1 f=5M#1 -a -b -c !90M#1 e=5M#1", true},  /* … and it goes on */
        {"a=30M b=24M#1 c=24M#2 d=21M#2 e=21M#1 -a -b -c !60M#2 +100", true},   /* of another pool */
        {"a=30M b=24M#1 c=24M#1 d=21M#1 -a -b [2 !90M ]2 +100 -c [2 !90M ]2 E", /* of the default pool, in a capture */
         false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_of("max_split_size_mb:20", 130 * MIB, cases[i].calls);
        assert_true(scene_count(scene, HISTORY_OOM) > 0);
        struct replay_result result = scene_expect_decisions(scene, i);
        if (cases[i].is_known) {
            assert_memory_equal(&result.stats, &scene->stats, sizeof(result.stats));
        }
        scene_close(scene);
    }
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

/* Named, with what can't be known without the names; some of them under a limit. */
static const struct {
    const char *conf;
    uint64_t limit;
    const char *calls;
} named[] = {
    /* a MemPool ends, while the default pool and another private one have free segments */
    {"", 0, "a=30M b=30M#1 c=30M#2 d=5M#1 -a -b -c -d P1 +100 E"},
    {"", 0, "a=30M b=30M#1 c=30M#2 -a -b -c P1 P2 E +100"},
    {"", 0, "a=30M b=30M#1 c=30M#2 -a -b -c P1 E"},
    {"expandable_segments:True", 0, "a=30M b=30M#1 c=30M#2 d=5M#1 +100#1 -a -b -c P1 -d +30M#2"},
    {"", 0, "a=30M b=100#1 +100 c=40M#1 d=35M#1 -a -b -c -d P1 +100 E"},
    /* one whose blocks outlive it goes later, in a call of empty_cache or in a request's retry */
    {"", 0, "a=30M b=30M#1 c=30M#1 -a -b P1 -c +5M E +100"},
    {"", 90 * MIB, "a=30M b=30M#1 c=30M#1 -b P1 -c -a +60M +100"},
    /* it ends before a request that retries, and one that collects garbage */
    {"", 90 * MIB, "a=30M b=30M#1 c=20M#2 -a -b P1 +60M +100"},
    {"garbage_collection_threshold:0.5", 100 * MIB, "a=30M b=30M#1 c=30M#2 -a -b -c P1 +35M +1M P2 +2M"},
    /* it waits for its own blocks only */
    {"", 0, "a=30M b=30M#1 c=30M#2 -a~900 -b~901 -c~902 P1 +100 E"},
    {"", 0, "a=30M b=100#1 +100#1 c=30M#2 d=5M -a~900 -b~901 -c~902 P1 -d +100"},
    /* pools go in any order, in one call another than in the one before */
    {"", 0, "a=30M#1 b=30M#1 c=30M#2 d=30M#2 -a -c R1*2 R2*2 E -b -d O1 E"},
    {"", 0, "a=30M#1 b=30M#1 c=30M#2 d=30M#2 e=30M#3 -a -c -e R1*2 R2*2 R3*1 O1 E -b -d O1 O2 E +100"},
    {"expandable_segments:True", 0, "a=30M#1 b=30M#1 c=30M#2 d=30M#2 +1M#1 +1M#2 -a -c R1*3 R2*3 E -b -d O1 E"},
    /* a pool that is emptied and used again */
    {"", 0, "a=30M b=30M#1 -a -b R1*1 E c=30M#1 +5M#1"},
    /* a request of another thread's fails while a pool is in use: nothing is waited for, and nothing released */
    {"", 60 * MIB, "a=30M +20M#1 -a [1 !41M ]1 +30M"},
    {"max_split_size_mb:20", 80 * MIB, "a=30M b=15M c=20M#1 -a -b [1 !70M !71M ]1 +5M E"},
    {"", 60 * MIB, "a=30M +20M#1 -a~900 [1 !41M ]1 /900 +30M"},
    /* one in a pool releases no more than that pool's oversize blocks */
    {"max_split_size_mb:20", 130 * MIB, "a=30M b=24M#1 c=24M#1 d=21M#1 -a -b -c !90M#1 +100 E"},
    {"max_split_size_mb:20", 130 * MIB, "a=30M b=24M#1 c=24M#1 d=21M#1 -a -b -c !90M#1 e=5M#1"},
};

static struct scene *scene_named(size_t number)
{
    struct scene *scene = scene_open(named[number].conf, named[number].limit, 0);
    scene->names_pools = true;
    scene_play(scene, named[number].calls);
    scene_end(scene);
    return scene;
}

TEST(test_ends_and_orders_of_named_pools)
{
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        struct scene *scene = scene_named(i);
        scene_expect_decisions(scene, i);
        scene_close(scene);
    }
}

/* Under the same rules the same pools end, at the same requests. */
TEST(test_ends_of_pools_under_other_rules)
{
    struct scene *scene = scene_named(0);
    struct replay_options options = {.conf = "", .capacity = 1024 * MIB};
    struct replay_result result;
    assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
    assert_memory_equal(&result.stats, &scene->stats, sizeof(result.stats));
    scene_close(scene);
}

static bool comes_out(const struct scene *scene)
{
    struct replay_result result;
    return scene_try(scene, &result, NULL) == VARVE_OK && result.mismatches == 0 && result.segments_equal;
}

static void swap_events(struct history_event *a, struct history_event *b)
{
    struct history_event other = *a;
    *a = *b;
    *b = other;
}

static bool is_release(const struct history_event *event)
{
    return event->action == HISTORY_SEGMENT_FREE || event->action == HISTORY_SEGMENT_UNMAP;
}

/* Order is free between pools only: another size of any event and two releases of one pool the other way round are
 * found. */
TEST(test_what_named_pools_do_not_allow)
{
    size_t swapped = 0;
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        struct scene *scene = scene_named(i);
        struct history_event *events = scene_device(scene)->events;
        for (size_t j = 0; j < scene_device(scene)->event_count; j++) {
            events[j].size += 512;
            if (events[j].action != HISTORY_OOM && comes_out(scene)) { /* of that, the size is all that is known */
                fail_msg("scene %zu, event %zu: another size", i, j);
            }
            events[j].size -= 512;
        }
        for (size_t j = 1; j < scene_device(scene)->event_count; j++) {
            if (is_release(&events[j - 1]) && is_release(&events[j]) && events[j - 1].pool == events[j].pool) {
                swap_events(&events[j - 1], &events[j]);
                swapped++;
                if (comes_out(scene)) {
                    fail_msg("scene %zu, event %zu: another order", i, j);
                }
                swap_events(&events[j - 1], &events[j]);
            }
        }
        scene_close(scene);
    }
    assert_true(swapped > 0);
}

/* A request that fails and keeps free segments needs somebody to allocate to a private pool then: none is left here. */
TEST(test_a_failure_that_nothing_explains)
{
    for (int is_left = 0; is_left < 2; is_left++) {
        struct scene *scene = scene_open("", 60 * MIB, 0);
        scene->names_pools = true;
        scene_play(scene, "a=30M b=20M#1 -a -b");
        scene_play(scene, is_left ? "[2 !41M ]2 P1 E" : "P1 [2 !41M ]2 E");
        scene_end(scene);
        assert_int_equal(comes_out(scene), is_left);
        scene_close(scene);
    }
}

/* What the search of a request completes is completed outside of captures, so that it waits and releases all before it
 * fails; unless a capture can begin within the request. `b` is done, `c` is not. */
TEST(test_a_failure_behind_completions)
{
    static const struct {
        const char *conf, *calls;
        bool completes, comes_out;
    } cases[] = {
        {"max_split_size_mb:20", "a=30M b=5M c=5M +20M#1 -a -b~900 -c~901 /900", false, true},
        {"max_split_size_mb:20", "a=30M b=5M c=5M +20M#1 -a -b~900 -c~901 /900", true, false},
        {"", "b=5M c=5M +20M#1 -b~900 -c~901 /900", true, false}, /* nothing is released */
        {"max_split_size_mb:20,release_lock_on_cudamalloc:True", "a=30M b=5M c=5M +20M#1 -a -b~900 -c~901 /900", true,
         true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_open(cases[i].conf, 80 * MIB, 0);
        scene->names_pools = true;
        scene_play(scene, cases[i].calls);
        size_t before = scene_count(scene, HISTORY_FREE_COMPLETED);
        assert_int_equal(cases[i].completes ? varve_alloc_process_events(scene->alloc) : VARVE_OK, VARVE_OK);
        scene_play(scene, "[1 !70M ]1");
        scene_end(scene);
        assert_int_equal(scene_count(scene, HISTORY_FREE_COMPLETED) - before, cases[i].completes);
        if (comes_out(scene) != cases[i].comes_out) {
            fail_msg("case %zu", i);
        }
        scene_close(scene);
    }
}

/* A wait comes between what is released before and after it, whether or not a private pool is in use. */
TEST(test_a_failure_that_waits_beside_a_pool)
{
    struct scene *scene = scene_open("max_split_size_mb:20", 80 * MIB, 0);
    scene->names_pools = true;
    scene_play(scene, "a=30M b=15M +5M#1 -a -b~900 !70M");
    scene_end(scene);
    scene_expect_equal(scene);
}

/* A pool without users is there as long as it has a segment: PyTorch takes no request to it then. */
TEST(test_a_request_to_a_pool_without_users)
{
    static const struct {
        const char *calls;
        bool comes_out;
    } cases[] = {
        {"b=30M#1 d=5M#1 -b -d R1*2 E c=30M#1", true},
        {"b=30M#1 d=5M#1 -b R1*2 E -d E c=30M#1", true},
        {"b=30M#1 d=5M#1 -b R1*2 E c=30M#1", false},
        {"b=30M#1 d=5M#1 -b R1*2 E -d c=30M#1", false},
    };
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene *scene = scene_open(i % 2 ? "expandable_segments:True" : "", 0, 0);
        scene->names_pools = true;
        scene_play(scene, cases[i / 2].calls);
        scene_end(scene);
        if (comes_out(scene) != cases[i / 2].comes_out) {
            fail_msg("case %zu", i);
        }
        scene_close(scene);
    }
}

/* A segment that empty_cache keeps, of a pool that gave others back. */
TEST(test_a_release_that_is_missing)
{
    struct scene *scene = scene_open("", 0, 0);
    scene->names_pools = true;
    scene_play(scene, "a=30M#1 b=40M#1 c=30M -a -b -c R1*2 E +100");
    scene_end(scene);
    struct history_device *device = scene_device(scene);
    size_t last = 0;
    for (size_t i = 0; i < device->event_count; i++) {
        last = is_release(&device->events[i]) ? i : last;
    }
    memmove(&device->events[last], &device->events[last + 1],
            (device->event_count - last - 1) * sizeof(*device->events));
    device->event_count--;
    assert_false(comes_out(scene));
    scene_close(scene);
}
