/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References of many threads to one storage: its memory goes once, and with the last of them. Meant for the thread sanitizer.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "storage/storage.h"
#include "support/random.h"

#include <pthread.h>

#define THREADS 4U
#define STEPS 20000U
#define CYCLES 1000000U

static const int64_t shape[] = {4, 4};

struct worker {
    pthread_t thread;
    struct varve_storage *storage; /* a reference of its own */
    struct varve_storage_weak *weak;
    uint64_t random;
    unsigned errors, locked, missed;
};

struct counted {
    unsigned releases; /* atomic */
};

static void count_release(void *context, void *data)
{
    struct counted *counted = context;

    (void)data;
    __atomic_add_fetch(&counted->releases, 1, __ATOMIC_SEQ_CST);
}

/* References, views and weak references come and go; at its middle the thread gives back what it was given. */
static void *work(void *context)
{
    struct worker *worker = context;
    struct varve_storage *storage, *view;

    for (unsigned i = 0; i < STEPS; i++) {
        if (i == STEPS / 2) {
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

static void test_references_of_threads(void **state)
{
    struct worker workers[THREADS];
    struct counted counted = {0};
    char bytes[16];
    struct varve_foreign foreign = {
        .data = bytes, .bytes = sizeof(bytes), .release = count_release, .context = &counted};
    struct varve_geometry geometry;
    struct varve_storage *storage;
    uint64_t seed = test_first_seed(1);

    (void)state;
    assert_int_equal(varve_geometry_contiguous(2, shape, &geometry, NULL), VARVE_OK);
    assert_int_equal(varve_storage_wrap(&foreign, VARVE_DTYPE_I8, &geometry, NULL, &storage, NULL), VARVE_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.storage = varve_storage_retain(storage),
                                     .weak = varve_storage_weak_retain(storage),
                                     .random = seed + i};
    }
    varve_storage_release(storage, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].errors, 0);
        assert_int_equal(workers[i].locked + workers[i].missed, STEPS);
        assert_true(workers[i].locked >= STEPS / 2);
    }
    assert_int_equal(counted.releases, 1);
    assert_int_equal(varve_storage_live(), 0);
}

static void *create_and_destroy(void *context)
{
    struct worker *worker = context;

    for (unsigned i = 0; i < CYCLES / THREADS; i++) {
        struct varve_storage *storage, *view;

        if (varve_storage_empty(NULL, VARVE_DTYPE_F32, 2, shape, &storage, NULL) != VARVE_OK ||
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

static void test_a_million_cycles(void **state)
{
    struct worker workers[THREADS] = {{0}};

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, create_and_destroy, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].errors, 0);
    }
    assert_int_equal(varve_storage_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references_of_threads),
        cmocka_unit_test(test_a_million_cycles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
