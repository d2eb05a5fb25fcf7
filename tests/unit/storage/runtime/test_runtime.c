/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime (support/storage/runtime_rules.h) in pools on the host device, and on one whose memory the processor
 * leaves to it.
 * Costs: 8 s
 */
#include "support/storage/runtime_rules.h"

static const struct CMUnitTest cases[] = {
    RUNTIME_RULES(pool_host),
    RUNTIME_RULES(pool_apart),
};

TEST_CASES(cases)
