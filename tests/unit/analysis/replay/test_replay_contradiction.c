/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that contradict themselves: the event at fault is named, with what is wrong and since when, and
 * not the place where the replay noticed.
 */
#include "support/replay.h"

/* Events: 0 segment_alloc, 1 alloc, 2 alloc, 3 and 4 free, 5 alloc, 6 segment_alloc, 7 alloc. */
static struct scene *open_scene(const char *conf)
{
    struct scene *scene = scene_open(conf, 0, 0);
    uint64_t a = scene_alloc(scene, 4 * KIB, 0);

    scene_alloc(scene, 8 * KIB, 0);
    scene_free(scene, a);
    scene_alloc(scene, 2 * KIB, 0);
    scene_alloc(scene, 30 * MIB, 0);
    scene_end(scene);
    assert_int_equal(scene->history->devices[0].event_count, 8);
    return scene;
}

static struct history_event *insert(struct scene *scene, size_t index, enum history_action action,
                                    uint64_t addr, uint64_t size)
{
    struct history_device *device = &scene->history->devices[0];

    history_add_event(device);
    memmove(&device->events[index + 1], &device->events[index],
            (device->event_count - 1 - index) * sizeof(*device->events));
    device->events[index] = (struct history_event){.action = (uint8_t)action, .addr = addr, .size = size};
    return &device->events[index];
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

static uint64_t addr_of(const struct scene *scene, size_t index)
{
    return scene->history->devices[0].events[index].addr;
}

TEST(test_alloc_twice)
{
    struct scene *scene = open_scene("");

    insert(scene, 3, HISTORY_ALLOC, addr_of(scene, 2), 8 * KIB);
    expect_refused(scene, "event 3 ", "in use; its free was expected first since event 2");
}

TEST(test_free_of_nothing)
{
    struct scene *scene = open_scene("");

    insert(scene, 3, HISTORY_FREE_COMPLETED, addr_of(scene, 0) + MIB, 512);
    insert(scene, 3, HISTORY_FREE_REQUESTED, addr_of(scene, 0) + MIB, 512);
    expect_refused(scene, "event 3 ", "nothing was allocated there");
}

TEST(test_free_twice)
{
    struct scene *scene = open_scene("");

    insert(scene, 5, HISTORY_FREE_COMPLETED, addr_of(scene, 1), 4 * KIB);
    insert(scene, 5, HISTORY_FREE_REQUESTED, addr_of(scene, 1), 4 * KIB);
    expect_refused(scene, "event 5 ", "that block is free since event 4");
}

TEST(test_completion_without_request)
{
    struct scene *scene = open_scene("");

    insert(scene, 3, HISTORY_FREE_COMPLETED, addr_of(scene, 2), 8 * KIB);
    expect_refused(scene, "event 3 ", "no free_requested came for that block");
}

TEST(test_segment_twice)
{
    struct scene *scene = open_scene("");

    insert(scene, 4, HISTORY_SEGMENT_ALLOC, addr_of(scene, 0), 2 * MIB);
    expect_refused(scene, "event 4 ", "there is one since event 0");
}

TEST(test_segment_across_another)
{
    struct scene *scene = open_scene("");

    insert(scene, 4, HISTORY_SEGMENT_ALLOC, addr_of(scene, 0) - MIB, 2 * MIB);
    expect_refused(scene, "event 4 ", "another one begins within it");
}

TEST(test_mapped_twice)
{
    struct scene *scene = open_scene("expandable_segments:True");

    insert(scene, 4, HISTORY_SEGMENT_MAP, addr_of(scene, 0), 2 * MIB);
    expect_refused(scene, "event 4 ", "there is one since event 0");
}

TEST(test_alloc_outside_of_segments)
{
    struct scene *scene = open_scene("");

    insert(scene, 3, HISTORY_ALLOC, addr_of(scene, 0) - 64 * MIB, 512);
    expect_refused(scene, "event 3 ", "no segment is there");
}

TEST(test_other_size_given_back)
{
    struct scene *scene = open_scene("");

    insert(scene, 6, HISTORY_SEGMENT_FREE, addr_of(scene, 0), 4 * MIB);
    expect_refused(scene, "event 6 ", "the segment there is another since event 0");
}

/* It could have been there before the history, but not a second time. */
TEST(test_given_back_twice)
{
    struct scene *scene = open_scene("");

    insert(scene, 6, HISTORY_SEGMENT_FREE, addr_of(scene, 0) + 64 * MIB, 4 * MIB);
    insert(scene, 7, HISTORY_SEGMENT_FREE, addr_of(scene, 0) + 64 * MIB, 4 * MIB);
    expect_refused(scene, "event 7 ", "that segment is gone since event 6");
}
