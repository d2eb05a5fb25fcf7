/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thinning of samples.
 * Costs: 1 s
 */
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/series.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static uint64_t random_state; /* seeded by each test */

TEST(test_series_thins_evenly)
{
    static const uint64_t lengths[] = {1, 2, 63, 64, 65, 200, 1000, 12345};
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        struct series series = {.limit = 64, .stride = 1};
        uint64_t maximum = 0;
        random_state = lengths[k];
        for (uint64_t seq = 1; seq <= lengths[k]; seq++) {
            uint64_t allocated = random_below(&random_state, 1000000);
            maximum = allocated > maximum ? allocated : maximum;
            assert_true(series_reserve(&series));
            series_add(&series, seq, (int64_t)seq * 10, allocated, seq % 7);
            assert_int_equal(series_check(&series), VARVE_OK);
        }
        assert_true(series_reserve(&series));
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
