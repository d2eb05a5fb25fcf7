/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracker and the leaks that it finds (support/storage), among storages of the C library's memory and of pools.
 *
 * Runs threads: the tracker looks while they create and release.
 * Costs: 1 s
 */
#include "support/storage/tracker_rules.h"

static const struct CMUnitTest cases[] = {
    TRACKER_RULES(pool_libc),
    TRACKER_RULES(pool_host),
    TRACKER_RULES(pool_apart),
};

TEST_CASES(cases)
