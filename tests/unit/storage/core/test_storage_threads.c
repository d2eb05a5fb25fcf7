/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages of many threads (support/storage), in the C library's memory, in a pool's, and in a pool's that the
 * processor leaves to the device.
 *
 * Runs threads: it is what this is about.
 * Costs: 2 s
 */
#include "support/storage/thread_rules.h"

static const struct CMUnitTest cases[] = {
    THREAD_RULES(pool_libc),
    THREAD_RULES(pool_host),
    THREAD_RULES(pool_apart),
};

TEST_CASES(cases)
