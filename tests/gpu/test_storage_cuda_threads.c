/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages of many threads in the GPU's memory (support/storage), on segments, expandable segments and the driver's
 * pool.
 *
 * Runs threads: it is what this is about.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/thread_rules.h"

static const struct CMUnitTest rules[] = {
    THREAD_RULES(pool_cuda),
    THREAD_RULES(pool_cuda_expandable),
    THREAD_RULES(pool_cuda_async),
};

TEST_CASES(rules)
TEST_FILE(gpu_start, NULL)
