/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of blocks between two threads. A block belongs to the producer's thread until it is `filled` and to
 * the reader until it is `taken`; an error is part of the last block.
 */
#include "analysis/base/input_stream.h"

#include "analysis/base/memory_or_exit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (128 * 1024)
#define BLOCKS 4U

struct block {
    struct prefetch_step step;
    int error;
    struct varve_message message;
    unsigned char bytes[BLOCK_BYTES];
};

struct prefetch {
    struct prefetch_producer producer;
    pthread_t thread;
    size_t used; /* of the block being taken; the reader's */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t filled, taken; /* number n is blocks[n % BLOCKS] */
    bool must_end;
    struct block blocks[BLOCKS];
};

static void *input_prefetch_run(void *context)
{
    struct prefetch *prefetch = context;
    pthread_mutex_lock(&prefetch->mutex);
    bool is_over = false;
    while (!is_over && !prefetch->must_end) {
        struct block *block = &prefetch->blocks[prefetch->filled % BLOCKS];
        if (prefetch->filled - prefetch->taken == BLOCKS) {
            pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
            continue;
        }
        pthread_mutex_unlock(&prefetch->mutex);
        block->step = (struct prefetch_step){0};
        block->error = prefetch->producer.make(prefetch->producer.context, block->bytes, BLOCK_BYTES, &block->step,
                                               &block->message);
        is_over = block->error != VARVE_OK || block->step.is_ended;
        pthread_mutex_lock(&prefetch->mutex);
        prefetch->filled++;
        pthread_cond_signal(&prefetch->changed);
    }
    pthread_mutex_unlock(&prefetch->mutex);
    return NULL;
}

struct prefetch *prefetch_start(const struct prefetch_producer *producer)
{
    struct prefetch *prefetch = memory_resize(NULL, sizeof(*prefetch));
    memset(prefetch, 0, offsetof(struct prefetch, blocks));
    prefetch->producer = *producer;
    pthread_mutex_init(&prefetch->mutex, NULL);
    pthread_cond_init(&prefetch->changed, NULL);
    sigset_t all;
    /* signals are for the threads of the command */
    sigfillset(&all);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(&prefetch->thread, NULL, input_prefetch_run, prefetch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        pthread_cond_destroy(&prefetch->changed);
        pthread_mutex_destroy(&prefetch->mutex);
        free(prefetch);
        return NULL;
    }
    return prefetch;
}

void prefetch_stop(struct prefetch *prefetch)
{
    if (prefetch == NULL) {
        return;
    }
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->must_end = true;
    pthread_cond_signal(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->changed);
    pthread_mutex_destroy(&prefetch->mutex);
    free(prefetch);
}

int prefetch_read(struct prefetch *prefetch, unsigned char *to, size_t room, struct prefetch_step *step,
                  struct varve_message *message)
{
    const struct block *block = &prefetch->blocks[prefetch->taken % BLOCKS]; /* `taken` is this thread's to change */
    pthread_mutex_lock(&prefetch->mutex);
    while (prefetch->filled == prefetch->taken) {
        pthread_cond_wait(&prefetch->changed, &prefetch->mutex);
    }
    pthread_mutex_unlock(&prefetch->mutex);
    *step = (struct prefetch_step){.made = block->step.made - prefetch->used, .done = block->step.done};
    step->made = step->made < room ? step->made : room;
    memcpy(to, block->bytes + prefetch->used, step->made);
    prefetch->used += step->made;
    if (prefetch->used < block->step.made) {
        return VARVE_OK;
    }
    bool is_last = block->error != VARVE_OK || block->step.is_ended;
    step->is_ended = block->step.is_ended;
    if (is_last) {
        if (block->error != VARVE_OK && message != NULL) {
            *message = block->message;
        }
        return block->error;
    }
    prefetch->used = 0;
    pthread_mutex_lock(&prefetch->mutex);
    prefetch->taken++;
    pthread_cond_signal(&prefetch->changed);
    pthread_mutex_unlock(&prefetch->mutex);
    return VARVE_OK;
}
