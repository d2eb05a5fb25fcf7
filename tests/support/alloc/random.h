/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * Random settings and operations for pair.h, the same ones for the same seed everywhere.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_RANDOM_H
#define VARVE_TESTS_SUPPORT_ALLOC_RANDOM_H

#include "support/alloc/pair.h"

#define ALLOC_RANDOM_STEPS_MAX 12000U

/// Fill `setup` and `ops` (room for ALLOC_RANDOM_STEPS_MAX); the number of operations.
size_t alloc_random_run(uint64_t seed, struct alloc_pair_setup *setup, struct alloc_pair_op *ops);

#endif
