/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Storages of many threads in any memory (pool.h): references to one storage, whose memory goes once and with the
 * last of them; storages that come and go; memory that is handed from one to the next on streams of the threads' own;
 * what is made at its first use.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_THREAD_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_THREAD_RULES_H

#include <cmocka.h>

#include "support/random.h"
#include "support/storage/pool.h"

#include <pthread.h>

#define THREADS 4U
#define THREAD_STEPS 20000U
#define THREAD_CYCLES 1000000U
#define THREAD_BLOCKS 400

static const int64_t thread_shape[] = {4, 4};

struct thread_worker {
    pthread_t thread;
    const struct pool *pool;
    struct varve_storage *storage; /* a reference of its own */
    struct varve_storage_weak *weak;
    uint64_t random, stream;
    unsigned errors, locked, missed;
};

/* All threads do it, each with its worker; none meets an error. */
static inline void thread_run_all(struct thread_worker *workers, const struct pool *pool, void *(*body)(void *))
{
    uint64_t seed = test_first_seed(1);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].pool = pool;
        workers[i].random = seed + i;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].errors, 0);
    }
}

static inline void thread_count_release(void *context, void *data)
{
    (void)data;
    __atomic_add_fetch((unsigned *)context, 1, __ATOMIC_SEQ_CST);
}

/* References, views and weak references come and go; at its middle the thread gives back what it was given. */
static inline void *thread_work(void *context)
{
    struct thread_worker *worker = context;
    struct varve_storage *storage, *view;
    for (unsigned i = 0; i < THREAD_STEPS; i++) {
        if (i == THREAD_STEPS / 2) {
            worker->errors += varve_storage_release(worker->storage, NULL) != VARVE_OK;
        }
        storage = varve_storage_weak_lock(worker->weak);
        if (storage == NULL) {
            worker->missed++;
            continue;
        }
        worker->locked++;
        if (random_below(&worker->random, 2) == 0) {
            worker->errors += varve_storage_select(storage, 0, 1, &view, NULL) != VARVE_OK;
            worker->errors += varve_storage_release(storage, NULL) != VARVE_OK;
            worker->errors += varve_storage_count(view) != 4;
            storage = view;
        }
        worker->errors += varve_storage_release(storage, NULL) != VARVE_OK;
    }
    varve_storage_weak_release(worker->weak);
    return NULL;
}

static inline void rule_references_of_threads(void **state)
{
    const struct pool *pool = *state;
    unsigned releases = 0;
    char bytes[16]; /* at whose elements nobody looks */
    const struct varve_foreign foreign = {.data = bytes,
                                          .bytes = sizeof(bytes),
                                          .release = thread_count_release,
                                          .context = &releases,
                                          .memory = pool->memory};
    struct varve_geometry geometry;
    assert_int_equal(varve_geometry_contiguous(2, thread_shape, &geometry, NULL), VARVE_OK);
    struct varve_storage *storage;
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I8, &geometry, NULL, &storage, NULL), VARVE_OK);
    struct thread_worker workers[THREADS] = {{0}};
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].storage = varve_storage_retain(storage);
        workers[i].weak = varve_storage_weak_retain(storage);
    }
    varve_storage_release(storage, NULL);
    thread_run_all(workers, pool, thread_work);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(workers[i].locked + workers[i].missed, THREAD_STEPS);
        assert_true(workers[i].locked >= THREAD_STEPS / 2);
    }
    assert_int_equal(releases, 1);
    assert_int_equal(varve_storage_live(), 0);
}

static inline void *thread_create_and_destroy(void *context)
{
    struct thread_worker *worker = context;
    const struct varve_storage_options options = {.memory = worker->pool->memory};
    for (unsigned i = 0; i < THREAD_CYCLES / THREADS; i++) {
        struct varve_storage *storage, *view;
        if (varve_storage_empty(&options, VARVE_DTYPE_F32, 2, thread_shape, &storage, NULL) != VARVE_OK ||
            varve_storage_transpose(storage, 0, 1, &view, NULL) != VARVE_OK) {
            worker->errors++;
            break;
        }
        worker->errors += varve_storage_id(view) == varve_storage_id(storage);
        worker->errors += varve_storage_release(i % 2 == 0 ? storage : view, NULL) != VARVE_OK;
        worker->errors += varve_storage_release(i % 2 == 0 ? view : storage, NULL) != VARVE_OK;
    }
    return NULL;
}

static inline void rule_a_million_cycles(void **state)
{
    struct thread_worker workers[THREADS] = {{0}};
    thread_run_all(workers, *state, thread_create_and_destroy);
    assert_int_equal(varve_storage_live(), 0);
}

/* ---- memory of streams ---- */

/* All elements are `value`, once the stream is done. */
static inline bool thread_looks(const struct thread_worker *worker, struct varve_storage *storage, int64_t count,
                                int32_t value, uint64_t stream)
{
    struct varve_device *device = worker->pool->device;
    struct varve_storage *host;
    bool is_right = true;
    if (varve_storage_empty(NULL, VARVE_DTYPE_I32, 1, &count, &host, NULL) != VARVE_OK) {
        return false;
    }
    if (varve_storage_copy_on(host, storage, stream, NULL) != VARVE_OK ||
        (device != NULL && device->ops->stream_synchronize(device, stream) != VARVE_OK)) {
        is_right = false;
    }
    for (int64_t i = 0; i < count && is_right; i++) {
        is_right = ((const int32_t *)varve_storage_data(host))[i] == value;
    }
    return varve_storage_release(host, NULL) == VARVE_OK && is_right;
}

/* Storages on a stream of the thread's own, filled, copied and released while the copy may still be under way. */
static inline void *thread_fill_and_copy(void *context)
{
    struct thread_worker *worker = context;
    struct varve_device *device = worker->pool->device;
    struct varve_storage_options options = {.memory = worker->pool->memory};
    if (device != NULL && device->ops->stream_create(device, &options.stream) != VARVE_OK) {
        worker->errors++;
        return NULL;
    }
    for (int32_t i = 0; i < THREAD_BLOCKS && worker->errors == 0; i++) {
        const struct varve_scalar value = {.kind = VARVE_SCALAR_INTEGER, .integer = worker->random % 1000 * 1000 + i};
        int64_t count = 1 + (int64_t)random_below(&worker->random, 50000);
        struct varve_storage *storage, *copy;
        if (varve_storage_empty(&options, VARVE_DTYPE_I32, 1, &count, &storage, NULL) != VARVE_OK ||
            varve_storage_empty(&options, VARVE_DTYPE_I32, 1, &count, &copy, NULL) != VARVE_OK) {
            worker->errors++;
            break;
        }
        worker->errors += varve_storage_fill_on(storage, value, options.stream, NULL) != VARVE_OK;
        worker->errors += varve_storage_copy_on(copy, storage, options.stream, NULL) != VARVE_OK;
        worker->errors += varve_storage_release(storage, NULL) != VARVE_OK;
        worker->errors += i % 4 == 0 && !thread_looks(worker, copy, count, (int32_t)value.integer, options.stream);
        worker->errors += varve_storage_release(copy, NULL) != VARVE_OK;
    }
    worker->stream = options.stream;
    return NULL;
}

/* Nobody gets memory that another thread's stream still uses. */
static inline void rule_blocks_of_threads(void **state)
{
    const struct pool *pool = *state;
    struct thread_worker workers[THREADS] = {{0}};
    thread_run_all(workers, pool, thread_fill_and_copy);
    for (unsigned i = 0; i < THREADS && pool->device != NULL; i++) {
        assert_int_equal(pool->device->ops->stream_synchronize(pool->device, workers[i].stream), VARVE_OK);
    }
    if (pool->alloc != NULL) {
        assert_int_equal(varve_alloc_empty_cache(pool->alloc), VARVE_OK);
    }
    for (unsigned i = 0; i < THREADS && pool->device != NULL; i++) {
        assert_int_equal(pool->device->ops->stream_destroy(pool->device, workers[i].stream), VARVE_OK);
    }
}

/* ---- what a memory makes when it is first needed ---- */

#define THREAD_NUMBERS (INT64_C(1) << 18) /* of 8 bytes: long enough for pinned memory */

/* There by pinned memory and back, and there and back by a batch: the number of the thread in each element. */
static inline void *thread_first_uses(void *context)
{
    struct thread_worker *worker = context;
    const int64_t shape[] = {THREAD_NUMBERS};
    const struct varve_storage_options there = {.memory = worker->pool->memory};
    struct varve_scalar number = {.kind = VARVE_SCALAR_INTEGER, .integer = (int64_t)worker->random};
    struct varve_storage *from = NULL, *middle = NULL, *to = NULL;
    worker->errors += varve_storage_full(NULL, VARVE_DTYPE_I64, 1, shape, number, &from, NULL) != VARVE_OK;
    worker->errors += varve_storage_clone(from, &there, &middle, NULL) != VARVE_OK;
    worker->errors += varve_storage_zeros(NULL, VARVE_DTYPE_I64, 1, shape, &to, NULL) != VARVE_OK;
    worker->errors += varve_storage_copy_batch(&(struct varve_storage_pair){middle, from}, 1, 4, NULL) != VARVE_OK;
    worker->errors += varve_storage_copy_batch(&(struct varve_storage_pair){to, middle}, 1, 4, NULL) != VARVE_OK;
    for (int64_t i = 0; i < THREAD_NUMBERS; i++) {
        worker->errors += ((const int64_t *)varve_storage_data(to))[i] != number.integer;
    }
    varve_storage_release(from, NULL);
    varve_storage_release(middle, NULL);
    varve_storage_release(to, NULL);
    return NULL;
}

static inline void rule_first_uses_of_threads(void **state)
{
    struct thread_worker workers[THREADS] = {{0}};
    thread_run_all(workers, *state, thread_first_uses);
}

#define THREAD_RULES(kind)                                                               \
    POOL_CASE(rule_references_of_threads, kind), POOL_CASE(rule_a_million_cycles, kind), \
        POOL_CASE(rule_blocks_of_threads, kind), POOL_CASE(rule_first_uses_of_threads, kind)

#endif
