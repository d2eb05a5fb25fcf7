/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The skyline of the exact search is what its items make it after any steps and undos, and an undo leads back to the
 * state of then.
 */
#include "cmocka.h"

#include "analysis/placement/skyline.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 30, SECTIONS_MAX = 12, DEPTH_MAX = 60, SKYLINES = 400, STEPS = 200 };

struct state {
    size_t changes;
    int64_t low[ITEMS_MAX], floor[SECTIONS_MAX], left[SECTIONS_MAX];
};

static void assert_sound(const struct skyline *skyline)
{
    struct varve_message message;

    if (skyline_check(skyline, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static void save(const struct skyline *skyline, struct state *state)
{
    state->changes = skyline->changes;
    memcpy(state->low, skyline->low, skyline->count * sizeof(*state->low));
    memcpy(state->floor, skyline->floor, skyline->sections * sizeof(*state->floor));
    memcpy(state->left, skyline->left, skyline->sections * sizeof(*state->left));
}

static void assert_undone(struct skyline *skyline, const struct state *state)
{
    skyline_undo(skyline, state->changes);
    assert_memory_equal(state->low, skyline->low, skyline->count * sizeof(*state->low));
    assert_memory_equal(state->floor, skyline->floor, skyline->sections * sizeof(*state->floor));
    assert_memory_equal(state->left, skyline->left, skyline->sections * sizeof(*state->left));
    assert_sound(skyline);
}

static struct skyline make_random(uint64_t *random)
{
    size_t count = 1 + random_below(random, ITEMS_MAX);
    uint32_t sections = 1 + (uint32_t)random_below(random, SECTIONS_MAX);
    struct skyline_item *items = calloc(count + sections, sizeof(*items));
    struct skyline skyline;
    int64_t height = 0;

    assert_non_null(items);
    for (size_t i = 0; i < count; i++) {
        items[i].first = (uint32_t)random_below(random, sections);
        items[i].end = items[i].first + 1 + (uint32_t)random_below(random, sections - items[i].first);
        items[i].size = 1 + (int64_t)random_below(random, 6);
        height += items[i].size;
    }
    height = height / 2 + 6;
    for (size_t i = 0; i < count; i++) {
        items[i].highest = height - items[i].size - (int64_t)random_below(random, 2);
    }
    skyline_make(&skyline, items, count, sections, height);
    return skyline;
}

/* An item that lies on the floor of all its sections, or SIZE_MAX. */
static size_t find_item(const struct skyline *skyline, uint64_t *random)
{
    size_t first = random_below(random, skyline->count);

    for (size_t k = 0; k < skyline->count; k++) {
        size_t i = (first + k) % skyline->count;
        bool lies = skyline->low[i] != SKYLINE_PLACED;

        for (uint32_t s = skyline->items[i].first; lies && s < skyline->items[i].end; s++) {
            lies = skyline->floor[s] == skyline->low[i];
        }
        if (lies) {
            return i;
        }
    }
    return SIZE_MAX;
}

static bool step(struct skyline *skyline, uint64_t *random)
{
    size_t item = find_item(skyline, random);
    uint32_t section = (uint32_t)random_below(random, skyline->sections);

    if (item != SIZE_MAX && random_below(random, 4) != 0) {
        return skyline_place(skyline, item);
    }
    return skyline->left[section] == 0 ||
           skyline_raise(skyline, section, skyline->floor[section] + 1 + (int64_t)random_below(random, 3));
}

static void walk(struct skyline *skyline, uint64_t *random, unsigned *placed)
{
    struct state states[DEPTH_MAX];
    unsigned depth = 0;

    for (unsigned i = 0; i < STEPS; i++) {
        if (depth > 0 && (depth == DEPTH_MAX || random_below(random, 6) == 0)) {
            depth = (unsigned)random_below(random, depth);
            assert_undone(skyline, &states[depth]);
            continue;
        }
        save(skyline, &states[depth]);
        for (uint32_t s = 0; s < skyline->sections; s++) {
            skyline_options(skyline, s);
        }
        if (step(skyline, random)) {
            assert_sound(skyline);
            depth++;
            *placed += skyline->left[0] == 0;
        } else {
            assert_undone(skyline, &states[depth]);
        }
    }
}

TEST(test_random_walks)
{
    uint64_t random = test_first_seed(1);
    unsigned placed = 0; /* steps after which the first section was full */

    for (unsigned i = 0; i < SKYLINES; i++) {
        struct skyline skyline = make_random(&random);
        bool fits = true;

        for (uint32_t s = 0; s < skyline.sections; s++) {
            fits = fits && skyline.left[s] <= skyline.height;
        }
        if (fits) {
            assert_sound(&skyline);
            walk(&skyline, &random, &placed);
        }
        skyline_free(&skyline);
    }
    assert_true(placed > SKYLINES);
}
