/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every piece of work is done once, on however many threads, also where there is none.
 * Runs threads: that is what it is about.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "analysis/base/parallel.h"

#include <string.h>

#define PIECES 1000

static void count(void *context, size_t index)
{
    unsigned *times = context;
    __atomic_fetch_add(&times[index], 1, __ATOMIC_RELAXED);
}

TEST(test_each_once)
{
    static const unsigned threads[] = {0, 1, 2, 7, 5000};
    for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
        unsigned times[PIECES] = {0};
        parallel_run(PIECES, threads[i], count, times);
        for (size_t j = 0; j < PIECES; j++) {
            assert_int_equal(times[j], 1);
        }
        parallel_run(0, threads[i], count, NULL);
    }
}

TEST(test_threads)
{
    assert_true(parallel_threads(0) >= 1);
    assert_int_equal(parallel_threads(3), 3);
    assert_true(parallel_threads(UINT32_MAX) < 10000); /* not as many as the machine has room for */
}
