/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime (support/storage/runtime_rules.h) in pools on the host device, and on one whose memory the processor leaves to it.
 */
#include "support/storage/runtime_rules.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUNTIME_RULES(pool_host),
        RUNTIME_RULES(pool_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
