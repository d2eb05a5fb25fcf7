/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random lives of programs, with limits, streams, held-back frees and every option, are replayed from what PyTorch
 * would have recorded of them; then from any event on, within calls too; then with one event changed, which must be
 * found. And histories that begin late with blocks that only a later decision, or nothing but the state at the end,
 * shows. VARVE_TEST_SEED is the first seed of others for the lives that must replay.
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

static bool is_found(const struct scene *scene)
{
    struct replay_result result;
    return scene_try(scene, &result, NULL) != VARVE_OK || result.mismatches > 0 || !result.segments_equal;
}

/* One event changed in one way; false if that change says the same, or another possible history. */
static bool change(struct history_device *device, size_t index, unsigned kind)
{
    struct history_event *event = &device->events[index];
    if (event->action == HISTORY_OOM) {
        return false; /* another request, or one more, would have failed, too */
    }
    switch (kind) {
    case 0:
        event->addr += 512;
        return true;
    case 1:
        event->size += 512;
        return true;
    case 2:
        event->stream = event->stream == 0 ? 1 : 0;
        return true;
    case 3:
        history_add_event(device);
        memmove(&device->events[index + 1], &device->events[index], (device->event_count - index - 1) * sizeof(*event));
        return true;
    default:
        if (event->action == HISTORY_SEGMENT_ALLOC || event->action == HISTORY_SEGMENT_MAP) {
            return false; /* a late beginning */
        }
        memmove(event, event + 1, (device->event_count - index - 1) * sizeof(*event));
        device->event_count--;
        return true;
    }
}

TEST(test_every_changed_event_is_found)
{
    static const struct scene_life plain[] = {{"", 0, 200, 64, 1, 0, true}, {"", 150 * MIB, 200, 64, 1, 0, true}};
    uint16_t stream;
    size_t changed = 0;
    for (uint64_t seed = 1; seed <= (uint64_t)test_rounds(3, 6); seed++) {
        struct scene *scene = life_of(&plain[seed % 2], seed);
        struct history_device *device = scene_device(scene);
        size_t count = device->event_count;
        struct history_event *events = calloc(count, sizeof(*events));
        assert_non_null(events);
        assert_int_equal(history_stream(scene->history, 77, &stream), VARVE_OK);
        memcpy(events, device->events, count * sizeof(*events));
        for (size_t i = 0; i < 5 * count; i++) {
            if (change(device, i / 5, i % 5)) {
                changed++;
                if (!is_found(scene)) {
                    fail_msg("seed %llu: change %zu of event %zu (%u) went unnoticed", (unsigned long long)seed, i % 5,
                             i / 5, events[i / 5].action);
                }
            }
            device->event_count = count; /* there was room for them all */
            memcpy(device->events, events, count * sizeof(*events));
        }
        free(events);
        scene_close(scene);
    }
    assert_true(changed > 100);
}
