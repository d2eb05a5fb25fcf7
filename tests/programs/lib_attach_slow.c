/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that is being loaded, with the loader's lock held, until standard input has a byte; SLOW_VFORK in the
 * environment: a vfork child waits for it, so that the thread can't be looked at.
 */
#include "workload.h"

__attribute__((constructor)) static void await_byte(void)
{
    const char *way = getenv("SLOW_VFORK");
    char byte;

    say("ready\n");
    if (way == NULL) {
        (void)syscall(SYS_read, STDIN_FILENO, &byte, 1);
    } else if (vfork() == 0) {
        (void)syscall(SYS_read, STDIN_FILENO, &byte, 1);
        _exit(0);
    }
}
