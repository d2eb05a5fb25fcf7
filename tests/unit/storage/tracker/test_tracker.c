/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracker and the leaks that it finds (support/storage), among storages of the C library's memory and of pools.
 *
 * Runs threads: the tracker looks while they create and release.
 */
#include "support/storage/tracker_rules.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRACKER_RULES(pool_libc),
        TRACKER_RULES(pool_host),
        TRACKER_RULES(pool_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
