/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the allocator's structures share: random numbers of a fixed seed, and a time without
 * memory, when the kernel refuses each new mapping.
 */
#ifndef VARVE_TESTS_SUPPORT_STRUCTURE_H
#define VARVE_TESTS_SUPPORT_STRUCTURE_H

#include "support/random.h"

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static uint64_t random_state; /* seeded by each test */

/* Between the two nothing may be printed or asserted: that could need memory too. */
static inline struct rlimit mappings_refuse(void)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    return before;
}

static inline void mappings_allow(struct rlimit before)
{
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
}

#endif
