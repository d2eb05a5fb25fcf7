/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees and allocates in the destructors of thread-specific data, in each of their rounds, the last one
 * included: later than the recorder's own clean-up of the thread. Blocks have the size 30011.
 *
 *   threadend [THREADS]      prints {"threads":N,"allocs":N,"frees":N}
 */
#include "workload.h"

#include <limits.h>

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
        block = take_block(SIZE);
        *block = rounds_left - 1;
        pthread_setspecific(key, block);
    }
}

#define END(key)                       \
    static void end_##key(void *value) \
    {                                  \
        end_round(keys[key], value);   \
    }
END(0)
END(1)
END(2)

static void *work(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < KEYS; i++) {
        uintptr_t *block = take_block(SIZE);
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
        pthread_join(start_thread(work, NULL), NULL);
    }
    unsigned blocks = count * KEYS * PTHREAD_DESTRUCTOR_ITERATIONS;
    say("{\"threads\":%u,\"allocs\":%u,\"frees\":%u}\n", count, blocks, blocks);
    return 0;
}
