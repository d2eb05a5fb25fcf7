/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that do nothing but allocate and free, each by itself, and say what a pair cost by their own clocks: what
 * they pay for each other shows in how that grows with their number.
 *
 *   heap_threads THREADS PAIRS DEPTH
 *
 * Each takes PAIRS of malloc(64) and free, DEPTH calls below its first function, once all of them have taken their
 * first ones. Prints one JSON object: the mean of the threads and the most of them, of processor time.
 */
#include "workload.h"

#define THREADS_MAX 1024U
#define PAIRS_WARM_UP 2000U

static pthread_barrier_t all_are_warm;
static uint64_t pairs;
static unsigned depth;

/* After a call: keeps the compiler from making a jump or a loop of it, which would leave no frame. */
#define KEEP_FRAME() __asm__ volatile("nop")

static void take_pairs(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        char *block = malloc(64);
        __asm__ volatile("" : "+r"(block)); /* used, as far as the compiler knows */
        free(block);
    }
}

static void __attribute__((noinline)) go_down(unsigned calls, uint64_t count)
{
    if (calls <= 1) {
        take_pairs(count);
    } else {
        go_down(calls - 1, count);
    }
    KEEP_FRAME();
}

static double nanos_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* `argument`: where the nanoseconds of a pair go. */
static void *run(void *argument)
{
    double begin = 0;
    for (volatile unsigned round = 0; round < 2; round++) { /* one call, so that the stack is known */
        if (round == 1) {
            pthread_barrier_wait(&all_are_warm);
            begin = nanos_now();
        }
        go_down(depth, round == 0 ? PAIRS_WARM_UP : pairs);
    }
    *(double *)argument = (nanos_now() - begin) / (double)pairs;
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[THREADS_MAX];
    static double nanos[THREADS_MAX];
    const unsigned count = argc == 4 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    pairs = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    depth = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
    if (count == 0 || count > THREADS_MAX || pairs == 0 || depth == 0) {
        give_up("usage: heap_threads THREADS PAIRS DEPTH");
    }
    if (pthread_barrier_init(&all_are_warm, NULL, count) != 0) {
        give_up("no barrier");
    }
    double sum = 0, most = 0;
    for (unsigned i = 0; i < count; i++) {
        threads[i] = start_thread(run, &nanos[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        sum += nanos[i];
        most = nanos[i] > most ? nanos[i] : most;
    }
    say("{\"threads\": %u, \"pairs\": %llu, \"depth\": %u, \"cpu_ns\": %.3f, \"most_cpu_ns\": %.3f}\n", count,
        (unsigned long long)pairs, depth, sum / count, most);
    return 0;
}
