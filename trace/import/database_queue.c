/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second thread of a database that is written without a recording: it encodes events and runs SQLite
 * while the first one, in database_writer.c, works out what follows from the next events. SQLite
 * must never run in both, and that errors arrive late: a batch is handed over under the mutex, which orders
 * all that either thread does to the store, and the first error stays until somebody asks.
 */
#include "trace/import/database_queue.h"

#include "base/thread.h"
#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/store/store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define BATCH_EVENTS 2048U
#define BATCHES 32U /* more than one commit, which must not stop the other thread */
#define COMMIT_EVENTS 16384U

struct batch {
    uint32_t count;
    struct event events[BATCH_EVENTS];
};

struct writer_queue {
    struct store *store;
    bool has_thread;
    bool is_alone;  /* no thread can be made */
    bool is_shared; /* the thread may be at the store */
    pthread_t thread;
    pthread_mutex_t mutex; /* for all below; a batch belongs to the thread from `given` to `taken` */
    pthread_cond_t changed;
    uint64_t given, taken; /* batches so far; number n is batches[n % BATCHES] */
    bool must_end;
    int error; /* the first one */
    struct varve_message message;
    struct batch batches[BATCHES];
};

/* ---- the thread's side ---- */

static int batch_store(struct store *store, const struct batch *batch, struct varve_message *message)
{
    int error = VARVE_OK;
    for (uint32_t i = 0; i < batch->count && error == VARVE_OK; i++) {
        error = store_append(store, &batch->events[i], message);
        /* FULL: taken, but a commit must come now. */
        if (error == VARVE_ERROR_FULL || (error == VARVE_OK && store_pending(store) >= COMMIT_EVENTS)) {
            error = store_commit(store, NULL, 0, message);
        }
    }
    return error;
}

static void *database_queue_thread_run(void *context)
{
    struct writer_queue *queue = context;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->taken == queue->given && !queue->must_end) {
            pthread_cond_wait(&queue->changed, &queue->mutex);
        }
        if (queue->must_end) {
            break;
        }
        if (queue->error == VARVE_OK) {
            struct varve_message message = {""};
            const struct batch *batch = &queue->batches[queue->taken % BATCHES];
            pthread_mutex_unlock(&queue->mutex);
            int code = batch_store(queue->store, batch, &message);
            pthread_mutex_lock(&queue->mutex);
            queue->error = code;
            queue->message = message;
        }
        queue->taken++;
        pthread_cond_signal(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* ---- the other side ---- */

struct writer_queue *writer_queue_open(struct store *store)
{
    struct writer_queue *queue = calloc(1, sizeof(*queue));
    if (queue != NULL) {
        queue->store = store;
        pthread_mutex_init(&queue->mutex, NULL);
        pthread_cond_init(&queue->changed, NULL);
    }
    return queue;
}

void writer_queue_close(struct writer_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    if (queue->has_thread) {
        pthread_mutex_lock(&queue->mutex);
        queue->must_end = true;
        pthread_cond_signal(&queue->changed);
        pthread_mutex_unlock(&queue->mutex);
        pthread_join(queue->thread, NULL);
    }
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}

/* With the mutex held. */
static int error_report(const struct writer_queue *queue, struct varve_message *message)
{
    if (queue->error != VARVE_OK && message != NULL) {
        *message = queue->message;
    }
    return queue->error;
}

/* The batch being filled goes to the thread; there is space for the next one afterwards. */
static int batch_submit(struct writer_queue *queue, struct varve_message *message)
{
    if (!queue->has_thread && !queue->is_alone) {
        queue->has_thread = thread_start(&queue->thread, database_queue_thread_run, queue) == 0;
        queue->is_alone = !queue->has_thread;
    }
    pthread_mutex_lock(&queue->mutex);
    if (queue->is_alone && queue->error == VARVE_OK) {
        queue->error = batch_store(queue->store, &queue->batches[queue->given % BATCHES], &queue->message);
    }
    queue->taken += queue->is_alone;
    queue->given++;
    queue->is_shared = !queue->is_alone;
    pthread_cond_signal(&queue->changed);
    while (queue->given - queue->taken == BATCHES) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    int code = error_report(queue, message);
    queue->batches[queue->given % BATCHES].count = 0;
    pthread_mutex_unlock(&queue->mutex);
    return code;
}

int writer_queue_add(struct writer_queue *queue, const struct event *event, struct varve_message *message)
{
    /* `given` is only ever changed by this thread. */
    struct batch *batch = &queue->batches[queue->given % BATCHES];
    assert(batch->count < BATCH_EVENTS);
    batch->events[batch->count++] = *event;
    return batch->count == BATCH_EVENTS ? batch_submit(queue, message) : VARVE_OK;
}

int writer_queue_drain(struct writer_queue *queue, struct varve_message *message)
{
    if (!queue->is_shared) {
        return error_report(queue, message);
    }
    pthread_mutex_lock(&queue->mutex);
    while (queue->taken < queue->given) {
        pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    int error = error_report(queue, message);
    pthread_mutex_unlock(&queue->mutex);
    queue->is_shared = false;
    return error;
}

int writer_queue_flush(struct writer_queue *queue, struct varve_message *message)
{
    const struct batch *batch = &queue->batches[queue->given % BATCHES];
    int code = writer_queue_drain(queue, message);
    if (code == VARVE_OK && batch->count > 0) {
        code = batch_store(queue->store, batch, message);
        queue->batches[queue->given % BATCHES].count = 0;
        queue->error = code;
    }
    return code;
}
