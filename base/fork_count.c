/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fork_count.h"

#include "base/error.h"

#include <pthread.h>

uint32_t fork_count_value;

static int fork_count_error;

static void fork_count_child(void)
{
    __atomic_add_fetch(&fork_count_value, 1, __ATOMIC_RELAXED);
}

static void fork_count_begin_once(void)
{
    fork_count_error = pthread_atfork(NULL, NULL, fork_count_child) == 0 ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

int fork_count_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fork_count_begin_once);
    return fork_count_error;
}
