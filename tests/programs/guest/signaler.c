/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer's signal handler that allocates in the middle of the main thread's recorded calls. glibc's malloc
 * may not be entered twice, so the two sides never use it at once: first the handler maps and unmaps while
 * the main thread calls malloc and free, then the other way round. All sizes are marks: heap 40009, mappings
 * 5 pages.
 *
 *   signaler [PAIRS]      prints {"allocs":N,"frees":N,"maps":N,"unmaps":N,"signals":N}
 */
#include "programs/workload.h"

#include <signal.h>
#include <sys/time.h>

#define HEAP_BYTES 40009
#define MAP_BYTES (5 * 4096UL)
#define PERIOD_US 50

struct counts {
    volatile unsigned long heap, map, signals;
};

static struct counts by_main, by_handler;
static volatile sig_atomic_t handler_maps, is_armed;

static void one_map(struct counts *counts)
{
    void *memory = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || munmap(memory, MAP_BYTES) != 0) {
        give_up("cannot map");
    }
    counts->map++;
}

static void one_block(struct counts *counts)
{
    free(take_block(HEAP_BYTES));
    counts->heap++;
}

/* One signal, so that the main thread gets on between two however long a recorded handler takes. */
static void arm(long microseconds)
{
    struct itimerval timer = {{0, 0}, {0, microseconds}};
    is_armed = microseconds != 0;
    if (setitimer(ITIMER_REAL, &timer, NULL) != 0) {
        give_up("no timer");
    }
}

static void on_timer(int number)
{
    (void)number;
    by_handler.signals++;
    for (unsigned i = 0; i < 3; i++) {
        if (handler_maps) {
            one_map(&by_handler);
        } else {
            one_block(&by_handler);
        }
    }
    if (is_armed) {
        arm(PERIOD_US);
    }
}

int main(int argc, char **argv)
{
    unsigned long pairs = argc > 1 ? strtoul(argv[1], NULL, 10) : 200000;
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_timer;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    /* A second sink may allocate at a thread's first record, which therefore is not one in a handler. */
    one_block(&by_main);
    for (int phase = 0; phase < 2; phase++) {
        handler_maps = phase == 0;
        arm(PERIOD_US);
        for (unsigned long i = 0; i < (phase == 0 ? pairs : pairs / 8); i++) {
            if (phase == 0) {
                one_block(&by_main);
            } else {
                one_map(&by_main);
            }
        }
        arm(0);
    }
    unsigned long heap = by_main.heap + by_handler.heap, map = by_main.map + by_handler.map;
    say("{\"allocs\":%lu,\"frees\":%lu,\"maps\":%lu,\"unmaps\":%lu,\"signals\":%lu}\n", heap, heap, map, map,
        by_handler.signals);
    return 0;
}
