/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with more different stacks than anybody wants to keep, in one of three ways:
 *
 *   many_stacks PATHS DEPTH ROUNDS   PATHS allocations of 40009 bytes, each at the end of another path through two
 *                                    calls, then ROUNDS of 40013 from the bottom of a recursion of DEPTH frames
 *   many_stacks small PATHS ROUNDS   call sites that matter little and two that matter: PATHS of 7 bytes, each at the
 *                                    end of another path, of which one stays (11 bytes); ROUNDS of 40009 bytes from one
 *                                    function, and ten of 50021 bytes that stay from another
 *   many_stacks levels DEPTH ROUNDS  a recursion of DEPTH levels, ROUNDS times, with a block of 100000 bytes and one
 *                                    more for each level in each of them, of which the first round's stay
 */
#include "programs/workload.h"

#define PATH_BITS 24U

/* Code that is equal to no other, so that a call between two of these stays one call. */
#define UNLIKE_OTHERS(number) __asm__ volatile("" : : "i"(number) : "memory")

static void walk(unsigned long path, unsigned left, size_t bytes);
static void (*const volatile deeper)(unsigned long, unsigned, size_t) = walk;

static void allocate(size_t bytes)
{
    free(take_block(bytes));
}

/* What is left of a path that is longer stays. */
static __attribute__((noinline)) void walk(unsigned long path, unsigned left, size_t bytes)
{
    if (left == 0 && path != 0) {
        take_block(11);
    } else if (left == 0) {
        allocate(bytes);
    } else if ((path & 1) != 0) {
        UNLIKE_OTHERS(1);
        deeper(path >> 1, left - 1, bytes);
        UNLIKE_OTHERS(2);
    } else {
        UNLIKE_OTHERS(3);
        deeper(path >> 1, left - 1, bytes);
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

static __attribute__((noinline)) void large(void)
{
    for (unsigned long i = 0; i < rounds; i++) {
        allocate(40009);
    }
}

static __attribute__((noinline)) void large_leak(void)
{
    for (int i = 0; i < 10; i++) {
        take_block(50021);
    }
}

static void levels(unsigned long level, unsigned long depth, int stays);
static void (*const volatile levels_on)(unsigned long, unsigned long, int) = levels;

static __attribute__((noinline)) void levels(unsigned long level, unsigned long depth, int stays)
{
    void *block = take_block(100000 + level);
    if (level < depth) {
        levels_on(level + 1, depth, stays);
        UNLIKE_OTHERS(8);
    }
    if (!stays) {
        free(block);
    }
}

static __attribute__((noinline)) void levels_of_rounds(unsigned long depth)
{
    for (unsigned long i = 0; i < rounds; i++) {
        levels_on(1, depth, i == 0);
        UNLIKE_OTHERS(9);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        give_up("usage: many_stacks PATHS DEPTH ROUNDS, many_stacks small PATHS ROUNDS, or many_stacks levels DEPTH "
                "ROUNDS");
    }
    if (strcmp(argv[1], "levels") == 0) {
        rounds = strtoul(argv[3], NULL, 10);
        levels_of_rounds(strtoul(argv[2], NULL, 10));
        return 0;
    }
    int is_small = strcmp(argv[1], "small") == 0;
    unsigned long paths = strtoul(argv[is_small ? 2 : 1], NULL, 10);
    rounds = strtoul(argv[3], NULL, 10);
    for (unsigned long path = 0; path < paths; path++) {
        walk(path, PATH_BITS, is_small ? 7 : 40009);
    }
    if (is_small) {
        walk(1UL << PATH_BITS, PATH_BITS, 0);
        large();
        UNLIKE_OTHERS(6);
        large_leak();
        UNLIKE_OTHERS(7);
    } else {
        recurse(strtoul(argv[2], NULL, 10));
    }
    return 0;
}
