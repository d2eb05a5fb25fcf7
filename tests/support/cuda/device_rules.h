/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What every device of the ops table must do alike, for any that can be opened with index 3 and the limit
 * RULES_CAPACITY: life cycles of segments and virtual memory, the limit, events, pools, transfers, and each misuse,
 * which must be refused with the promised error and leave no trace. The resource table is walked after each step.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_DEVICE_RULES_H
#define VARVE_TESTS_SUPPORT_CUDA_DEVICE_RULES_H

#include "support/cuda/device_play.h"

#define RULES_INDEX 3
#define RULES_CAPACITY (16 * UNIT)

/* The initial state is the kind. */
int rules_setup(void **state);
void rules_test_plays(void **state);
void rules_test_random(void **state);
void rules_test_transfers(void **state);
void rules_test_threads(void **state); /* for devices that threads may use */

#define RULES_TEST(name, kind)                                                                               \
    {                                                                                                        \
        "rules_test_" #name, rules_test_##name, rules_setup, device_play_teardown, (void *)(uintptr_t)(kind) \
    }
/* All of them, of one kind, as elements of an array of struct CMUnitTest. */
#define RULES_TESTS(kind) RULES_TEST(plays, kind), RULES_TEST(random, kind), RULES_TEST(transfers, kind)

#endif
