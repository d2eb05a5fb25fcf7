/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtimes of several threads, each in a pool of its own: they share nothing but the names of operators in traces.
 * Costs: 1 s
 */
#include "support/storage/runtime_rules.h"

#include <pthread.h>

#define THREADS 3

struct thread_work {
    struct pool pool;
    struct training training;
    struct training_result result;
    struct varve_message message;
    int error;
};

static void *train(void *context)
{
    struct thread_work *work = context;
    work->error = training_run(&work->training, &work->result, &work->message);
    return NULL;
}

static void test_threads(void **state)
{
    const struct pool *pool = *state;
    struct training training = runtime_training(pool, false);
    struct training_result whole;
    static struct thread_work works[THREADS];
    runtime_ok(training_run(&training, &whole, &runtime_message));
    for (unsigned i = 0; i < THREADS; i++) {
        runtime_ok(pool_open(&works[i].pool, pool->kind, &runtime_message));
        works[i].training = training;
        works[i].training.options.memory = works[i].pool.memory;
        works[i].training.options.budget = whole.peak_bytes * (7 + i) / 10;
    }
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, train, &works[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        if (works[i].error != VARVE_OK) {
            fail_msg("thread %u: %s", i, works[i].message.text);
        }
        assert_memory_equal(works[i].result.losses, whole.losses, sizeof(whole.losses));
        assert_true(works[i].result.counters.remats_direct > 0);
        runtime_ok(pool_close(&works[i].pool, &runtime_message));
    }
}

static const struct CMUnitTest cases[] = {
    POOL_CASE(test_threads, pool_host),
    POOL_CASE(test_threads, pool_apart),
};

TEST_CASES(cases)
