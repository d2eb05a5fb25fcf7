/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What derive is made of, each for itself: the address index and the mapped ranges against naive copies, the
 * thinning of samples.
 */
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/live.h"
#include "trace/model/ranges.h"
#include "trace/model/series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static uint64_t random_state; /* seeded by each test */

/* ---- live index ---- */

static void test_live_index_as_array(void **state)
{
    (void)state;
    enum { ADDRESSES = 3000 };
    static uint64_t ids[ADDRESSES];
    struct live_index index = {0};
    uint64_t count = 0;
    random_state = 11;
    memset(ids, 0, sizeof(ids));
    assert_int_equal(live_find(&index, 16), 0);
    assert_int_equal(live_remove(&index, 16), 0);
    for (uint64_t step = 1; step < 60000; step++) {
        /* Grows in the first third, shrinks in the last. */
        uint64_t bias = step < 20000 ? 70 : step < 40000 ? 50 : 25;
        uint64_t slot = random_below(&random_state, ADDRESSES);
        uint64_t addr = UINT64_C(0x7f0000000000) + 16 * slot;
        assert_int_equal(live_find(&index, addr), ids[slot]);
        if (random_below(&random_state, 100) < bias) {
            assert_int_equal(live_reserve(&index), VARVE_OK);
            assert_int_equal(live_insert(&index, addr, step), ids[slot]);
            count += ids[slot] == 0;
            ids[slot] = step;
        } else {
            assert_int_equal(live_remove(&index, addr), ids[slot]);
            count -= ids[slot] != 0;
            ids[slot] = 0;
        }
        assert_int_equal(index.count, count);
        if (step % 64 == 0) {
            assert_int_equal(live_check(&index), VARVE_OK);
        }
    }
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        assert_int_equal(live_find(&index, UINT64_C(0x7f0000000000) + 16 * i), ids[i]);
    }
    live_clear(&index);
    assert_int_equal(live_find(&index, 16), 0);
}

/* The promise of 64 bytes per live block, also while the table is doubled. */
static void test_live_index_bytes(void **state)
{
    (void)state;
    struct live_index index = {0};
    uint64_t slots_before = 0;
    for (uint64_t i = 1; i <= 200000; i++) {
        assert_int_equal(live_reserve(&index), VARVE_OK);
        uint64_t slots = UINT64_C(1) << index.bits;
        if (slots != slots_before && i > 1000) {
            assert_true((slots + slots_before) * sizeof(struct live_slot) <= 64 * i + 4096);
        }
        slots_before = slots;
        live_insert(&index, i * 32, i);
    }
    live_clear(&index);
}

/* ---- ranges ---- */

/* One cell per page: the id of the range that covers it. */
enum { PAGES = 4000 };

static int expect_range(void *context, const struct range *range)
{
    const uint64_t *pages = context;
    for (uint64_t page = range->start; page < range->end; page++) {
        assert_int_equal(pages[page], range->id);
    }
    return 0;
}

static void test_ranges_as_pages(void **state)
{
    (void)state;
    static uint64_t pages[PAGES];
    struct ranges ranges = {0};
    uint64_t covered = 0;
    random_state = 5;
    memset(pages, 0, sizeof(pages));
    for (uint64_t step = 1; step < 30000; step++) {
        uint64_t start = random_below(&random_state, PAGES - 8);
        uint64_t end = start + 1 + random_below(&random_state, 4);
        struct range range;
        uint64_t first = 0;
        for (uint64_t page = start; page < end && first == 0; page++) {
            first = pages[page];
        }
        assert_int_equal(ranges_first(&ranges, start, end, &range), first != 0);
        if (first != 0) {
            assert_int_equal(range.id, first);
            ranges_remove(&ranges, range.start);
            memset(&pages[range.start], 0, (range.end - range.start) * sizeof(pages[0]));
            covered -= range.end - range.start;
        } else if (step < 20000 || random_below(&random_state, 4) == 0) {
            range = (struct range){.start = start, .end = end, .id = step};
            assert_int_equal(ranges_reserve(&ranges, 1), VARVE_OK);
            ranges_insert(&ranges, &range);
            for (uint64_t page = start; page < end; page++) {
                pages[page] = step;
            }
            covered += end - start;
        }
        assert_int_equal(ranges_check(&ranges), VARVE_OK);
    }
    assert_int_equal(ranges_each(&ranges, expect_range, pages), 0);
    uint64_t cells = 0;
    for (uint64_t i = 0; i < PAGES; i++) {
        cells += pages[i] != 0;
    }
    assert_int_equal(cells, covered);
    assert_true(ranges.leaf_count > 4);
    ranges_clear(&ranges);
}

/* ---- samples ---- */

static void test_series_thins_evenly(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 2, 63, 64, 65, 200, 1000, 12345};
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        struct series series = {.limit = 64, .stride = 1};
        uint64_t maximum = 0;
        random_state = lengths[k];
        for (uint64_t seq = 1; seq <= lengths[k]; seq++) {
            uint64_t allocated = random_below(&random_state, 1000000);
            maximum = allocated > maximum ? allocated : maximum;
            assert_int_equal(series_reserve(&series), VARVE_OK);
            series_add(&series, seq, (int64_t)seq * 10, allocated, seq % 7);
            assert_int_equal(series_check(&series), VARVE_OK);
        }
        assert_int_equal(series_reserve(&series), VARVE_OK);
        series_end(&series, series.limit);
        uint64_t seen = 0;
        for (uint32_t i = 0; i < series.count; i++) {
            seen = series.points[i].allocated_max > seen ? series.points[i].allocated_max : seen;
            assert_int_equal(series.points[i].ts_ns, (int64_t)series.points[i].seq * 10);
            assert_int_equal(series.points[i].live, series.points[i].seq % 7);
            if (i + 1 < series.count) {
                assert_int_equal(series.points[i].seq, (i + 1) * series.stride);
            }
        }
        assert_int_equal(seen, maximum);
        assert_int_equal(series.points[series.count - 1].seq, lengths[k]);
        assert_true(lengths[k] <= 64 ? series.count == lengths[k] : series.count >= 32);
        series_end(&series, 4);
        assert_true(series.count <= 4);
        assert_int_equal(series.points[series.count - 1].seq, lengths[k]);
        free(series.points);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_index_as_array),
        cmocka_unit_test(test_live_index_bytes),
        cmocka_unit_test(test_ranges_as_pages),
        cmocka_unit_test(test_series_thins_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
