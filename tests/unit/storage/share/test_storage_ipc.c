/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage of a pool, opened by another process through the host device: the bytes are the same ones, a view's geometry comes
 * along, and what is no such storage is refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "storage/storage.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

struct pool {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_memory *memory;
};

static struct varve_message message;

static int pool_open(struct pool *pool)
{
    struct varve_alloc_options options;

    varve_alloc_options_init(&options);
    if (varve_host_open(&(struct varve_host_options){.limit_bytes = 64 * MIB}, &pool->device, &message) !=
        VARVE_OK) {
        return VARVE_ERROR_NO_MEMORY;
    }
    options.device = pool->device;
    return varve_alloc_open(&options, &pool->alloc, &message) == VARVE_OK
               ? varve_memory_open(pool->alloc, &pool->memory, &message)
               : VARVE_ERROR_INVALID;
}

static int pool_close(struct pool *pool)
{
    int error = varve_memory_close(pool->memory, &message);

    varve_alloc_close(pool->alloc);
    pool->device->ops->close(pool->device);
    return error;
}

/* Negates what it is given; the exit status says what went wrong. */
static void negate(const struct varve_storage_ipc *ipc)
{
    struct varve_storage *storage;
    struct varve_array array;
    struct pool pool;

    if (pool_open(&pool) != VARVE_OK) {
        _exit(1);
    }
    if (varve_storage_ipc_open(pool.memory, ipc, &storage, &message) != VARVE_OK) {
        _exit(2);
    }
    varve_storage_get_array(storage, &array);
    for (int64_t i = 0; i < varve_storage_count(storage); i++) {
        int64_t *element = (int64_t *)varve_storage_data(storage) + i * array.geometry.strides[0];

        *element = -*element;
    }
    if (varve_storage_release(storage, NULL) != VARVE_OK) {
        _exit(3);
    }
    _exit(pool_close(&pool) == VARVE_OK ? 0 : 4);
}

static void test_a_view_in_another_process(void **state)
{
    const int64_t shape[] = {6};
    struct varve_storage *first, *storage, *view;
    struct varve_storage_options options = {0};
    struct varve_storage_ipc ipc;
    struct pool pool;
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(pool_open(&pool), VARVE_OK);
    options.memory = pool.memory;
    assert_int_equal(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, shape, &first, &message), VARVE_OK);
    options.alignment = 4096; /* the data does not begin where its block does */
    assert_int_equal(varve_storage_full(&options, VARVE_DTYPE_I64, 1, shape,
                                        (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 5},
                                        &storage, &message),
                     VARVE_OK);
    assert_int_equal(varve_storage_slice(storage, 0, 1, 6, 2, &view, &message), VARVE_OK);
    assert_int_equal(varve_storage_ipc_export(view, &ipc, &message), VARVE_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        negate(&ipc);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int64_t i = 0; i < 6; i++) {
        assert_int_equal(((int64_t *)varve_storage_data(storage))[i], i % 2 == 0 ? 5 : -5);
    }
    ipc.geometry.shape[0] = 100;
    assert_int_equal(varve_storage_ipc_open(pool.memory, &ipc, &view, &message), VARVE_ERROR_INVALID);
    varve_storage_release(view, NULL);
    varve_storage_release(storage, NULL);
    varve_storage_release(first, NULL);
    assert_int_equal(pool_close(&pool), VARVE_OK);
    assert_int_equal(varve_storage_live(), 0);
}

static void test_what_is_no_block(void **state)
{
    struct varve_storage *storage;
    struct varve_storage_ipc ipc = {.bytes = 8};

    (void)state;
    assert_int_equal(varve_storage_empty(NULL, VARVE_DTYPE_U8, 0, NULL, &storage, &message), VARVE_OK);
    assert_int_equal(varve_storage_ipc_export(storage, &ipc, &message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_ipc_open(varve_memory_host(), &ipc, &storage, &message),
                     VARVE_ERROR_INVALID);
    varve_storage_release(storage, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_view_in_another_process),
        cmocka_unit_test(test_what_is_no_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
