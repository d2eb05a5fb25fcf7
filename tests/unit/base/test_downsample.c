/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of rows over time, against all of them: of each interval the first row with the largest value of each
 * curve, and the last; in intervals as short as the bound allows, whatever the times are like.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/random.h"
#include "base/downsample.h"

#include <stdlib.h>
#include <string.h>

#define ROWS 3000U
#define WIDTH 6U /* time, three curves, a number, the most */
#define CURVES 3U
#define NUMBER 4U
#define MOST 5U

/* Rows that must be kept with intervals of 2^shift ns; returns how many. */
static size_t choose(int64_t (*rows)[WIDTH], size_t count, int shift, bool *is_kept)
{
    size_t kept = 0;
    memset(is_kept, shift < 0, count * sizeof(*is_kept));
    for (size_t begin = 0, end; shift >= 0 && begin < count; begin = end) {
        int64_t until = rows[begin][0] >> shift;
        for (end = begin + 1; end < count && rows[end][0] >> shift <= until; end++) {
        }
        is_kept[end - 1] = true;
        for (unsigned c = 1; c <= CURVES; c++) {
            size_t top = begin;
            for (size_t i = begin; i < end; i++) {
                top = rows[i][c] > rows[top][c] ? i : top;
            }
            is_kept[top] = true;
        }
    }
    for (size_t i = 0; i < count; i++) {
        kept += is_kept[i];
    }
    return kept;
}

static void compare_tops(const struct downsample *samples, int64_t (*rows)[WIDTH], size_t count)
{
    for (unsigned c = 1; c <= CURVES; c++) {
        int64_t expected = INT64_MIN;
        int64_t found = INT64_MIN;
        for (size_t i = 0; i < count; i++) {
            expected = rows[i][c] > expected ? rows[i][c] : expected;
        }
        for (size_t i = 0; i < samples->count; i++) {
            found = downsample_row(samples, i)[c] > found ? downsample_row(samples, i)[c] : found;
        }
        assert_int_equal(found, expected);
    }
    assert_memory_equal(downsample_row(samples, samples->count - 1), rows[count - 1], MOST * sizeof(rows[0][0]));
}

static void compare(const struct downsample *samples, int64_t (*rows)[WIDTH], size_t count)
{
    static bool is_kept[ROWS];
    size_t expected = choose(rows, count, samples->shift, is_kept);
    size_t at = 0;
    int64_t most = INT64_MIN;
    assert_int_equal(samples->count, expected);
    assert_true(samples->count <= samples->limit);
    for (size_t i = 0; i < count; i++) {
        most = rows[i][1] > most ? rows[i][1] : most;
        if (is_kept[i]) {
            const int64_t *row = downsample_row(samples, at++);
            assert_memory_equal(row, rows[i], MOST * sizeof(row[0]));
            assert_int_equal(row[MOST], most);
            most = INT64_MIN;
        }
    }
    if (samples->shift >= 0) { /* shorter ones would not do: all but the last interval only get more rows */
        assert_true(choose(rows, count, samples->shift - 1, is_kept) + CURVES > samples->limit);
    }
}

/* Even steps; bursts and long pauses; many rows at one time; and a clock that now and then goes back, where what is in
 * which interval is not said. */
static int64_t next_time(int64_t now, unsigned way, uint64_t *random)
{
    uint64_t step = way == 0                               ? 1000
                    : way == 1 && random_below(random, 50) ? random_below(random, 20)
                    : way == 1                             ? random_below(random, 1000000000)
                                                           : random_below(random, 3);
    return way == 3 && now > 100 && random_below(random, 10) == 0 ? now - (int64_t)random_below(random, 100)
                                                                  : now + (int64_t)step;
}

TEST(test_what_is_kept)
{
    static int64_t rows[ROWS][WIDTH];
    for (uint64_t seed = 0; seed < 80; seed++) {
        uint64_t random = seed + 1;
        uint32_t limit = 16U << random_below(&random, 5);
        struct downsample samples = downsample_make(limit, WIDTH, CURVES, MOST);
        int64_t now = 0;
        size_t count = 1 + (size_t)random_below(&random, ROWS);
        for (size_t i = 0; i < count; i++) {
            now = next_time(now, seed % 4, &random);
            rows[i][0] = now;
            for (unsigned c = 1; c <= CURVES; c++) {
                rows[i][c] = (int64_t)random_below(&random, 1 + (seed % 3) * 500);
            }
            rows[i][NUMBER] = (int64_t)i;
            assert_true(downsample_reserve(&samples));
            downsample_add(&samples, rows[i]);
            if (i % 97 == 0 || i + 1 == count) {
                assert_true(downsample_check(&samples));
                (seed % 4 == 3 ? compare_tops : compare)(&samples, rows, i + 1);
            }
        }
        assert_true(count > limit || samples.shift < 0);
        downsample_limit(&samples, CURVES + 1);
        assert_true(samples.count <= CURVES + 1);
        assert_int_equal(downsample_row(&samples, samples.count - 1)[NUMBER], count - 1);
        downsample_free(&samples);
    }
}

/* As a damaged database may have them. */
TEST(test_impossible_times)
{
    static const int64_t times[] = {INT64_MAX, INT64_MIN, 0, INT64_MAX - 1, -1};
    struct downsample samples = downsample_make(16, 2, 1, 0);
    for (int64_t i = 0; i < 3000; i++) {
        int64_t row[2] = {times[i % 5], i};
        assert_true(downsample_reserve(&samples));
        downsample_add(&samples, row);
    }
    assert_true(samples.count <= 16 && samples.shift <= 63);
    assert_int_equal(downsample_row(&samples, samples.count - 1)[1], 2999);
    downsample_free(&samples);
}

/* A value that stays while nothing happens is not lost among the many rows of another minute. */
TEST(test_long_pause)
{
    struct downsample samples = downsample_make(64, 2, 1, 0);
    for (int64_t i = 0; i < 100000; i++) {
        int64_t row[2] = {i < 50000 ? i : INT64_C(60000000000) + i, i == 25000 ? 7 : i == 50000 ? 5 : i % 3};
        assert_true(downsample_reserve(&samples));
        downsample_add(&samples, row);
    }
    assert_true(samples.shift < 20);
    bool has_seven = false;
    bool has_five = false;
    for (size_t i = 0; i < samples.count; i++) {
        has_seven = has_seven || (downsample_row(&samples, i)[0] == 25000 && downsample_row(&samples, i)[1] == 7);
        has_five = has_five || downsample_row(&samples, i)[1] == 5;
    }
    assert_true(has_seven && has_five);
    downsample_free(&samples);
}
