/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows over time as points: of each point against all the rows that it stands for.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/query/page/reduce.h"
#include "tests/support/random.h"

#include <stdlib.h>

#define ROWS_MAX 5000
#define POINTS 16
#define TOP 2

static struct reduce_row rows[ROWS_MAX];

static void check_point(const struct reduce_point *point, size_t from)
{
    const struct reduce_row *top = &rows[from];

    for (size_t i = from; i < from + point->rows; i++) {
        top = rows[i].figures[TOP] > top->figures[TOP] ? &rows[i] : top;
    }
    assert_memory_equal(&point->last, &rows[from + point->rows - 1], sizeof(point->last));
    assert_memory_equal(&point->top, top, sizeof(point->top));
    for (int figure = 0; figure < REDUCE_FIGURES; figure++) {
        int64_t most = INT64_MIN;

        for (size_t i = from; i < from + point->rows; i++) {
            most = rows[i].figures[figure] > most ? rows[i].figures[figure] : most;
        }
        assert_int_equal(point->most[figure], most);
    }
}

TEST(test_points_stand_for_their_rows)
{
    uint64_t random = test_first_seed(1);

    for (size_t count = 0; count < ROWS_MAX; count += 1 + count / 3) {
        struct reduce reduce;
        size_t from = 0;

        reduce_init(&reduce, POINTS, TOP);
        for (size_t i = 0; i < count; i++) {
            rows[i].ts_ns = (int64_t)i;
            for (int figure = 0; figure < REDUCE_FIGURES; figure++) {
                rows[i].figures[figure] = (int64_t)random_below(&random, 1000) - 500;
            }
            reduce_add(&reduce, &rows[i]);
        }
        assert_true(reduce.count <= POINTS);
        assert_true(count < POINTS ? reduce.count == count : reduce.count >= POINTS / 2);
        for (size_t i = 0; i < reduce.count; i++) {
            check_point(&reduce.points[i], from);
            from += reduce.points[i].rows;
            assert_true(reduce.points[i].rows == reduce.stride || i + 1 == reduce.count);
        }
        assert_int_equal(from, count);
        reduce_free(&reduce);
    }
}
