/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements against brute force: first fit in every order of a few buffers gives the optimum, which the solver must
 * reach, never go below, and bound from below, under capacities too; the exact search alone agrees with trying all
 * offsets; and both with the recipe that made an instance without a hole, for many. Every placement is checked by
 * comparing each two buffers.
 * Costs: 2 s, full 3 s
 */
#include "cmocka.h"

#include "analysis/whatif/placement.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define FEW_MAX 6
#define SMALL_MAX 8
#define CUT_MAX 200
#define MANY 4000

static struct placement_clock wall_clock; /* not by steps */

static bool share_time(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

static bool share_bytes(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->size > 0 && b->size > 0 && a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

/* Whether the last of so many is in nobody's way. */
static bool is_free(const struct placement_buffer *buffers, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (share_time(&buffers[i], &buffers[index]) && share_bytes(&buffers[i], &buffers[index])) {
            return false;
        }
    }
    return true;
}

static bool are_placed(const struct placement_buffer *buffers, size_t count, uint64_t height, uint64_t alignment)
{
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].offset % alignment != 0 || buffers[i].offset + buffers[i].size > height ||
            !is_free(buffers, i)) {
            return false;
        }
    }
    return true;
}

/* The load is reached where some buffer begins. */
static uint64_t load_of(const struct placement_buffer *buffers, size_t count)
{
    uint64_t load = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t live = 0;
        for (size_t j = 0; j < count; j++) {
            live += buffers[j].lower <= buffers[i].lower && buffers[i].lower < buffers[j].upper ? buffers[j].size : 0;
        }
        load = live > load ? live : load;
    }
    return load;
}

static void random_buffers(struct placement_buffer *buffers, size_t count, uint64_t times, uint64_t sizes,
                           uint64_t *random)
{
    for (size_t i = 0; i < count; i++) {
        int64_t lower = (int64_t)random_below(random, times) - 3;
        buffers[i] = (struct placement_buffer){.lower = lower,
                                               .upper = lower + 1 + (int64_t)random_below(random, times),
                                               .size = random_below(random, sizes),
                                               .offset = 77};
    }
}

/* The least height of all orders of buffers[index …]: an optimum, moved down, is first fit in the order of its
 * offsets. */
static uint64_t least_height(struct placement_buffer *buffers, size_t count, size_t index, uint64_t height)
{
    uint64_t least = UINT64_MAX;
    if (index == count) {
        return height;
    }
    for (size_t i = index; i < count; i++) {
        struct placement_buffer chosen = buffers[i];
        buffers[i] = buffers[index];
        buffers[index] = chosen;
        for (buffers[index].offset = 0; !is_free(buffers, index); buffers[index].offset++) {
        }
        uint64_t end = buffers[index].offset + chosen.size;
        uint64_t found = least_height(buffers, count, index + 1, end > height ? end : height);

        least = found < least ? found : least;
        buffers[index] = buffers[i];
        buffers[i] = chosen;
    }
    return least;
}

static uint64_t least_of(const struct placement_buffer *buffers, size_t count, uint64_t alignment)
{
    struct placement_buffer copy[FEW_MAX];
    for (size_t i = 0; i < count; i++) {
        copy[i] = buffers[i];
        copy[i].size = (copy[i].size + alignment - 1) / alignment * alignment;
    }
    return least_height(copy, count, 0, 0);
}

static void expect_solved(struct placement_buffer *buffers, size_t count, const struct placement_options *options,
                          uint64_t least, int round)
{
    struct varve_message message = {""};
    struct placement_result result;
    assert_int_equal(placement_solve(buffers, count, options, &result, &message), VARVE_OK);
    bool is_wrong;
    if (options->capacity == 0) {
        is_wrong = result.height != least || result.bound != least || !result.optimal;
    } else {
        is_wrong = result.bound > least || result.height < least ||
                   (options->capacity >= least) != (result.height <= options->capacity) ||
                   (options->capacity < least) != (result.bound > options->capacity);
    }
    if (is_wrong || result.load != load_of(buffers, count) ||
        !are_placed(buffers, count, result.height, options->alignment)) {
        fail_msg("round %d: height %llu, bound %llu, %soptimal, by %s; the least is %llu", round,
                 (unsigned long long)result.height, (unsigned long long)result.bound, result.optimal ? "" : "not ",
                 result.method, (unsigned long long)least);
    }
}

TEST(test_few)
{
    uint64_t random = test_first_seed(17);
    for (int round = 0; round < test_rounds(1000, 3000); round++) {
        struct placement_buffer buffers[FEW_MAX];
        size_t count = random_below(&random, FEW_MAX + 1);
        struct placement_options options = {.alignment = UINT64_C(1) << random_below(&random, 4),
                                            .seconds = 60,
                                            .threads = 1 + (unsigned)random_below(&random, 2)};
        random_buffers(buffers, count, 6, 20, &random);
        uint64_t least = least_of(buffers, count, options.alignment);

        expect_solved(buffers, count, &options, least, round);
        options.capacity = 1 + random_below(&random, 2 * least + 1);
        expect_solved(buffers, count, &options, least, round);
    }
}

/* A rectangle, cut again and again along time or addresses: its pieces fit into it without a hole. */
static void cut(struct placement_buffer *buffers, size_t count, int64_t times, uint64_t height, uint64_t unit,
                uint64_t *random)
{
    buffers[0] = (struct placement_buffer){.lower = 0, .upper = times, .size = height * unit};
    for (size_t i = 1; i < count;) {
        struct placement_buffer *piece = &buffers[random_below(random, i)];
        int64_t time = piece->upper - piece->lower;
        uint64_t units = piece->size / unit;
        buffers[i] = *piece;
        if (random_below(random, 2) == 0 && time > 1) {
            piece->upper = piece->lower + 1 + (int64_t)random_below(random, (uint64_t)time - 1);
            buffers[i++].lower = piece->upper;
        } else if (units > 1) {
            piece->size = unit * (1 + random_below(random, units - 1));
            buffers[i++].size -= piece->size;
        }
    }
}

/* More than the exact search takes. */
TEST(test_many)
{
    struct placement_buffer *buffers = malloc(MANY * sizeof(*buffers));
    uint64_t random = test_first_seed(18);
    assert_non_null(buffers);
    for (unsigned threads = 1; threads <= 4; threads += 3) {
        struct placement_options options = {.threads = threads, .seconds = 0.1, .by_steps = true};
        struct varve_message message = {""};
        cut(buffers, MANY, 100000, 1 << 30, 1, &random);
        assert_int_equal(placement_load(buffers, MANY), 1 << 30);
        struct placement_result result;
        assert_int_equal(placement_solve(buffers, MANY, &options, &result, &message), VARVE_OK);
        assert_int_equal(result.load, 1 << 30);
        assert_int_equal(result.bound, 1 << 30);
        assert_true(result.height >= result.bound && result.height < 2 * result.bound);
        assert_true(are_placed(buffers, MANY, result.height, 1));
        assert_true(placement_check(buffers, MANY, result.height, &message));
        assert_false(placement_check(buffers, MANY, result.height - 1, &message));
    }
    free(buffers);
}

/* Where time ends before the best is found: by steps the answer is the same each time, and no worse with more of
 * them. */
TEST(test_by_steps)
{
    static const size_t counts[] = {300, MANY}; /* with the exact search, and without */
    struct placement_buffer *buffers = malloc(2 * MANY * sizeof(*buffers));
    struct placement_buffer *again = buffers + MANY;
    uint64_t random = test_first_seed(20);
    size_t cut_short = 0;
    assert_non_null(buffers);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint64_t height = UINT64_MAX;
        cut(buffers, counts[i], 100000, 1 << 30, 1, &random);
        memcpy(again, buffers, counts[i] * sizeof(*buffers));
        for (double seconds = 1e-4; seconds < 0.2; seconds *= 10) {
            struct placement_options options = {.seconds = seconds, .by_steps = true, .threads = 2};
            struct placement_result result, same;
            struct varve_message message = {""};
            assert_int_equal(placement_solve(buffers, counts[i], &options, &result, &message), VARVE_OK);
            assert_int_equal(placement_solve(again, counts[i], &options, &same, &message), VARVE_OK);
            cut_short += result.optimal ? 0 : 1;
            assert_int_equal(result.height, same.height);
            assert_string_equal(result.method, same.method);
            assert_memory_equal(buffers, again, counts[i] * sizeof(*buffers));
            assert_true(result.height <= height);
            height = result.height;
        }
    }
    assert_true(cut_short > 2);
    free(buffers);
}

TEST(test_check)
{
    uint64_t random = test_first_seed(19);
    size_t valid = 0;
    for (size_t round = 0; round < 5000; round++) {
        struct placement_buffer buffers[8];
        size_t count = random_below(&random, 9);
        struct varve_message message = {""};
        random_buffers(buffers, count, 6, 6, &random);
        for (size_t i = 0; i < count; i++) {
            buffers[i].offset = random_below(&random, 40);
        }
        bool expected = are_placed(buffers, count, 40, 1);

        valid += expected;
        if (placement_check(buffers, count, 40, &message) != expected) {
            fail_msg("round %zu: the check says %d: %s", round, !expected, message.text);
        }
        assert_true((message.text[0] == '\0') == expected);
    }
    assert_true(valid > 250 && valid < 4750);
}

/* ---- the exact search alone ---- */

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

static bool expect_same(const struct placement_buffer *buffers, size_t count, uint64_t capacity, uint64_t alignment)
{
    struct placement_buffer tried[SMALL_MAX], searched[SMALL_MAX];
    memcpy(tried, buffers, count * sizeof(*buffers));
    memcpy(searched, buffers, count * sizeof(*buffers));
    bool fits = fits_by_trying(tried, count, 0, capacity, alignment);

    assert_int_equal(placement_exact(searched, count, capacity, alignment, &wall_clock, 60),
                     fits ? PLACEMENT_FITS : PLACEMENT_IMPOSSIBLE);
    assert_true(fits ? are_placed(searched, count, capacity, alignment)
                     : memcmp(searched, buffers, count * sizeof(*buffers)) == 0);
    return fits;
}

/* Under capacities from below their load on. */
TEST(test_exact_as_by_trying)
{
    uint64_t random = test_first_seed(1);
    int fitted = 0, above_load = 0; /* did not fit, though the load did */
    int rounds = test_rounds(2500, 8000);
    for (int i = 0; i < rounds; i++) {
        struct placement_buffer buffers[SMALL_MAX];
        size_t count = 1 + random_below(&random, SMALL_MAX);
        uint64_t alignment = UINT64_C(1) << (random_below(&random, 2) * random_below(&random, 3));
        random_buffers(buffers, count, 2 + random_below(&random, 8), 2 + random_below(&random, 6), &random);
        uint64_t load = load_of(buffers, count);
        uint64_t capacity = load + random_below(&random, 4) - (load > 0 && random_below(&random, 8) == 0);

        if (expect_same(buffers, count, capacity, alignment)) {
            fitted++;
        } else {
            above_load += capacity >= load;
        }
    }
    assert_true(fitted > rounds / 10);
    assert_true(above_load > rounds / 100);
}

TEST(test_exact_finds_what_was_cut)
{
    uint64_t random = test_first_seed(1);
    struct placement_buffer buffers[CUT_MAX];
    for (unsigned i = 0; i < 60; i++) {
        uint64_t unit = i % 2 == 0 ? 512 : 3, capacity = 200 * unit;
        size_t count = 2 + random_below(&random, 60);
        cut(buffers, count, 60, 200, unit, &random);
        assert_int_equal(placement_exact(buffers, count, capacity, 1, &wall_clock, 60), PLACEMENT_FITS);
        assert_true(are_placed(buffers, count, capacity, 1));
        assert_int_equal(placement_exact(buffers, count, capacity - 1, 1, &wall_clock, 60), PLACEMENT_IMPOSSIBLE);
    }
    cut(buffers, CUT_MAX, 60, 200, 1, &random);
    assert_int_equal(placement_exact(buffers, CUT_MAX, 200, 1, &wall_clock, 0), PLACEMENT_UNDECIDED); /* time ends */
}

TEST(test_exact_extremes)
{
    struct placement_buffer one = {INT64_MIN, INT64_MAX, PLACEMENT_BYTES_MAX, 7};
    struct placement_buffer two[] = {{0, 2, PLACEMENT_BYTES_MAX / 2, 0}, {1, 3, PLACEMENT_BYTES_MAX / 2 - 1, 0}};
    assert_int_equal(placement_exact(NULL, 0, 0, 0, &wall_clock, 1), PLACEMENT_FITS);
    assert_int_equal(placement_exact(&one, 1, PLACEMENT_BYTES_MAX - 1, 0, &wall_clock, 1), PLACEMENT_IMPOSSIBLE);
    assert_int_equal(placement_exact(&one, 1, PLACEMENT_BYTES_MAX, 0, &wall_clock, 1), PLACEMENT_FITS);
    assert_int_equal(one.offset, 0);
    assert_int_equal(placement_exact(two, 2, PLACEMENT_BYTES_MAX - 2, 0, &wall_clock, 1), PLACEMENT_IMPOSSIBLE);
    assert_int_equal(placement_exact(two, 2, UINT64_MAX, 512, &wall_clock, 1), PLACEMENT_FITS);
    assert_true(are_placed(two, 2, UINT64_MAX, 512));
}

static void expect_refused(const struct placement_buffer *buffers, size_t count, uint64_t alignment, const char *words)
{
    struct placement_buffer copy[4];
    struct placement_options options = {.alignment = alignment};
    struct varve_message message = {""};
    memcpy(copy, buffers, count * sizeof(*buffers));
    struct placement_result result;
    assert_int_equal(placement_solve(copy, count, &options, &result, &message), VARVE_ERROR_INVALID);
    if (strstr(message.text, words) == NULL) {
        fail_msg("'%s' is not said, but: %s", words, message.text);
    }
}

TEST(test_refused)
{
    struct placement_buffer ends[] = {{.lower = 0, .upper = 1, .size = 1}, {.lower = 5, .upper = 5, .size = 1}};
    struct placement_buffer large[] = {{.lower = 0, .upper = 1, .size = PLACEMENT_BYTES_MAX},
                                       {.lower = 1, .upper = 2, .size = 1}};
    struct placement_buffer huge[] = {{.lower = INT64_MIN, .upper = INT64_MAX, .size = UINT64_MAX}};
    struct placement_buffer all = {.lower = INT64_MIN, .upper = INT64_MAX, .size = PLACEMENT_BYTES_MAX};
    struct placement_options options = {0};
    struct varve_message message = {""};
    expect_refused(ends, 2, 0, "buffer 1 ");
    expect_refused(large, 2, 0, "buffer 1 ");
    expect_refused(huge, 1, 0, "buffer 0 ");
    expect_refused(&all, 1, PLACEMENT_BYTES_MAX, "alignment");
    expect_refused(ends, 1, 12, "alignment 12 ");
    struct placement_result result;
    assert_int_equal(placement_solve(&all, 1, &options, &result, &message), VARVE_OK);
    assert_true(result.height == PLACEMENT_BYTES_MAX && result.optimal);
    assert_int_equal(placement_solve(NULL, 0, &options, &result, &message), VARVE_OK);
    assert_true(result.height == 0 && result.optimal);
}
