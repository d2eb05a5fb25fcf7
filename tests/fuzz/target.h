/* SPDX-License-Identifier: Apache-2.0 */
/* C only: what every target has */
#ifndef VARVE_TESTS_FUZZ_TARGET_H
#define VARVE_TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What must hold whatever the bytes are. */
static inline void check(bool is_true)
{
    if (!is_true) {
        abort();
    }
}

#endif
