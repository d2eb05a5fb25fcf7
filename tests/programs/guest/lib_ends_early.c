/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library whose constructor ends the process, before that of a library that was preloaded ahead of it: with exit
 * status 3, or by signal 9 where ENDS_EARLY is "kill"; after an allocation where it is "used".
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __attribute__((constructor)) void end(void)
{
    const char *how = getenv("ENDS_EARLY");
    if (how != NULL && strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    }
    if (how != NULL && strcmp(how, "used") == 0) {
        void *volatile block = malloc(3);
        free(block);
    }
    _exit(3);
}
