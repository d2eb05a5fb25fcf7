/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracker and the leaks that it finds (support/storage), among storages in the GPU's memory.
 *
 * Runs threads: the tracker looks while they create and release.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/storage/tracker_rules.h"

static const struct CMUnitTest rules[] = {
    TRACKER_RULES(pool_cuda),
};

TEST_CASES(rules)
TEST_FILE(gpu_start, NULL)
