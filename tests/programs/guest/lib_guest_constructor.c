/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library whose constructor lets the program know that it has begun: by a signal, which the program handles
 * with the loader's lock held.
 */
#include <signal.h>

static __attribute__((constructor)) void begin(void)
{
    raise(SIGUSR1);
}
