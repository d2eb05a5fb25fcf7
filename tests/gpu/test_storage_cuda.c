/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages in the GPU's memory: the rules of all memories (support/storage) on segments, expandable segments and the
 * driver's pool. Random operations are beside NumPy in test_storage_gpu.py.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/storage_rules.h"

static const struct CMUnitTest rules[] = {
    STORAGE_RULES(pool_cuda),
    STORAGE_RULES(pool_cuda_expandable),
    STORAGE_RULES(pool_cuda_async),
};

TEST_CASES(rules)
TEST_FILE(gpu_start, NULL)
