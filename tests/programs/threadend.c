/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees and allocates in the destructors of thread-specific data, in each of their rounds, the last one
 * included: later than the recorder's own clean-up of the thread. Blocks have the size 30011.
 *
 *   threadend [THREADS]      prints {"threads":N,"allocs":N,"frees":N}
 */
#include "workload.h"

#include <limits.h>
#include <pthread.h>

#define SIZE 30011
#define KEYS 3

static pthread_key_t keys[KEYS];

/* One block for the next round in place of the one of this round; the last round leaves nothing. */
static void end_round(pthread_key_t key, void *value)
{
    uintptr_t *block = value;
    uintptr_t rounds_left = *block;
    free(block);
    if (rounds_left > 1) {
        block = malloc(SIZE);
        if (!block) {
            give_up("out of memory");
        }
        *block = rounds_left - 1;
        pthread_setspecific(key, block);
    }
}

static void end_0(void *value)
{
    end_round(keys[0], value);
}

static void end_1(void *value)
{
    end_round(keys[1], value);
}

static void end_2(void *value)
{
    end_round(keys[2], value);
}

static void *work(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < KEYS; i++) {
        uintptr_t *block = malloc(SIZE);
        if (!block) {
            give_up("out of memory");
        }
        *block = PTHREAD_DESTRUCTOR_ITERATIONS;
        pthread_setspecific(keys[i], block);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static void (*const ends[KEYS])(void *) = {end_0, end_1, end_2};
    unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20;
    for (unsigned i = 0; i < KEYS; i++) {
        if (pthread_key_create(&keys[i], ends[i]) != 0) {
            give_up("cannot make a key");
        }
    }
    for (unsigned i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0) {
            give_up("cannot run a thread");
        }
    }
    unsigned blocks = count * KEYS * PTHREAD_DESTRUCTOR_ITERATIONS;
    say("{\"threads\":%u,\"allocs\":%u,\"frees\":%u}\n", count, blocks, blocks);
    return 0;
}
