/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates what its standard input asks for, and stands still meanwhile: nothing is allocated or freed between two
 * lines, so that a recording under way can be compared with what it becomes.
 *
 *   keep N SIZE    N blocks of SIZE bytes, which stay
 *   drop N SIZE    the same, freed again
 *   map N SIZE     N mappings, which stay
 *   thread N SIZE  keep, in a thread that ends then
 *
 * Says "ready" after each line, and first of all; ends with the input, by _exit.
 */
#include "workload.h"

struct order {
    long count;
    size_t size;
};

static void __attribute__((noinline)) keep(const struct order *order)
{
    for (long i = 0; i < order->count; i++) {
        if (malloc(order->size) == NULL) {
            give_up("out of memory");
        }
    }
}

static void __attribute__((noinline)) drop(const struct order *order)
{
    for (long i = 0; i < order->count; i++) {
        char *block = malloc(order->size);
        __asm__ volatile("" : "+r"(block));
        free(block);
    }
}

static void __attribute__((noinline)) map(const struct order *order)
{
    for (long i = 0; i < order->count; i++) {
        if (mmap(NULL, order->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
            give_up("out of memory");
        }
    }
}

static void *keep_beside(void *order)
{
    keep(order);
    return NULL;
}

static void follow(const char *line)
{
    struct order order;
    char word[16];
    if (sscanf(line, "%15s %ld %zu", word, &order.count, &order.size) != 3) {
        give_up("what?");
    }
    if (strcmp(word, "keep") == 0) {
        keep(&order);
    } else if (strcmp(word, "drop") == 0) {
        drop(&order);
    } else if (strcmp(word, "map") == 0) {
        map(&order);
    } else {
        pthread_join(start_thread(keep_beside, &order), NULL);
    }
}

int main(void)
{
    size_t length = 0;
    say("ready\n");
    char line[128];
    while (length + 1 < sizeof(line) && read(STDIN_FILENO, &line[length], 1) == 1) {
        if (line[length] != '\n') {
            length++;
            continue;
        }
        line[length] = '\0';
        length = 0;
        follow(line);
        say("ready\n");
    }
    _exit(0);
}
