/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that fills a ring of blocks, and the reader that empties it. Unpacking takes about as long as
 * reading what was unpacked, so on two processors it costs nothing. A block belongs to the thread until it is
 * `filled` and to the reader until it is `taken`; an error is part of the last block. Called by
 * stream.c.
 */
#include "analysis/history/input/prefetch.h"

#include "analysis/output/memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (128 * 1024)
#define BLOCKS 4U

struct block {
    struct input_ahead_step step;
    int error;
    struct varve_message message;
    unsigned char bytes[BLOCK_BYTES];
};

struct input_ahead {
    struct input_ahead_maker maker;
    pthread_t thread;
    size_t used; /* of the block being taken; the reader's */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t filled, taken; /* number n is blocks[n % BLOCKS] */
    bool must_end;
    struct block blocks[BLOCKS];
};

static void *run(void *context)
{
    struct input_ahead *ahead = context;
    bool is_over = false;

    pthread_mutex_lock(&ahead->mutex);
    while (!is_over && !ahead->must_end) {
        struct block *block = &ahead->blocks[ahead->filled % BLOCKS];

        if (ahead->filled - ahead->taken == BLOCKS) {
            pthread_cond_wait(&ahead->changed, &ahead->mutex);
            continue;
        }
        pthread_mutex_unlock(&ahead->mutex);
        block->step = (struct input_ahead_step){0};
        block->error =
            ahead->maker.make(ahead->maker.context, block->bytes, BLOCK_BYTES, &block->step, &block->message);
        is_over = block->error != VARVE_OK || block->step.is_ended;
        pthread_mutex_lock(&ahead->mutex);
        ahead->filled++;
        pthread_cond_signal(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

struct input_ahead *input_ahead_start(const struct input_ahead_maker *maker)
{
    struct input_ahead *ahead = memory_resize(NULL, sizeof(*ahead));
    sigset_t all;
    sigset_t before;
    int result;

    memset(ahead, 0, offsetof(struct input_ahead, blocks));
    ahead->maker = *maker;
    pthread_mutex_init(&ahead->mutex, NULL);
    pthread_cond_init(&ahead->changed, NULL);
    /* signals are for the threads of the command */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_create(&ahead->thread, NULL, run, ahead);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        pthread_cond_destroy(&ahead->changed);
        pthread_mutex_destroy(&ahead->mutex);
        free(ahead);
        return NULL;
    }
    return ahead;
}

void input_ahead_stop(struct input_ahead *ahead)
{
    if (ahead == NULL) {
        return;
    }
    pthread_mutex_lock(&ahead->mutex);
    ahead->must_end = true;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    pthread_join(ahead->thread, NULL);
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->mutex);
    free(ahead);
}

int input_ahead_take(struct input_ahead *ahead, unsigned char *to, size_t room, struct input_ahead_step *step,
                     struct varve_message *message)
{
    const struct block *block =
        &ahead->blocks[ahead->taken % BLOCKS]; /* `taken` is this thread's to change */
    bool is_last;

    pthread_mutex_lock(&ahead->mutex);
    while (ahead->filled == ahead->taken) {
        pthread_cond_wait(&ahead->changed, &ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    *step = (struct input_ahead_step){.made = block->step.made - ahead->used, .done = block->step.done};
    step->made = step->made < room ? step->made : room;
    memcpy(to, block->bytes + ahead->used, step->made);
    ahead->used += step->made;
    if (ahead->used < block->step.made) {
        return VARVE_OK;
    }
    is_last = block->error != VARVE_OK || block->step.is_ended;
    step->is_ended = block->step.is_ended;
    if (is_last) {
        if (block->error != VARVE_OK && message != NULL) {
            *message = block->message;
        }
        return block->error;
    }
    ahead->used = 0;
    pthread_mutex_lock(&ahead->mutex);
    ahead->taken++;
    pthread_cond_signal(&ahead->changed);
    pthread_mutex_unlock(&ahead->mutex);
    return VARVE_OK;
}
