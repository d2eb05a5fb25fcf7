/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that contradict themselves: the event at fault is named, with what is wrong and since when, and not the
 * place where the replay noticed.
 * Costs: 1 s
 */
#include "support/replay.h"

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
