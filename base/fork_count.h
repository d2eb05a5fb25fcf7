/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often the process forked: who opened something and finds another number later is a fork child of the process that
 * did. Counted, since asking for the process's id is a system call.
 */
#ifndef VARVE_BASE_FORK_COUNT_H
#define VARVE_BASE_FORK_COUNT_H

#include <stdint.h>

extern uint32_t fork_count_value; /* atomic */

/// Count from here on. Threads: any, any number of times. Errors: VARVE_ERROR_NO_MEMORY.
int fork_count_begin(void);

/// Forks since fork_count_begin from that process down to this one. Threads: any.
static inline uint32_t fork_count(void)
{
    return __atomic_load_n(&fork_count_value, __ATOMIC_RELAXED);
}

#endif
