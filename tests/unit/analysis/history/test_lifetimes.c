/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lifetimes of a history's blocks: of what was live before its first event or is at its end, of frees that wait, of
 * blocks that no event names, and of pools. Numbers of events are times.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/history/history_lifetimes.h"
#include "support/replay.h"

#include <stdio.h>

/* BYTES@STREAM#POOL FROM-TO, in the order of lifetimes. */
static void expect_lifetimes(const struct scene *scene, const char *expected)
{
    struct history_lifetimes made;
    char text[1000] = "";
    history_lifetimes_make(scene->history, scene_device(scene), &made);
    assert_int_equal(made.lost, 0);
    for (size_t i = 0; i < made.count; i++) {
        const struct history_lifetime *one = &made.items[i];
        char lower[24] = "before", upper[24] = "end";
        if (one->lower >= 0) {
            snprintf(lower, sizeof(lower), "%lld", (long long)one->lower);
        }
        if (one->upper < (int64_t)scene_device(scene)->event_count) {
            snprintf(upper, sizeof(upper), "%lld", (long long)one->upper);
        }
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%llu@%llu#%llu %s-%s\n",
                 (unsigned long long)one->size, (unsigned long long)scene->history->streams[one->stream],
                 (unsigned long long)made.pools[one->pool][0], lower, upper);
    }
    assert_string_equal(text, expected);
    history_lifetimes_free(&made);
}

TEST(test_lifetimes)
{
    /* 0 segment, 1 a, 2 b, 3 c, 4 free of b asked for, 5 and 6 of a, 7 completed b, 8 d */
    struct scene *scene = scene_of("", 0, "a=1000 b=2000 c=3000 -b~900 -a /900 d=700");
    expect_lifetimes(scene, "1000@0#0 1-6\n2000@0#0 2-7\n3000@0#0 3-end\n700@0#0 8-end\n");
    scene_cut(scene, 4); /* a and b have frees; c no event, but it is in the segment at the end */
    expect_lifetimes(scene, "1000@0#0 before-2\n2000@0#0 before-3\n3000@0#0 before-end\n700@0#0 4-end\n");
    scene_close(scene);
    /* held back at the end, on another stream, and in a private pool that is there at the end */
    scene = scene_of("", 0, "a=1000@7 -a~900 b=2000#5");
    expect_lifetimes(scene, "1000@7#0 1-end\n2000@0#5 4-end\n");
    scene_close(scene);
}

/* Named pools go by their names; an address that comes again without a free ends the block that was there. */
TEST(test_named)
{
    struct history *history = history_new();
    struct history_device *device = history_device(history, 0);
    history->pool_count = 2;
    history->pool_ids[1][0] = 5;
    for (uint8_t pool = 0; pool < 3; pool++) {
        *history_add_event(device) =
            (struct history_event){.action = HISTORY_ALLOC, .addr = 4096, .size = 100, .pool = pool};
    }
    struct history_lifetimes made;
    history_lifetimes_make(history, device, &made);
    assert_int_equal(made.count, 3);
    assert_int_equal(made.lost, 2);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(made.items[i].upper, i + 1);
    }
    assert_int_equal(made.items[1].pool, 0);
    assert_int_equal(made.pools[made.items[2].pool][0], 5);
    history_lifetimes_free(&made);
    history_free(history);
}
