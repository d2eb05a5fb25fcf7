/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks of a process's work and of a call site's curve, against every allocation by itself: they lie where they say,
 * there are never more than there is room for, and between two of them a curve is their mean in proportion.
 * Costs: 1 s
 */
#include <stdbool.h>
#include <cmocka.h>

#include "support/random.h"
#include "trace/model/curve.h"
#include "trace/model/process_work.h"

#include <stdlib.h>

#define ALLOCATIONS 100000U

TEST(test_work)
{
    static struct work_mark marks[ALLOCATIONS + 1];
    static struct work work;
    uint64_t random = test_first_seed(1);
    for (uint64_t made = 1; made <= ALLOCATIONS; made++) {
        const uint64_t since = random_below(&random, 500) == 0 ? 3000000 : random_below(&random, 50);
        const struct work_mark before = marks[made - 1];
        marks[made].seq = before.seq + random_below(&random, 3);
        marks[made].ns = before.ns + (int64_t)since;
        marks[made].active_ns = made == 1 ? 0 : before.active_ns + (since < WORK_PAUSE_NS ? since : WORK_PAUSE_NS);
        marks[made].allocations = made;
        work_add(&work, marks[made].seq, marks[made].ns);
        assert_memory_equal(&work.first, &marks[1], sizeof(marks[1]));
        assert_memory_equal(&work.last, &marks[made], sizeof(marks[1]));
        assert_true(work.count <= WORK_MARKS);
        uint32_t count = 0;
        for (uint64_t i = 2; made % 1000 == 0 && i <= made; i++) {
            if (marks[i].active_ns >> work.shift != marks[i - 1].active_ns >> work.shift) {
                assert_memory_equal(&work.marks[count++], &marks[i], sizeof(marks[1]));
            }
        }
        assert_true(made % 1000 != 0 || count == work.count);
    }
    assert_true(work.count >= WORK_MARKS / 2);
}

/* Each allocation is live at random, all along equally often. */
TEST(test_curve)
{
    static struct curve_point live[ALLOCATIONS + 1];
    struct curve *curve = NULL;
    uint64_t random = test_first_seed(1);
    for (uint64_t made = 1; made <= ALLOCATIONS; made++) {
        const bool stays = random_below(&random, 20) == 0;
        live[made].allocations = live[made - 1].allocations + stays;
        live[made].bytes = live[made - 1].bytes + stays * random_below(&random, 100);
        if (made % CURVE_EVERY_MIN == 0) {
            curve_add(&curve, made, live[made]);
            assert_non_null(curve);
            assert_true(curve->count <= CURVE_MARKS && curve->count == made / curve->every);
        }
        for (unsigned tenth = 1; made % 7777 == 0 && tenth <= 10; tenth++) {
            const uint64_t at = made * tenth / 10, before = at / curve->every * curve->every;
            const uint64_t after = before + curve->every <= made ? before + curve->every : made;
            const struct curve_point point = curve_at(curve, tenth, made, live[made]);
            assert_in_range(point.allocations, live[before].allocations, live[after].allocations);
            assert_in_range(point.bytes, live[before].bytes, live[after].bytes);
        }
        if (made % 7777 == 0) {
            const struct curve_point last = curve_at(curve, 10, made, live[made]);
            assert_int_equal(last.allocations, live[made].allocations);
            assert_int_equal(last.bytes, live[made].bytes);
        }
    }
    assert_true(curve->count >= CURVE_MARKS / 2);
    free(curve);
}

TEST_FILE(NULL, NULL)
