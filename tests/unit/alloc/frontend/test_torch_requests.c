/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests, on devices without a GPU: what is served, what is ignored, what is refused and in which
 * words; two devices and many threads; private pools; and a fork child, which must neither allocate nor free
 * what its parent has.
 * Costs: 1 s
 */
#include "alloc/frontend/registry/registry.h"
#include "alloc/frontend/torch/pools.h"
#include "alloc/frontend/torch/requests.h"
#include "alloc/frontend/torch/torch.h"
#include "support/random.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)
#define LIMIT "1073741824"

static int prepare(void **state)
{
    (void)state;
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    return setenv("VARVE_TORCH_DEVICE", "sim", 1) || setenv("VARVE_TORCH_LIMIT", LIMIT, 1);
}

static uint64_t take(uint64_t bytes, int device, uint64_t stream)
{
    struct varve_message message = {""};
    uint64_t addr = 0;
    if (torch_allocate(bytes, device, stream, &addr, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return addr;
}

static void give(uint64_t addr, int device)
{
    varve_torch_free((void *)(uintptr_t)addr, 1, device, NULL);
}

static int64_t allocated(int device)
{
    int64_t figures[4];
    assert_int_equal(varve_torch_memory(device, figures), VARVE_OK);
    return figures[0];
}

static void check_all(void)
{
    struct varve_message message = {""};
    for (struct frontend_device *device = registry_next(-1); device != NULL; device = registry_next(device->ordinal)) {
        if (varve_alloc_check(device->alloc, &message) != VARVE_OK) {
            fail_msg("%s", message.text);
        }
    }
}

TEST(test_first_use_opens)
{
    varve_torch_init(2);
    assert_int_equal(varve_torch_device_count(), 2);
    give(0x1000, 0);
    assert_int_equal(take(0, 0, 0), 0);
    assert_false(varve_torch_is_open(0));
    uint64_t addr = take(1000, 0, 0);
    assert_true(addr != 0);
    assert_true(varve_torch_is_open(0));
    assert_false(varve_torch_is_open(1));
    assert_int_equal(allocated(0), 1024);
    assert_int_equal(allocated(1), 0);
    assert_false(varve_torch_is_open(1));
    give(addr, 0);
    assert_int_equal(allocated(0), 0);
}

/* Nothing happens, to nobody. */
TEST(test_frees_of_strangers)
{
    uint64_t addr = take(3 * MIB, 0, 0);
    give(0, 0);
    give(addr + 512, 0);
    give(addr, 5);
    give(addr, -1);
    give(addr, VARVE_TORCH_DEVICES);
    give(UINT64_C(0xdead0000), 0);
    assert_int_equal(allocated(0), 3 * (int64_t)MIB);
    give(addr, 0);
    give(addr, 0);
    assert_int_equal(allocated(0), 0);
    check_all();
}

TEST(test_no_such_device)
{
    static const int numbers[] = {-1, VARVE_TORCH_DEVICES, 1 << 30};
    struct varve_message message = {""};
    uint64_t addr = 1;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_int_equal(torch_allocate(512, numbers[i], 0, &addr, &message), VARVE_ERROR_INVALID);
        assert_int_equal(addr, 0);
        assert_non_null(strstr(message.text, "varve serves 0 to 63"));
    }
}

TEST(test_out_of_memory)
{
    struct varve_message message = {""};
    uint64_t addr = 1, held = take(600 * MIB, 0, 0);
    int error = torch_allocate(700 * MIB, 0, 0, &addr, &message);
    assert_int_equal(error, VARVE_ERROR_NO_MEMORY);
    assert_int_equal(addr, 0);
    char text[1024];
    torch_failure_text(error, 700 * MIB, 0, &message, text, sizeof(text));
    assert_non_null(strstr(text, "CUDA out of memory. Tried to allocate 700.00 MiB on GPU 0."));
    assert_non_null(strstr(text, "allocated 629145600"));
    torch_failure_text(error, 100, 3, &message, text, sizeof(text));
    assert_non_null(strstr(text, "allocate 100 bytes on GPU 3."));
    give(held, 0);
    held = take(700 * MIB, 0, 0);
    give(held, 0);
    check_all();
}

/* 2^60 bytes are not a matter of memory. */
TEST(test_absurd_size)
{
    struct varve_message message = {""};
    uint64_t addr;
    int error = torch_allocate(UINT64_C(1) << 60, 0, 0, &addr, &message);
    assert_int_equal(error, VARVE_ERROR_INVALID);
    char text[1024];
    torch_failure_text(error, UINT64_C(1) << 60, 0, &message, text, sizeof(text));
    assert_null(strstr(text, "out of memory"));
    assert_non_null(strstr(text, "2^60"));
}

/* Only an address is known: the device that it belongs to is found. */
TEST(test_by_address_alone)
{
    struct varve_message message = {""};
    uint64_t first = take(30 * MIB, 0, 0), second = take(40 * MIB, 1, 0);
    uint64_t inside = take(2 * MIB, 1, 0);
    size_t bytes = 1;
    assert_int_equal((uintptr_t)varve_torch_base_alloc((void *)(uintptr_t)second, &bytes), second);
    assert_int_equal(bytes, 40 * MIB);
    assert_int_equal((uintptr_t)varve_torch_base_alloc((void *)(uintptr_t)inside, &bytes), inside);
    assert_int_equal(bytes, 20 * MIB);
    assert_int_equal((uintptr_t)varve_torch_base_alloc((void *)0x77, &bytes), 0x77);
    assert_int_equal(bytes, 0);
    assert_ptr_equal(varve_torch_base_alloc(NULL, NULL), NULL);

    assert_int_equal(torch_record_stream(0, 7, &message), VARVE_OK);
    assert_int_equal(torch_record_stream(0x77, 7, &message), VARVE_OK);
    assert_int_equal(torch_record_stream(second, 7, &message), VARVE_OK);
    assert_int_equal(torch_record_stream(first, 7, &message), VARVE_OK);
    give(first, 0);
    give(second, 1);
    give(inside, 1);
    check_all();
}

TEST(test_reset_gives_back)
{
    uint64_t kept = take(MIB, 1, 0);
    varve_torch_reset();
    int64_t figures[4];
    assert_int_equal(varve_torch_memory(0, figures), VARVE_OK);
    assert_int_equal(figures[2], 0);
    assert_int_equal(varve_torch_memory(1, figures), VARVE_OK);
    assert_int_equal(figures[2], 2 * MIB);
    give(kept, 1);
    varve_torch_reset();
    assert_int_equal(varve_torch_memory(1, figures), VARVE_OK);
    assert_int_equal(figures[2], 0);
}

/* ---- pools ---- */

static bool takes_stream_9(void *context, uint64_t stream)
{
    unsigned *calls = context;
    (*calls)++;
    return stream == 9;
}

TEST(test_pools)
{
    const struct varve_pool_id pool = {3, 0};
    struct varve_message message = {""};
    unsigned calls = 0;
    assert_int_equal(torch_pool_end(0, pool, &message), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(torch_pool_begin(0, pool, takes_stream_9, &calls, &message), VARVE_OK);
    assert_int_equal(torch_pool_begin(0, pool, NULL, NULL, &message), VARVE_ERROR_BUSY);
    assert_non_null(strstr(message.text, "pool (3, 0)"));
    uint64_t inside = take(MIB, 0, 9);
    uint64_t outside = take(MIB, 0, 8);
    assert_int_equal(calls, 2);
    assert_int_equal(torch_pool_end(0, pool, &message), VARVE_OK);
    give(inside, 0);
    give(outside, 0);
    assert_int_equal(calls, 2);
    assert_int_equal(varve_torch_pool_use_count(0, 3, 0), 1);
    varve_torch_reset(); /* the pool still has a reference */
    assert_int_equal(take(MIB, 0, 9) != inside, 1);
    torch_pool_release(0, pool);
    torch_pool_release(0, pool);
    assert_int_equal(varve_torch_pool_use_count(0, 3, 0), 0);
    varve_torch_reset();
    assert_int_equal(varve_torch_set_no_split(0, 3, 0), VARVE_ERROR_NOT_FOUND);
    check_all();
}

TEST(test_references)
{
    const struct varve_pool_id pool = {0, 4};
    struct varve_message message = {""};
    assert_int_equal(varve_torch_pool_use_count(0, 0, 4), 0);
    assert_int_equal(varve_torch_drop_pool(0, 0, 4), VARVE_ERROR_NOT_FOUND);
    assert_int_equal(varve_torch_take_pool(0, 0, 4), VARVE_OK);
    assert_int_equal(varve_torch_set_use_on_oom(0, 0, 4), VARVE_OK);
    assert_int_equal(torch_pool_begin(0, pool, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(varve_torch_take_pool(0, 0, 4), VARVE_OK); /* while it is allocated to */
    assert_int_equal(varve_torch_pool_use_count(0, 0, 4), 3);
    assert_int_equal(torch_pool_end(0, pool, &message), VARVE_OK);
    assert_int_equal(varve_torch_take_pool(0, 0, 0), VARVE_ERROR_INVALID);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(varve_torch_drop_pool(0, 0, 4), VARVE_OK);
    }
    assert_int_not_equal(varve_torch_drop_pool(0, 0, 4), VARVE_OK);
    check_all();
}

/* While it is allocated to, a pool loses its last reference and gets one again: it may not go, and is not
 * listed twice when that one is dropped. */
TEST(test_reference_after_the_last)
{
    const struct varve_pool_id pool = {0, 6};
    struct varve_message message = {""};
    varve_torch_reset();
    int64_t before[4], kept[4], left[4];
    assert_int_equal(varve_torch_memory(0, before), VARVE_OK);
    assert_int_equal(torch_pool_begin(0, pool, NULL, NULL, &message), VARVE_OK);
    give(take(30 * MIB, 0, 0), 0);
    torch_pool_release(0, pool);
    assert_int_equal(varve_torch_pool_use_count(0, 0, 6), 0);
    assert_int_equal(varve_torch_take_pool(0, 0, 6), VARVE_OK);
    assert_int_equal(varve_torch_pool_use_count(0, 0, 6), 1);
    check_all();
    varve_torch_reset(); /* empties the cache */
    assert_int_equal(varve_torch_memory(0, kept), VARVE_OK);
    assert_int_equal(kept[2] - before[2], 30 * (int64_t)MIB);
    assert_int_equal(varve_torch_drop_pool(0, 0, 6), VARVE_OK);
    check_all(); /* finds a list that runs in a circle, which emptying would not end in */
    assert_int_equal(torch_pool_end(0, pool, &message), VARVE_OK);
    varve_torch_reset();
    assert_int_equal(varve_torch_memory(0, left), VARVE_OK);
    assert_int_equal(left[2], before[2]);
    assert_int_equal(varve_torch_set_no_split(0, 0, 6), VARVE_ERROR_NOT_FOUND);
    check_all();
}

/* ---- threads ---- */

#define THREADS 4
#define STEPS 4000U
#define HELD 32U

static void *run_thread(void *number)
{
    uint64_t held[HELD] = {0}, bytes[HELD] = {0};
    uint64_t seed = 1 + (uintptr_t)number, random;
    int device = 10 + (int)((uintptr_t)number % 2);
    struct varve_message message;
    for (unsigned i = 0; i < STEPS; i++) {
        random = random_next(&seed);
        unsigned at = (unsigned)(random >> 40) % HELD;

        if (held[at] != 0) {
            give(held[at], device);
        }
        bytes[at] = 1 + (random >> 33) % (4 * MIB);
        if (torch_allocate(bytes[at], device, random >> 62, &held[at], &message) != VARVE_OK) {
            held[at] = 0;
        }
        if (held[at] != 0 && i % 16 == 0) {
            torch_record_stream(held[at], 4 + random % 3, &message);
        }
        if (i % 500 == 0) {
            varve_torch_reset();
        }
    }
    for (unsigned i = 0; i < HELD; i++) {
        give(held[i], device);
    }
    return NULL;
}

TEST(test_threads)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, run_thread, (void *)i), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(allocated(10), 0);
    assert_int_equal(allocated(11), 0);
    check_all();
}

/* ---- forks ---- */

static int child_of_fork(uint64_t addr)
{
    struct varve_message message = {""};
    uint64_t got = 1;
    if (torch_allocate(512, 0, 0, &got, &message) != VARVE_ERROR_UNSUPPORTED || got != 0 ||
        strstr(message.text, "fork child") == NULL) {
        return 1;
    }
    if (torch_allocate(512, 20, 0, &got, &message) != VARVE_ERROR_UNSUPPORTED) {
        return 2;
    }
    give(addr, 0);
    varve_torch_reset();
    if (torch_record_stream(addr, 3, &message) != VARVE_OK || varve_torch_is_open(0)) {
        return 3;
    }
    struct varve_torch_snapshot snapshot;
    if (varve_torch_take_snapshot(-1, &snapshot) != VARVE_OK || snapshot.segment_count != 0) {
        return 4;
    }
    varve_torch_snapshot_free(&snapshot);
    return torch_pool_end(0, (struct varve_pool_id){1, 0}, &message) == VARVE_OK ? 0 : 5;
}

/* The lock is held when the process forks, as it may be by any thread. */
TEST(test_fork)
{
    struct frontend_device *device = registry_find(0);
    uint64_t addr = take(MIB, 0, 0);
    int status = -1;
    varve_alloc_free_mutex_lock(device->alloc);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(child_of_fork(addr));
    }
    varve_alloc_free_mutex_unlock(device->alloc);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    give(addr, 0);
    check_all();
}

TEST_FILE(prepare, NULL)
