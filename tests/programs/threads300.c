/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads that live at the same time, each with a few allocations of its own size (20000 + its number),
 * half of which it frees itself; the rest is freed by the main thread.
 *
 *   threads300 [THREADS [BLOCKS]]      prints {"threads":N,"allocs":N,"frees":N}
 */
#include "workload.h"

#include <pthread.h>

#define THREADS_MAX 1000
#define BLOCKS_MAX 64
#define SIZE_FIRST 20000

static pthread_barrier_t all_here;
static void *kept[THREADS_MAX][BLOCKS_MAX];
static unsigned blocks = 8;

static void *work(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    pthread_barrier_wait(&all_here);
    for (unsigned i = 0; i < blocks; i++) {
        void *block = take_block(SIZE_FIRST + number);
        if (i % 2 == 0) {
            free(block);
        } else {
            kept[number][i] = block;
        }
    }
    pthread_barrier_wait(&all_here);
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[THREADS_MAX];
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 300;
    blocks = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : blocks;
    if (count < 1 || count > THREADS_MAX || blocks > BLOCKS_MAX) {
        give_up("threads300: out of range");
    }
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all_here, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        if (pthread_create(&threads[i], &attributes, work, (void *)(uintptr_t)i) != 0) {
            give_up("cannot start a thread");
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        for (unsigned k = 0; k < blocks; k++) {
            free(kept[i][k]);
        }
    }
    say("{\"threads\":%u,\"allocs\":%u,\"frees\":%u}\n", count, count * blocks, count * blocks);
    return 0;
}
