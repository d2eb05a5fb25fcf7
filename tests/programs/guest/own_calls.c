/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has functions of its own under the names of the C library's system calls, as some databases
 * and libc replacements do: a recorder that calls them gets nothing but errors. Prints how often they were
 * called from outside.
 *
 * usage: own_calls PAIRS
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Without parameters, which makes no difference to callers. */
#define OWN(name)       \
    long name(void);    \
    long name(void)     \
    {                   \
        calls++;        \
        errno = ENOSYS; \
        return -1;      \
    }

static volatile unsigned calls;

OWN(open)
OWN(open64)
OWN(openat)
OWN(close)
OWN(read)
OWN(pwrite)
OWN(pwrite64)
OWN(lseek)
OWN(ftruncate)
OWN(unlink)
OWN(readlink)
OWN(syscall)
OWN(sysconf)
OWN(fstat)
OWN(clock_gettime)
OWN(sched_yield)

char *getenv(const char *name)
{
    (void)name;
    calls++;
    return NULL;
}

int main(int argc, char **argv)
{
    long pairs = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
    calls = 0;
    for (long i = 0; i < pairs; i++) {
        char *memory = malloc(1234);
        memory[0] = 1;
        free(memory);
    }
    unsigned before = calls; /* printf has some of its own */
    printf("{\"pairs\":%ld,\"calls\":%u}\n", pairs, before);
    return 0;
}
