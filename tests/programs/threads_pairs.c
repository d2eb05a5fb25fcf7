/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that allocate and free from many call sites, and say again and again how many pairs they have done and what
 * CPU time that took, so that something that begins and ends beside them can be compared with itself.
 *
 *   threads_pairs THREADS SECONDS BITS BURST [TICK_MS]
 *
 * Each pair is reached through BITS calls of one of two functions: from 2^BITS call sites. BURST: pairs of a thread
 * before it rests for 5 ms; 0: it never does. Prints one JSON object each TICK_MS (250).
 */
#include "workload.h"

#include "tests/support/random.h"

#include <pthread.h>

#define THREADS_MAX 64
#define WINDOW 512U
#define REST_US 5000U
#define TICK_MS 250L

static struct worker {
    pthread_t thread;
    uint64_t pairs; /* atomic */
    uint64_t random;
    char *window[WINDOW];
    char padding[64];
} workers[THREADS_MAX];

static uint64_t burst;
static unsigned bits;
static int must_end;

static void pair(struct worker *worker, uint64_t random)
{
    char **slot = &worker->window[(random >> 32) % WINDOW];

    free(*slot);
    *slot = malloc(16 + (random >> 48) % 1009);
    if (*slot == NULL) {
        give_up("out of memory");
    }
}

static void left(struct worker *worker, uint64_t random, unsigned depth);

/* What follows the calls keeps them from becoming jumps. */
static void __attribute__((noinline)) right(struct worker *worker, uint64_t random, unsigned depth)
{
    if (depth == 0) {
        pair(worker, random);
    } else if ((random >> depth) & 1) {
        right(worker, random, depth - 1);
    } else {
        left(worker, random, depth - 1);
    }
    __asm__ volatile("");
}

static void __attribute__((noinline)) left(struct worker *worker, uint64_t random, unsigned depth)
{
    if (depth == 0) {
        pair(worker, random);
    } else if ((random >> depth) & 1) {
        right(worker, random, depth - 1);
    } else {
        left(worker, random, depth - 1);
    }
    __asm__ volatile("");
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    for (uint64_t pairs = 1; !__atomic_load_n(&must_end, __ATOMIC_RELAXED); pairs++) {
        left(worker, random_next(&worker->random), bits);
        __atomic_store_n(&worker->pairs, pairs, __ATOMIC_RELAXED);
        if (burst != 0 && pairs % burst == 0) {
            usleep(REST_US);
        }
    }
    return NULL;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    const int threads = argc > 4 ? atoi(argv[1]) : 0;
    const long tick_ms = argc > 5 ? atol(argv[5]) : TICK_MS;
    long ticks;

    if (threads < 1 || threads > THREADS_MAX || tick_ms < 1) {
        give_up("usage: threads_pairs THREADS SECONDS BITS BURST [TICK_MS]");
    }
    ticks = atol(argv[2]) * 1000 / tick_ms;
    bits = (unsigned)atoi(argv[3]);
    burst = strtoull(argv[4], NULL, 10);
    for (int i = 0; i < threads; i++) {
        workers[i].random = 88172645463325252U + (uint64_t)i * 977;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) {
            give_up("no thread");
        }
    }
    for (long tick = 0; tick < ticks; tick++) {
        uint64_t pairs = 0;

        usleep((useconds_t)tick_ms * 1000);
        for (int i = 0; i < threads; i++) {
            pairs += __atomic_load_n(&workers[i].pairs, __ATOMIC_RELAXED);
        }
        say("{\"now_ns\": %llu, \"cpu_ns\": %llu, \"pairs\": %llu}\n", (unsigned long long)clock_ns(CLOCK_MONOTONIC),
            (unsigned long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID), (unsigned long long)pairs);
    }
    __atomic_store_n(&must_end, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return 0;
}
