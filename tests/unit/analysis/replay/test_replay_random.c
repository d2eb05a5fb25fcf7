/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random lives of programs, with limits, streams, held-back frees and every option, are replayed from what
 * PyTorch would have recorded of them; then with their beginning cut off; then with one event changed, which
 * must be found. Seeds are fixed; VARVE_TEST_SEED is the first of others for the lives that must replay.
 */
#include "support/random.h"
#include "support/replay.h"

#include <stdlib.h>

#define BLOCKS 64

struct settings {
    const char *conf;
    uint64_t limit;
};

static const struct settings settings[] = {
    {"", 0},
    {"", 150 * MIB},
    {"max_split_size_mb:24", 200 * MIB},
    {"garbage_collection_threshold:0.6", 200 * MIB},
    {"garbage_collection_threshold:0.5,max_split_size_mb:32", 160 * MIB},
    {"roundup_power2_divisions:4", 150 * MIB},
    {"expandable_segments:True", 0},
    {"expandable_segments:True", 180 * MIB},
};

static uint64_t random_size(uint64_t *seed)
{
    switch (random_next(seed) % 4) {
    case 0:
        return 1 + random_next(seed) % (4 * KIB);
    case 1:
        return 1 + random_next(seed) % (2 * MIB);
    case 2:
        return 1 + random_next(seed) % (16 * MIB);
    default:
        return 10 * MIB + random_next(seed) % (40 * MIB);
    }
}

static void give_back(struct scene *scene, uint64_t *seed, uint64_t addr, bool uses_streams)
{
    if (uses_streams && random_next(seed) % 3 == 0) {
        scene_free_used(scene, addr, 900 + random_next(seed) % 4);
    } else {
        scene_free(scene, addr);
    }
}

static struct scene *random_scene(const struct settings *chosen, uint64_t seed, bool uses_streams)
{
    struct scene *scene = scene_open(chosen->conf, chosen->limit, 0);
    uint64_t blocks[BLOCKS] = {0};
    size_t steps = 20 + random_next(&seed) % 300;

    for (size_t i = 0; i < steps; i++) {
        uint64_t *block = &blocks[random_next(&seed) % BLOCKS];

        switch (random_next(&seed) % 40) {
        case 0:
            scene_empty_cache(scene);
            break;
        case 1:
        case 2:
        case 3:
            scene_finish_stream(scene, 900 + random_next(&seed) % 4);
            break;
        default:
            if (*block != 0) {
                give_back(scene, &seed, *block, uses_streams);
                *block = 0;
            } else {
                *block = scene_alloc(scene, random_size(&seed), uses_streams ? random_next(&seed) % 3 : 0);
            }
        }
    }
    scene_end(scene);
    return scene;
}

/* Two counters do not follow from events where empty_cache came right before a request that retries. */
static void forget_ambiguous(struct varve_alloc_stats *stats)
{
    stats->num_sync_all_streams = 0;
    stats->num_alloc_retries = 0;
}

static void expect_same(const struct scene *scene, uint64_t seed)
{
    struct varve_alloc_stats want = scene->stats;
    struct replay_result result;
    struct varve_message message = {""};

    if (scene_try(scene, &result, &message) != VARVE_OK) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, message.text);
    }
    if (result.mismatches != 0) {
        fail_msg("seed %llu, event %zu: expected %s; got %s", (unsigned long long)seed, result.first.event,
                 result.first.expected, result.first.got);
    }
    if (!result.segments_equal) {
        fail_msg("seed %llu: %s", (unsigned long long)seed, result.difference);
    }
    if (result.starts_late) {
        return;
    }
    forget_ambiguous(&want);
    forget_ambiguous(&result.stats);
    if (memcmp(&result.stats, &want, sizeof(want)) != 0) {
        fail_msg("seed %llu: other statistics", (unsigned long long)seed);
    }
}

TEST(test_random_lives)
{
    uint64_t first = test_first_seed(1);

    for (uint64_t seed = first; seed < first + 300; seed++) {
        struct scene *scene =
            random_scene(&settings[seed % (sizeof(settings) / sizeof(settings[0]))], seed, seed % 3 != 0);

        expect_same(scene, seed);
        scene_close(scene);
    }
}

/* Without collections: ages of blocks before the beginning are not known. */
TEST(test_histories_that_begin_late)
{
    uint64_t first = test_first_seed(1);

    for (uint64_t seed = first; seed < first + 60; seed++) {
        struct scene *scene = random_scene(&settings[seed % 2], seed, false);
        struct history_device *device = &scene->history->devices[0];
        size_t cut = device->event_count / 3;

        while (cut > 0 && device->events[cut - 1].action != HISTORY_FREE_COMPLETED) {
            cut--; /* between two calls */
        }
        device->event_count -= cut;
        memmove(device->events, device->events + cut, device->event_count * sizeof(*device->events));
        expect_same(scene, seed);
        scene_close(scene);
    }
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
        memmove(&device->events[index + 1], &device->events[index],
                (device->event_count - index - 1) * sizeof(*event));
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
    uint16_t stream;
    size_t changed = 0;

    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct scene *scene = random_scene(&settings[seed % 2], seed, false);
        struct history_device *device = &scene->history->devices[0];
        size_t count = device->event_count;
        struct history_event *events = calloc(count, sizeof(*events));

        assert_non_null(events);
        assert_int_equal(history_stream(scene->history, 77, &stream), VARVE_OK);
        memcpy(events, device->events, count * sizeof(*events));
        for (size_t i = 0; i < 5 * count; i++) {
            if (change(device, i / 5, i % 5)) {
                changed++;
                if (!is_found(scene)) {
                    fail_msg("seed %llu: change %zu of event %zu (%u) went unnoticed",
                             (unsigned long long)seed, i % 5, i / 5, events[i / 5].action);
                }
            }
            device->event_count = count; /* there was room for them all */
            memcpy(device->events, events, count * sizeof(*events));
        }
        free(events);
        scene_close(scene);
    }
    assert_true(changed > 1000);
}
