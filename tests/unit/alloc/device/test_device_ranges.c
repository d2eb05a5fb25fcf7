/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The treap of address ranges against a sorted array that knows no better: random insertions, removals and
 * searches, with addresses on and off the alignment and below the floor, walked after each step; and its cost
 * with a million ranges.
 * Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/device/ranges.h"
#include "alloc/device/slots.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define MODEL_MAX 400U
#define FLOOR 0x1000U
#define ALIGNMENT 64U
#define CHECK(condition, ...)      \
    do {                           \
        if (!(condition)) {        \
            fail_msg(__VA_ARGS__); \
        }                          \
    } while (0)

struct model {
    struct device_range *ranges[MODEL_MAX]; /* by address */
    size_t count;
};

static uint64_t end_of(const struct device_range *range)
{
    return range->addr + range->bytes;
}

static struct device_range *model_overlap(const struct model *model, uint64_t addr, uint64_t bytes)
{
    for (size_t i = 0; i < model->count; i++) {
        if (model->ranges[i]->addr < addr + bytes && addr < end_of(model->ranges[i])) {
            return model->ranges[i];
        }
    }
    return NULL;
}

static uint64_t model_first_fit(const struct model *model, uint64_t bytes)
{
    uint64_t addr = FLOOR;
    const struct device_range *other;
    while ((other = model_overlap(model, addr, bytes)) != NULL) {
        addr = (end_of(other) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        addr = addr < FLOOR ? FLOOR : addr;
    }
    return addr;
}

static void model_insert(struct model *model, struct device_range *range)
{
    size_t at = model->count;
    for (; at > 0 && model->ranges[at - 1]->addr > range->addr; at--) {
        model->ranges[at] = model->ranges[at - 1];
    }
    model->ranges[at] = range;
    model->count++;
}

static void insert(struct device_ranges *ranges, struct model *model, uint64_t addr, uint64_t bytes)
{
    struct device_range *range = calloc(1, sizeof(*range));
    assert_non_null(range);
    range->addr = addr;
    range->bytes = bytes;
    device_ranges_insert(ranges, range);
    model_insert(model, range);
}

static void step_insert(struct device_ranges *ranges, struct model *model, uint64_t *random, size_t step)
{
    uint64_t addr = 1 + random_next(random) % 0x8000;
    uint64_t bytes = 1 + random_next(random) % 300;
    uint64_t fit = 0;
    if (random_next(random) % 2) {
        assert_true(device_ranges_first_fit(ranges, bytes, &fit));
        CHECK(fit == model_first_fit(model, bytes), "step %zu: %#llx fits, not %#llx", step,
              (unsigned long long)model_first_fit(model, bytes), (unsigned long long)fit);
        insert(ranges, model, fit, bytes);
    } else if (!model_overlap(model, addr, bytes)) {
        insert(ranges, model, addr, bytes);
    }
}

static void step_search(const struct device_ranges *ranges, const struct model *model, uint64_t *random, size_t step)
{
    uint64_t addr = random_next(random) % 0x9000;
    uint64_t bytes = 1 + random_next(random) % 500;
    struct device_range *before = NULL, *after = NULL;
    for (size_t i = 0; i < model->count; i++) {
        if (model->ranges[i]->addr <= addr) {
            before = model->ranges[i];
        }
        if (!after && model->ranges[i]->addr >= addr) {
            after = model->ranges[i];
        }
    }
    CHECK(device_ranges_at_or_before(ranges, addr) == before, "step %zu: not the one before", step);
    CHECK(device_ranges_at_or_after(ranges, addr) == after, "step %zu: not the one after", step);
    CHECK(device_ranges_overlap(ranges, addr, bytes) == model_overlap(model, addr, bytes),
          "step %zu: not the one that overlaps", step);
}

TEST(test_ranges_against_model)
{
    struct model model = {.count = 0};
    struct device_ranges ranges;
    struct varve_message message = {""};
    uint64_t random = 42;
    device_ranges_init(&ranges, FLOOR, ALIGNMENT);
    for (size_t step = 0; step < 40000; step++) {
        bool grows = step / 5000 % 2 == 0;
        if (model.count < MODEL_MAX && random_next(&random) % 10 < (grows ? 7U : 3U)) {
            step_insert(&ranges, &model, &random, step);
        } else if (model.count > 0) {
            size_t at = random_next(&random) % model.count;
            device_ranges_remove(&ranges, model.ranges[at]);
            free(model.ranges[at]);
            model.count--;
            memmove(&model.ranges[at], &model.ranges[at + 1], (model.count - at) * sizeof(model.ranges[0]));
        }
        step_search(&ranges, &model, &random, step);
        CHECK(ranges.count == model.count, "step %zu: %llu ranges", step, (unsigned long long)ranges.count);
        CHECK(device_ranges_check(&ranges, "ranges", &message) == 0, "step %zu: %s", step, message.text);
    }
    device_ranges_close(&ranges);
}

TEST(test_ranges_at_the_ends)
{
    struct device_range *low = calloc(1, sizeof(*low)), *high = calloc(1, sizeof(*high));
    struct varve_message message = {""};
    uint64_t addr = 0;
    assert_non_null(low);
    assert_non_null(high);
    struct device_ranges ranges;
    device_ranges_init(&ranges, FLOOR, ALIGNMENT);
    assert_false(device_ranges_first_fit(&ranges, (uint64_t)1 << 63, &addr));
    assert_true(device_ranges_first_fit(&ranges, ((uint64_t)1 << 63) - FLOOR, &addr));
    low->addr = 1;
    low->bytes = 1;
    device_ranges_insert(&ranges, low);
    high->addr = UINT64_MAX - 1;
    high->bytes = 1;
    device_ranges_insert(&ranges, high);
    assert_int_equal(device_ranges_check(&ranges, "ends", &message), 0);
    assert_ptr_equal(device_ranges_overlap(&ranges, 1, UINT64_MAX - 1), low);
    assert_ptr_equal(device_ranges_overlap(&ranges, 2, UINT64_MAX - 2), high);
    assert_null(device_ranges_overlap(&ranges, 2, UINT64_MAX - 3));
    assert_true(device_ranges_first_fit(&ranges, 4096, &addr));
    assert_int_equal(addr, FLOOR);
    device_ranges_close(&ranges);
}

static unsigned depth_of(const struct device_range *tree)
{
    if (!tree) {
        return 0;
    }
    unsigned left = depth_of(tree->left);
    unsigned right = depth_of(tree->right);
    return 1 + (left > right ? left : right);
}

/* Ascending addresses are the worst order for a plain search tree. */
TEST(test_ranges_depth)
{
    const uint64_t count = 200000;
    struct device_ranges ranges;
    uint64_t addr = 0;
    device_ranges_init(&ranges, FLOOR, ALIGNMENT);
    for (uint64_t i = 0; i < count; i++) {
        struct device_range *range = calloc(1, sizeof(*range));
        assert_non_null(range);
        range->bytes = ALIGNMENT;
        assert_true(device_ranges_first_fit(&ranges, ALIGNMENT, &range->addr));
        assert_int_equal(range->addr, FLOOR + i * ALIGNMENT);
        device_ranges_insert(&ranges, range);
    }
    CHECK(depth_of(ranges.root) < 70, "%u levels", depth_of(ranges.root));
    for (uint64_t i = 0; i < count; i += 2) {
        struct device_range *range = device_ranges_at_or_after(&ranges, FLOOR + i * ALIGNMENT);
        device_ranges_remove(&ranges, range);
        free(range);
    }
    assert_true(device_ranges_first_fit(&ranges, ALIGNMENT, &addr));
    assert_int_equal(addr, FLOOR);
    assert_true(device_ranges_first_fit(&ranges, ALIGNMENT + 1, &addr));
    assert_int_equal(addr, FLOOR + count * ALIGNMENT);
    assert_int_equal(device_ranges_check(&ranges, "depth", NULL), 0);
    device_ranges_close(&ranges);
}

TEST(test_slots)
{
    struct device_slots slots = {0};
    uint64_t ids[200], again = 0;
    for (size_t i = 0; i < 200; i++) {
        assert_non_null(slots_acquire(&slots, &ids[i]));
        assert_int_equal(slots_index(ids[i]), i);
    }
    for (size_t i = 0; i < 200; i += 2) {
        slots_release(&slots, ids[i]);
    }
    assert_int_equal(slots_check(&slots, "slots", NULL), 0);
    assert_int_equal(slots.live, 100);
    assert_non_null(slots_acquire(&slots, &again));
    assert_int_equal(slots_index(again), 198); /* the last one given back */
    assert_true(again != ids[198]);
    assert_null(slots_find(&slots, ids[198]));
    assert_non_null(slots_find(&slots, again));
    assert_non_null(slots_find(&slots, ids[1]));
    assert_null(slots_find(&slots, 0));
    assert_null(slots_find(&slots, 201));
    assert_null(slots_find(&slots, UINT64_MAX));
    assert_int_equal(slots.count, 200);
    assert_int_equal(slots_check(&slots, "slots", NULL), 0);
    slots_close(&slots);
}
