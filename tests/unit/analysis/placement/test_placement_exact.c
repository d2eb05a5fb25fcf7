/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exact search agrees with trying all offsets, for small random buffers under capacities from below their load on;
 * finds what is there in instances that were cut from a full rectangle, and proves what is not; and all offsets that it
 * gives are checked by comparing each two buffers.
 */
#include "cmocka.h"

#include "analysis/placement/exact.h"
#include "support/random.h"

#include <string.h>

enum { SMALL_MAX = 8, SMALL_CASES = 8000, CUT_MAX = 200, CUT_CASES = 60, CUT_HEIGHT = 200, CUT_TIMES = 60 };

static const double enough_seconds = 60;
static struct placement_clock wall_clock; /* not by steps */

static bool share_time(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

static bool share_bytes(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

static bool is_free(const struct placement_buffer *buffers, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (share_time(&buffers[i], &buffers[index]) && share_bytes(&buffers[i], &buffers[index])) {
            return false;
        }
    }
    return true;
}

static void assert_placed(const struct placement_buffer *buffers, size_t count, uint64_t capacity,
                          uint64_t alignment)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(buffers[i].offset % alignment == 0);
        assert_true(buffers[i].offset + buffers[i].size <= capacity);
        assert_true(is_free(buffers, i));
    }
}

/* All offsets of each buffer from `index` on. */
static bool fits_by_trying(struct placement_buffer *buffers, size_t count, size_t index, uint64_t capacity,
                           uint64_t alignment)
{
    struct placement_buffer *buffer = &buffers[index];

    if (index == count) {
        return true;
    }
    for (buffer->offset = 0; buffer->offset + buffer->size <= capacity; buffer->offset += alignment) {
        if (is_free(buffers, index) && fits_by_trying(buffers, count, index + 1, capacity, alignment)) {
            return true;
        }
    }
    return false;
}

/* The load is reached where some buffer begins. */
static uint64_t load_of(const struct placement_buffer *buffers, size_t count)
{
    uint64_t load = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t live = 0;

        for (size_t j = 0; j < count; j++) {
            bool lives = buffers[j].lower <= buffers[i].lower && buffers[i].lower < buffers[j].upper;

            live += lives ? buffers[j].size : 0;
        }
        load = live > load ? live : load;
    }
    return load;
}

static bool expect_same(const struct placement_buffer *buffers, size_t count, uint64_t capacity,
                        uint64_t alignment)
{
    struct placement_buffer tried[SMALL_MAX];
    struct placement_buffer searched[SMALL_MAX];
    enum placement_verdict verdict;
    bool fits;

    memcpy(tried, buffers, count * sizeof(*buffers));
    memcpy(searched, buffers, count * sizeof(*buffers));
    fits = fits_by_trying(tried, count, 0, capacity, alignment);
    verdict = placement_exact(searched, count, capacity, alignment, &wall_clock, enough_seconds);
    assert_int_equal(verdict, fits ? PLACEMENT_FITS : PLACEMENT_IMPOSSIBLE);
    if (fits) {
        assert_placed(searched, count, capacity, alignment);
    } else {
        assert_memory_equal(searched, buffers, count * sizeof(*buffers));
    }
    return fits;
}

TEST(test_small_as_by_trying)
{
    uint64_t random = test_first_seed(1);
    unsigned fitted = 0;
    unsigned above_load = 0; /* did not fit, though the load did */

    for (unsigned i = 0; i < SMALL_CASES; i++) {
        struct placement_buffer buffers[SMALL_MAX];
        size_t count = 1 + random_below(&random, SMALL_MAX);
        uint64_t times = 2 + random_below(&random, 8);
        uint64_t size_max = 1 + random_below(&random, 6);
        uint64_t alignment = UINT64_C(1) << (random_below(&random, 2) * random_below(&random, 3));
        uint64_t load;
        uint64_t capacity;

        for (size_t j = 0; j < count; j++) {
            buffers[j].lower = (int64_t)random_below(&random, times) - 3;
            buffers[j].upper = buffers[j].lower + 1 + (int64_t)random_below(&random, times);
            buffers[j].size = random_below(&random, 20) == 0 ? 0 : 1 + random_below(&random, size_max);
            buffers[j].offset = 77;
        }
        load = load_of(buffers, count);
        capacity = load + random_below(&random, 4) - (load > 0 && random_below(&random, 8) == 0);
        if (expect_same(buffers, count, capacity, alignment)) {
            fitted++;
        } else {
            above_load += capacity >= load;
        }
    }
    assert_true(fitted > SMALL_CASES / 10);
    assert_true(above_load > SMALL_CASES / 100);
}

/* Cuts in both directions at random: a full placement, which is then forgotten. */
static size_t cut_rectangle(struct placement_buffer *buffers, size_t wanted, uint64_t unit, uint64_t *random)
{
    size_t count = 1;

    buffers[0] = (struct placement_buffer){.upper = CUT_TIMES, .size = CUT_HEIGHT * unit};
    for (unsigned tries = 0; count < wanted && tries < 10 * CUT_MAX; tries++) {
        struct placement_buffer *cut = &buffers[random_below(random, count)];
        struct placement_buffer *rest = &buffers[count];
        uint64_t units = cut->size / unit;

        *rest = *cut;
        if (random_below(random, 2) == 0 && units > 1) {
            cut->size = unit * (1 + random_below(random, units - 1));
            rest->size -= cut->size;
            count++;
        } else if (cut->upper - cut->lower > 1) {
            cut->upper =
                cut->lower + 1 + (int64_t)random_below(random, (uint64_t)(cut->upper - cut->lower - 1));
            rest->lower = cut->upper;
            count++;
        }
    }
    return count;
}

TEST(test_cut_rectangles)
{
    uint64_t random = test_first_seed(1);

    for (unsigned i = 0; i < CUT_CASES; i++) {
        struct placement_buffer buffers[CUT_MAX];
        uint64_t unit = i % 2 == 0 ? 512 : 3;
        size_t count = cut_rectangle(buffers, 2 + random_below(&random, 60), unit, &random);
        uint64_t capacity = CUT_HEIGHT * unit;

        assert_int_equal(placement_exact(buffers, count, capacity, 1, &wall_clock, enough_seconds),
                         PLACEMENT_FITS);
        assert_placed(buffers, count, capacity, 1);
        assert_int_equal(placement_exact(buffers, count, capacity - 1, 1, &wall_clock, enough_seconds),
                         PLACEMENT_IMPOSSIBLE);
    }
}

TEST(test_time_ends)
{
    uint64_t random = test_first_seed(1);
    struct placement_buffer buffers[CUT_MAX];
    size_t count = cut_rectangle(buffers, CUT_MAX, 1, &random);

    assert_int_equal(placement_exact(buffers, count, CUT_HEIGHT, 1, &wall_clock, 0), PLACEMENT_UNDECIDED);
}

TEST(test_extremes)
{
    struct placement_buffer one = {INT64_MIN, INT64_MAX, PLACEMENT_BYTES_MAX, 7};
    struct placement_buffer two[] = {{0, 2, PLACEMENT_BYTES_MAX / 2, 0},
                                     {1, 3, PLACEMENT_BYTES_MAX / 2 - 1, 0}};

    assert_int_equal(placement_exact(NULL, 0, 0, 0, &wall_clock, 1), PLACEMENT_FITS);
    assert_int_equal(placement_exact(&one, 1, PLACEMENT_BYTES_MAX - 1, 0, &wall_clock, 1),
                     PLACEMENT_IMPOSSIBLE);
    assert_int_equal(placement_exact(&one, 1, PLACEMENT_BYTES_MAX, 0, &wall_clock, 1), PLACEMENT_FITS);
    assert_int_equal(one.offset, 0);
    assert_int_equal(placement_exact(two, 2, PLACEMENT_BYTES_MAX - 2, 0, &wall_clock, 1),
                     PLACEMENT_IMPOSSIBLE);
    assert_int_equal(placement_exact(two, 2, UINT64_MAX, 512, &wall_clock, 1), PLACEMENT_FITS);
    assert_placed(two, 2, UINT64_MAX, 512);
}
