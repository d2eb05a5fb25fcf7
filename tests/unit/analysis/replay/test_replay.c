/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replay finds out which calls a program made: frees at once and held back, completions in any order, empty_cache,
 * requests with their segments, several devices, expandable segments, snapshots in between; and whether a release came
 * from a request's own chain (garbage collection, release_available, release_cached) or from empty_cache. Each scene is
 * a short life of a program with a known course; events and all statistics must come out again. Of histories that
 * contradict themselves the event at fault is named, with what is wrong and since when, and not the place where the
 * replay noticed.
 * Costs: 1 s
 */
#include "support/random.h"
#include "support/replay.h"

#define NONE (-1)

static const struct {
    const char *what, *conf, *calls;
    uint64_t limit;
    int segments, given_back, completed, ooms, retries, syncs; /* 0: not compared; NONE: there is none */
} scenes[] = {
    {"nothing", "", "", .ooms = NONE},
    {"hits, splits, merges", "", "a=100 b=4000 c=3M -a +700 -b -c +30M +10M", .segments = 3},
    {"some complete, some wait", "",
     "a=8K@7 b=8K@7 c=8K@7 d=8K@7 e=8K@7 f=8K@7 -a~900 -b~901 -c~902 -d~900 /901 +512@7 -e~901 -f~902 /900 +512",
     .completed = 3},
    /* a completion that comes right behind its free by chance is replayed as a free at once */
    {"deferred, looks immediate", "", "a=3M -a~900 /900 +2M", .ooms = NONE},
    {"empty_cache completes and releases", "", "a=30M b=30M@5 c=100@5 d=100 -a~902 -b~901 -c E -d E", .given_back = 4},
    /* completions and then a free: only empty_cache waits for streams without a request */
    {"empty_cache releases nothing", "", "a=100 b=100 -a~900 +5M E -b", .syncs = 1},
    {"expandable, holes in the middle", "expandable_segments:True",
     "a=45M b=50M c=3M d=100K -b +33M -a E +70M -c -d E +900K", .ooms = NONE},
    {"empty_cache before a hit", "", "a=30M b=100 +100 -a -b E +100", .given_back = 1},
    {"empty_cache before a miss", "", "a=30M b=40M@4 -a -b E +30M", 500 * MIB, .retries = NONE},
    {"a retry releases all", "", "a=12M b=16M@1 c=20M d=24M@1 +100 -a -b -c -d +60M", 100 * MIB, .retries = 1,
     .syncs = 1},
    /* after everything was released, and when nothing is left to release */
    {"out of memory", "", "a=30M +50M -a !70M !70M +20M", 100 * MIB, .ooms = 2},
    {"release_available: 50 and 40 go, 30 stays", "max_split_size_mb:20", "a=30M b=40M c=50M +30M -a -b -c +80M",
     200 * MIB, .given_back = 2, .retries = NONE},
    {"garbage collection", "garbage_collection_threshold:0.5",
     "a=30M b=30M c=30M d=30M -a e=5M@3 -e -b e=5M@3 -e -c e=5M@3 -e -d e=5M@3 -e +34M", 200 * MIB, .given_back = 3,
     .syncs = NONE},
    {"empty_cache, then garbage collection", "garbage_collection_threshold:0.1", "a=30M b=30M -a E -b c=5M@3 -c +40M",
     200 * MIB, .ooms = NONE},
    /* a block that comes back with the wait in the middle of a request is not searched for */
    {"completion in a request that fails", "", "a=30M b=600K +600K +60M -a~901 -b~900 !64M", 100 * MIB, .ooms = 1},
    {"completion in a request that would have hit", "", "a=5M +15M -a~900 !5M +5M", 24 * MIB, .segments = 1, .ooms = 1},
    {"completion makes what is released", "", "a=30M +20M -a~900 +100 +28M", 62 * MIB, .ooms = NONE, .retries = 1},
    /* release_available comes before the wait, release_cached behind it */
    {"releases on both sides of completions", "max_split_size_mb:20", "a=30M b=40M c=2M -a -b~900 -c +110M", 120 * MIB,
     .given_back = 3, .retries = 1},
};

static void expect_count(const char *what, const char *of, int expected, int64_t count)
{
    if (expected != 0 && count != (expected == NONE ? 0 : expected)) {
        fail_msg("%s: %lld %s", what, (long long)count, of);
    }
}

TEST(test_scenes)
{
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        struct scene *scene = scene_of(scenes[i].conf, scenes[i].limit, scenes[i].calls);
        const struct varve_alloc_stats *stats = &scene->stats;
        expect_count(scenes[i].what, "segments", scenes[i].segments,
                     (int64_t)scene_count(scene, HISTORY_SEGMENT_ALLOC));
        expect_count(scenes[i].what, "given back", scenes[i].given_back,
                     (int64_t)scene_count(scene, HISTORY_SEGMENT_FREE));
        expect_count(scenes[i].what, "completed", scenes[i].completed,
                     (int64_t)scene_count(scene, HISTORY_FREE_COMPLETED));
        expect_count(scenes[i].what, "failed", scenes[i].ooms, stats->num_ooms);
        expect_count(scenes[i].what, "retries", scenes[i].retries, stats->num_alloc_retries);
        expect_count(scenes[i].what, "waits", scenes[i].syncs, stats->num_sync_all_streams);
        scene_expect_equal(scene);
    }
}

/* Completed by handle, that is c, b, a: not in the order of the frees. */
TEST(test_deferred_frees_in_the_order_of_the_trace)
{
    struct scene *scene = scene_of("", 0, "a=4K b=4K c=4K -a~903 -b~902 -c~901 /901 /902 /903 +12K");
    assert_int_equal(scene_device(scene)->events[7].addr, scene->blocks['c' - 'a']);
    scene_expect_equal(scene);
}

TEST(test_published_offsets)
{
    static const uint64_t offsets[] = {0, 37888, 38400, 38912, 39424, 39936};
    struct scene *scene = scene_of("", 0, "a=37683 b=256 c=256 d=256 e=256 f=8");
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(scene->blocks[i] - scene->blocks[0], offsets[i]);
    }
    scene_expect_equal(scene);
}

/* How much memory the device had is not known then; reservations of 9/8 of it must not overlap. */
TEST(test_expandable_segments_of_a_small_device)
{
    struct scene *scene =
        scene_of("expandable_segments:True", 0, "+30M +100 +30M@1 +100@1 +30M@2 +100@2 +30M@3 +100@3");
    struct replay_options options = {.follow = true, .conf = scene->conf};
    struct replay_result result;
    for (size_t cut = 0; cut <= 9; cut += 9) {
        scene_cut(scene, cut);
        assert_int_equal(replay_run(scene->history, &options, &result, NULL), VARVE_OK);
        assert_int_equal(result.mismatches, 0);
        assert_true(result.segments_equal);
    }
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

/* Also within a retry, and a request that fails. */
TEST(test_snapshots_in_between_do_not_matter)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct scene *scene = scene_of("", 64 * MIB, "a=30M b=100 -b~900 /900 -a +50M !60M");
        add_snapshots(scene_device(scene), seed);
        scene_expect_equal(scene);
    }
}

TEST(test_several_devices)
{
    struct scene *scene = scene_of("", 0, "+5M +100@3");
    struct history_device *second = history_device(scene->history, 2), *first = scene_device(scene);
    for (size_t i = 0; i < first->event_count; i++) {
        *history_add_event(second) = first->events[i];
    }
    for (size_t i = 0; i < first->segment_count; i++) {
        *history_add_segment(second) = first->segments[i];
    }
    for (size_t i = 0; i < first->block_count; i++) {
        *history_add_block(second) = first->blocks[i];
    }
    struct replay_result result = scene_expect_decisions(scene, 0);
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
    static const char *const confs[] = {"max_split_size_mb:40,large_segment_size_mb:32",
                                        "roundup_power2_divisions:[1:4,4:2,>:8]", "garbage_collection_threshold:0.5",
                                        "expandable_segments:True", "large_segment_size_mb:12"};
    for (size_t i = 0; i < sizeof(confs) / sizeof(confs[0]); i++) {
        struct scene *scene = scene_open(confs[i], 256 * MIB, 0);
        for (uint64_t size = 3 * MIB; size < 60 * MIB; size += 7 * MIB) {
            uint64_t addr = scene_alloc(scene, size + 4321, 0);
            scene_alloc(scene, size / 3, 0);
            scene_free(scene, addr);
        }
        scene_end(scene);
        assert_int_equal(replay_settings(scene->history, confs[i], &scene->history->settings, NULL), VARVE_OK);
        scene->conf = NULL;
        scene_expect_equal(scene);
    }
}

/* Without the limit that it acts on, garbage collection cannot come out: what to give is said. */
TEST(test_limit_that_is_missing)
{
    struct scene *scene = scene_of("garbage_collection_threshold:0.3", 200 * MIB,
                                   "a=30M -a +512K a=50M -a +512K a=70M -a +512K +90M +20M");
    assert_true(scene_count(scene, HISTORY_SEGMENT_FREE) > 0);
    scene_expect_decisions(scene, 0);
    scene->limit = 0;
    struct replay_result result;
    assert_int_equal(scene_try(scene, &result, NULL), VARVE_OK);
    assert_true(result.mismatches > 0);
    assert_non_null(result.advice);
    assert_non_null(strstr(result.advice, "--memory-limit"));
    scene_close(scene);
}

/* The device was full, and no limit says so: the history does. */
TEST(test_full_device_without_a_limit)
{
    struct scene *scene = scene_open("", 0, 100 * MIB);
    scene_play(scene, "a=30M b=40M@5 -a -b !120M +60M !120M");
    scene_end(scene);
    struct replay_result result = scene_expect_decisions(scene, 0);

    assert_int_equal(result.stats.num_ooms, 2);
    assert_int_equal(result.stats.num_alloc_retries, 2);
    scene_close(scene);
}

/* The first failure has an expandable segment to grow, and units are not given. */
TEST(test_full_device_and_expandable_segments)
{
    struct scene *scene = scene_open("expandable_segments:True", 0, 161 * MIB);
    scene_play(scene, "a=90M b=30M !70M -a +20M +40M");
    scene_end(scene);
    struct replay_result result = scene_expect_decisions(scene, 0);
    assert_int_equal(result.stats.num_ooms, 1);
    scene_close(scene);
}

TEST(test_unexplained_release)
{
    struct scene *scene = scene_of("", 0, "a=30M b=40M -a -b E +50M");
    struct history_event *events = scene_device(scene)->events;
    assert_int_equal(events[8].action, HISTORY_SEGMENT_FREE);
    assert_int_equal(events[9].action, HISTORY_SEGMENT_FREE);
    struct replay_result result;
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

static void insert(struct scene *scene, size_t index, enum history_action action, uint64_t addr, uint64_t size)
{
    struct history_device *device = scene_device(scene);
    history_add_event(device);
    memmove(&device->events[index + 1], &device->events[index],
            (device->event_count - 1 - index) * sizeof(*device->events));
    device->events[index] = (struct history_event){.action = (uint8_t)action, .addr = addr, .size = size};
}

static void expect_refused(struct scene *scene, const char *event, const char *reason)
{
    struct varve_message message = {""};
    struct replay_result result;
    assert_int_equal(scene_try(scene, &result, &message), VARVE_ERROR_FORMAT);
    if (strstr(message.text, event) == NULL || strstr(message.text, reason) == NULL) {
        fail_msg("\"%s\" says neither \"%s\" nor \"%s\"", message.text, event, reason);
    }
    assert_null(strchr(message.text, '\n'));
    scene_close(scene);
}

/* One or two events, with the second right behind the first; addresses are that of event `of`, and `offset`. */
static const struct {
    size_t at, of;
    enum history_action action, second; /* 0, HISTORY_ALLOC: no second one */
    int64_t offset;
    uint64_t size;
    const char *event, *reason, *conf;
} cases[] = {
    {3, 2, HISTORY_ALLOC, 0, 0, 8 * KIB, "event 3 ", "in use; its free was expected first since event 2", ""},
    {3, 0, HISTORY_FREE_REQUESTED, HISTORY_FREE_COMPLETED, MIB, 512, "event 3 ", "nothing was allocated there", ""},
    {5, 1, HISTORY_FREE_REQUESTED, HISTORY_FREE_COMPLETED, 0, 4 * KIB, "event 5 ", "that block is free since event 4",
     ""},
    {3, 2, HISTORY_FREE_COMPLETED, 0, 0, 8 * KIB, "event 3 ", "no free_requested came for that block", ""},
    {4, 0, HISTORY_SEGMENT_ALLOC, 0, 0, 2 * MIB, "event 4 ", "there is one since event 0", ""},
    {4, 0, HISTORY_SEGMENT_ALLOC, 0, -(int64_t)MIB, 2 * MIB, "event 4 ", "another one begins within it", ""},
    {4, 0, HISTORY_SEGMENT_MAP, 0, 0, 2 * MIB, "event 4 ", "there is one since event 0", "expandable_segments:True"},
    {3, 0, HISTORY_ALLOC, 0, -64 * (int64_t)MIB, 512, "event 3 ", "no segment is there", ""},
    {6, 0, HISTORY_SEGMENT_FREE, 0, 0, 4 * MIB, "event 6 ", "the segment there is another since event 0", ""},
    /* it could have been there before the history, but not a second time */
    {6, 0, HISTORY_SEGMENT_FREE, HISTORY_SEGMENT_FREE, 64 * (int64_t)MIB, 4 * MIB, "event 7 ",
     "that segment is gone since event 6", ""},
};

TEST(test_contradictions)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* 0 segment_alloc, 1 alloc, 2 alloc, 3 and 4 free, 5 alloc, 6 segment_alloc, 7 alloc */
        struct scene *scene = scene_of(cases[i].conf, 0, "a=4K +8K -a +2K +30M");
        assert_int_equal(scene_device(scene)->event_count, 8);
        uint64_t addr = scene_device(scene)->events[cases[i].of].addr + (uint64_t)cases[i].offset;

        if (cases[i].second != 0) {
            insert(scene, cases[i].at, cases[i].second, addr, cases[i].size);
        }
        insert(scene, cases[i].at, cases[i].action, addr, cases[i].size);
        expect_refused(scene, cases[i].event, cases[i].reason);
    }
}
