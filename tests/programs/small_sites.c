/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many call sites that matter little and two that matter: PATHS allocations of 7 bytes, each at the end of another
 * path of calls, of which one stays (11 bytes); ROUNDS of 40009 bytes from one function, and ten of 50021 bytes that
 * stay from another.
 *
 *   small_sites PATHS ROUNDS      prints {"paths":N,"rounds":N}
 */
#include "programs/workload.h"

#include <stdbool.h>

#define PATH_BITS 20U

/* Code that is equal to no other, so that a call between two of these stays one call. */
#define UNLIKE_OTHERS(number) __asm__ volatile("" : : "i"(number) : "memory")

static void walk(unsigned long path, unsigned left);
static void (*const volatile deeper)(unsigned long, unsigned) = walk;

static void allocate(size_t bytes, bool stays)
{
    char *volatile block = malloc(bytes);
    if (block == NULL) {
        give_up("out of memory");
    }
    block[0] = 1;
    if (!stays) {
        free(block);
    }
}

static __attribute__((noinline)) void walk(unsigned long path, unsigned left)
{
    if (left == 0) {
        allocate(path == 0 ? 7 : 11, path != 0);
    } else if ((path & 1) != 0) {
        UNLIKE_OTHERS(1);
        deeper(path >> 1, left - 1);
        UNLIKE_OTHERS(2);
    } else {
        UNLIKE_OTHERS(3);
        deeper(path >> 1, left - 1);
        UNLIKE_OTHERS(4);
    }
}

static __attribute__((noinline)) void large(unsigned long rounds)
{
    for (unsigned long i = 0; i < rounds; i++) {
        allocate(40009, false);
    }
}

static __attribute__((noinline)) void large_leak(void)
{
    for (int i = 0; i < 10; i++) {
        allocate(50021, true);
    }
}

int main(int argc, char **argv)
{
    unsigned long paths = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    for (unsigned long path = 0; path < paths; path++) {
        walk(path, PATH_BITS);
    }
    walk(1UL << PATH_BITS, PATH_BITS); /* what is left of this path is not 0 */
    large(rounds);
    UNLIKE_OTHERS(5);
    large_leak();
    UNLIKE_OTHERS(6);
    say("{\"paths\":%lu,\"rounds\":%lu}\n", paths, rounds);
    return 0;
}
