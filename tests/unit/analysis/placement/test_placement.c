/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements against brute force: first fit in every order of a few buffers gives the optimum, which the solver must reach, never
 * go below, and bound from below; and against the recipe that made an instance without a hole, for many. What is taken when, and the
 * check of a placement, agree with looking at each two buffers.
 */
#include "cmocka.h"

#include "analysis/placement/instance.h"
#include "analysis/placement/occupied.h"
#include "support/random.h"

#include <stdlib.h>
#include <string.h>

#define FEW_MAX 6
#define FEW_CASES 3000
#define MANY 4000

static bool share_time(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

static bool share_bytes(const struct placement_buffer *a, const struct placement_buffer *b)
{
    return a->size > 0 && b->size > 0 && a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

static bool are_apart(const struct placement_buffer *buffers, size_t count, uint64_t height)
{
    for (size_t i = 0; i < count; i++) {
        if (buffers[i].offset + buffers[i].size > height) {
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (share_time(&buffers[i], &buffers[j]) && share_bytes(&buffers[i], &buffers[j])) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t load_by_looking(const struct placement_buffer *buffers, size_t count)
{
    uint64_t load = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t live = 0;

        for (size_t j = 0; j < count; j++) {
            live += buffers[j].lower <= buffers[i].lower && buffers[i].lower < buffers[j].upper
                        ? buffers[j].size
                        : 0;
        }
        load = live > load ? live : load;
    }
    return load;
}

static struct placement_buffer random_buffer(uint64_t *random, uint64_t times, uint64_t sizes)
{
    int64_t lower = (int64_t)random_below(random, times) - 3;

    return (struct placement_buffer){.lower = lower,
                                     .upper = lower + 1 + (int64_t)random_below(random, times),
                                     .size = random_below(random, sizes)};
}

/* The lowest offset among the first `count` buffers, whose offsets are set. Sizes are rounded already. */
static uint64_t first_fit_by_looking(const struct placement_buffer *buffers, size_t count,
                                     struct placement_buffer buffer)
{
    bool has_moved = true;

    buffer.offset = 0;
    while (has_moved) {
        has_moved = false;
        for (size_t i = 0; i < count; i++) {
            if (share_time(&buffers[i], &buffer) && share_bytes(&buffers[i], &buffer)) {
                buffer.offset = buffers[i].offset + buffers[i].size;
                has_moved = true;
            }
        }
    }
    return buffer.offset;
}

/* The least height of all orders of buffers[index …]: an optimum, moved down, is first fit in the order of its offsets. */
static uint64_t least_height(struct placement_buffer *buffers, size_t count, size_t index, uint64_t height)
{
    uint64_t least = UINT64_MAX;

    if (index == count) {
        return height;
    }
    for (size_t i = index; i < count; i++) {
        struct placement_buffer chosen = buffers[i];
        uint64_t end;
        uint64_t found;

        buffers[i] = buffers[index];
        buffers[index] = chosen;
        buffers[index].offset = first_fit_by_looking(buffers, index, chosen);
        end = buffers[index].offset + chosen.size;
        found = least_height(buffers, count, index + 1, end > height ? end : height);
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

static void expect_solved(struct placement_buffer *buffers, size_t count,
                          const struct placement_options *options, uint64_t least, size_t round)
{
    struct varve_message message = {""};
    struct placement_result result;
    bool is_over = false;

    assert_int_equal(placement_solve(buffers, count, options, &result, &message), VARVE_OK);
    if (options->capacity == 0) {
        is_over = result.height != least || result.bound != least || !result.optimal;
    } else {
        is_over = result.bound > least || result.height < least ||
                  (options->capacity >= least) != (result.height <= options->capacity) ||
                  (options->capacity < least) != (result.bound > options->capacity);
    }
    if (is_over || result.load != load_by_looking(buffers, count) ||
        !are_apart(buffers, count, result.height)) {
        fail_msg("round %zu: height %llu, bound %llu, %soptimal, by %s; the least is %llu", round,
                 (unsigned long long)result.height, (unsigned long long)result.bound,
                 result.optimal ? "" : "not ", result.method, (unsigned long long)least);
    }
    for (size_t i = 0; i < count; i++) {
        assert_true(options->alignment == 0 || buffers[i].offset % options->alignment == 0);
    }
}

TEST(test_few)
{
    uint64_t random = test_first_seed(17);

    for (size_t round = 0; round < FEW_CASES; round++) {
        struct placement_buffer buffers[FEW_MAX];
        size_t count = random_below(&random, FEW_MAX + 1);
        struct placement_options options = {.alignment = UINT64_C(1) << random_below(&random, 4),
                                            .seconds = 60,
                                            .threads = 1 + (unsigned)random_below(&random, 2)};
        uint64_t least;

        for (size_t i = 0; i < count; i++) {
            buffers[i] = random_buffer(&random, 6, 20);
        }
        least = least_of(buffers, count, options.alignment);
        expect_solved(buffers, count, &options, least, round);
        options.capacity = 1 + random_below(&random, 2 * least + 1);
        expect_solved(buffers, count, &options, least, round);
    }
}

/* A rectangle, cut again and again along time or addresses: its pieces fit into it without a hole. */
static void cut(struct placement_buffer *buffers, size_t count, int64_t times, uint64_t height,
                uint64_t *random)
{
    buffers[0] = (struct placement_buffer){.lower = 0, .upper = times, .size = height};
    for (size_t i = 1; i < count;) {
        struct placement_buffer *piece = &buffers[random_below(random, i)];

        if (random_below(random, 2) == 0 && piece->upper - piece->lower > 1) {
            int64_t at =
                piece->lower + 1 + (int64_t)random_below(random, (uint64_t)(piece->upper - piece->lower - 1));

            buffers[i] = *piece;
            buffers[i++].lower = at;
            piece->upper = at;
        } else if (piece->size > 1) {
            uint64_t size = 1 + random_below(random, piece->size - 1);

            buffers[i] = *piece;
            buffers[i++].size = size;
            piece->size -= size;
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
        struct placement_options options = {.threads = threads, .seconds = 0.5};
        struct placement_result result;
        struct varve_message message = {""};

        cut(buffers, MANY, 100000, 1 << 30, &random);
        assert_int_equal(placement_load(buffers, MANY), 1 << 30);
        assert_int_equal(placement_solve(buffers, MANY, &options, &result, &message), VARVE_OK);
        assert_int_equal(result.load, 1 << 30);
        assert_int_equal(result.bound, 1 << 30);
        assert_true(result.height >= result.bound && result.height < 2 * result.bound);
        assert_true(are_apart(buffers, MANY, result.height));
        assert_true(placement_check(buffers, MANY, result.height, &message));
        assert_false(placement_check(buffers, MANY, result.height - 1, &message));
    }
    free(buffers);
}

/* Where time ends before the best is found: by steps the answer is the same each time, and no worse with more of them. */
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

        cut(buffers, counts[i], 100000, 1 << 30, &random);
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

    for (size_t round = 0; round < 20000; round++) {
        struct placement_buffer buffers[8];
        size_t count = random_below(&random, 9);
        struct varve_message message = {""};
        bool expected;

        for (size_t i = 0; i < count; i++) {
            buffers[i] = random_buffer(&random, 6, 6);
            buffers[i].offset = random_below(&random, 40);
        }
        expected = are_apart(buffers, count, 40);
        valid += expected;
        if (placement_check(buffers, count, 40, &message) != expected) {
            fail_msg("round %zu: the check says %d: %s", round, !expected, message.text);
        }
        assert_true((message.text[0] == '\0') == expected);
    }
    assert_true(valid > 1000 && valid < 19000);
}

TEST(test_occupied)
{
    uint64_t random = test_first_seed(20);

    for (size_t round = 0; round < 200; round++) {
        struct placement_buffer buffers[120];
        uint64_t size_min[120];
        size_t count = 1 + random_below(&random, 120);
        uint32_t points = 1 + (uint32_t)random_below(&random, 70);
        struct occupied *occupied = occupied_new(points);

        for (size_t i = count; i-- > 0;) {
            buffers[i].lower = (int64_t)random_below(&random, points);
            buffers[i].upper =
                buffers[i].lower + 1 + (int64_t)random_below(&random, points - (uint64_t)buffers[i].lower);
            buffers[i].size = 1 + random_below(&random, 30);
            size_min[i] =
                i + 1 < count && size_min[i + 1] < buffers[i].size ? size_min[i + 1] : buffers[i].size;
        }
        for (int again = 0; again < 2; again++) {
            for (size_t i = 0; i < count; i++) {
                struct placement_buffer *buffer = &buffers[i];
                uint32_t first = (uint32_t)buffer->lower;
                uint32_t end = (uint32_t)buffer->upper;

                buffer->offset = occupied_first_fit(occupied, first, end, buffer->size);
                assert_int_equal(buffer->offset, first_fit_by_looking(buffers, i, *buffer));
                occupied_add(occupied, first, end, buffer->offset, buffer->size, size_min[i]);
            }
            occupied_clear(occupied);
        }
        occupied_free(occupied);
    }
}

/* Points keep who meets whom. */
TEST(test_instance)
{
    uint64_t random = test_first_seed(21);

    for (size_t round = 0; round < 2000; round++) {
        struct placement_buffer buffers[12];
        size_t count = random_below(&random, 13);
        struct placement_instance instance;

        for (size_t i = 0; i < count; i++) {
            buffers[i] = random_buffer(&random, 9, 5);
        }
        placement_instance_make(&instance, buffers, count, 2);
        for (size_t i = 0; i < instance.count; i++) {
            const struct placement_item *a = &instance.items[i];

            assert_true(a->first < a->end && a->end <= instance.points);
            assert_int_equal(a->size % instance.unit, 0);
            assert_true(a->size >= buffers[instance.buffers[i]].size);
            for (size_t j = 0; j < i; j++) {
                const struct placement_item *b = &instance.items[j];

                assert_int_equal(a->first < b->end && b->first < a->end,
                                 share_time(&buffers[instance.buffers[i]], &buffers[instance.buffers[j]]));
            }
        }
        placement_instance_free(&instance);
    }
}

static void expect_refused(const struct placement_buffer *buffers, size_t count, uint64_t alignment,
                           const char *words)
{
    struct placement_buffer copy[4];
    struct placement_options options = {.alignment = alignment};
    struct placement_result result;
    struct varve_message message = {""};

    memcpy(copy, buffers, count * sizeof(*buffers));
    assert_int_equal(placement_solve(copy, count, &options, &result, &message), VARVE_ERROR_INVALID);
    if (strstr(message.text, words) == NULL) {
        fail_msg("'%s' is not said, but: %s", words, message.text);
    }
}

TEST(test_refused)
{
    struct placement_buffer ends[] = {{.lower = 0, .upper = 1, .size = 1},
                                      {.lower = 5, .upper = 5, .size = 1}};
    struct placement_buffer large[] = {{.lower = 0, .upper = 1, .size = PLACEMENT_BYTES_MAX},
                                       {.lower = 1, .upper = 2, .size = 1}};
    struct placement_buffer huge[] = {{.lower = INT64_MIN, .upper = INT64_MAX, .size = UINT64_MAX}};
    struct placement_buffer all = {.lower = INT64_MIN, .upper = INT64_MAX, .size = PLACEMENT_BYTES_MAX};
    struct placement_options options = {0};
    struct placement_result result;
    struct varve_message message = {""};

    expect_refused(ends, 2, 0, "buffer 1 ");
    expect_refused(large, 2, 0, "buffer 1 ");
    expect_refused(huge, 1, 0, "buffer 0 ");
    expect_refused(&all, 1, PLACEMENT_BYTES_MAX, "alignment");
    expect_refused(ends, 1, 12, "alignment 12 ");
    assert_int_equal(placement_solve(&all, 1, &options, &result, &message), VARVE_OK);
    assert_true(result.height == PLACEMENT_BYTES_MAX && result.optimal);
    assert_int_equal(placement_solve(NULL, 0, &options, &result, &message), VARVE_OK);
    assert_true(result.height == 0 && result.optimal);
}
