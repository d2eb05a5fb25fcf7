/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime (support/storage/runtime_rules.h) in the GPU's memory.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/runtime_rules.h"

static const struct CMUnitTest rules[] = {
    RUNTIME_RULES(pool_cuda),
};

TEST_CASES(rules)
TEST_FILE(gpu_start, NULL)
