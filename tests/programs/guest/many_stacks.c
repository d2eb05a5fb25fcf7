/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with more different stacks than anybody wants to keep: PATHS allocations, each at the end of another path
 * through two calls, then ROUNDS from the bottom of a recursion of DEPTH frames. All sizes are marks: 40009 and 40013.
 *
 *   many_stacks PATHS DEPTH ROUNDS      prints {"paths":N,"deep":N}
 */
#include "programs/workload.h"

#define PATH_BITS 24U

/* Code that is equal to no other, so that a call between two of these stays one call. */
#define UNLIKE_OTHERS(number) __asm__ volatile("" : : "i"(number) : "memory")

static void allocate(size_t bytes)
{
    char *block = malloc(bytes);
    if (block == NULL) {
        give_up("out of memory");
    }
    block[0] = 1;
    free(block);
}

static void walk(unsigned long path, unsigned left);
static void (*const volatile deeper)(unsigned long, unsigned) = walk;

static __attribute__((noinline)) void walk(unsigned long path, unsigned left)
{
    if (left == 0) {
        allocate(40009);
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

static unsigned long rounds;

static void recurse(unsigned long left);
static void (*const volatile recurse_on)(unsigned long) = recurse;

static __attribute__((noinline)) void recurse(unsigned long left)
{
    if (left > 0) {
        recurse_on(left - 1);
        UNLIKE_OTHERS(5);
        return;
    }
    for (unsigned long i = 0; i < rounds; i++) {
        allocate(40013);
    }
}

int main(int argc, char **argv)
{
    unsigned long paths = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long depth = argc > 2 ? strtoul(argv[2], NULL, 10) : 1000;
    rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 10;
    for (unsigned long path = 0; path < paths; path++) {
        walk(path, PATH_BITS);
    }
    recurse(depth);
    say("{\"paths\":%lu,\"deep\":%lu}\n", paths, rounds);
    return 0;
}
