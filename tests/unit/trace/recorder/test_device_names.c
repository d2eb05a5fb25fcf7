/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of streams and devices within a process: the same for the same, emitted once, in a fork child anew.
 * Without a session nothing is emitted, and the numbers are good all the same.
 * Costs: 1 s
 */
#include "trace/emit.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

TEST(test_streams)
{
    unsigned first = varve_stream_number(0, 0x1000);
    unsigned second = varve_stream_number(0, 0x2000);
    assert_int_equal(varve_stream_number(0, 0), 0);
    assert_int_equal(varve_stream_number(7, 0), 0);
    assert_true(first > 0 && second > 0 && first != second);
    assert_int_equal(varve_stream_number(0, 0x1000), first);
    assert_int_not_equal(varve_stream_number(1, 0x1000), first);
    assert_int_equal(varve_stream_number(0, 0x2000), second);
}

TEST(test_devices)
{
    static const unsigned char uuid[16] = {1, 2, 3};
    assert_false(varve_device_is_described(3));
    varve_device_describe(3, uuid, 1 << 30, "a device whose name is longer than a record has room for");
    assert_true(varve_device_is_described(3));
    assert_false(varve_device_is_described(4));
    assert_true(varve_device_is_described(256)); /* there is no such number: nothing to emit */
}

TEST(test_fork)
{
    varve_stream_number(0, 0xabc0);
    pid_t pid = fork();
    if (pid == 0) {
        /* the child counts from 1 again, and knows no device */
        _exit(varve_stream_number(5, 0xdef0) == 1 && !varve_device_is_described(3) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define THREADS 4
#define HANDLES 5000U

static unsigned seen[THREADS][HANDLES];

static void *number_all(void *mine)
{
    unsigned *numbers = mine;
    for (unsigned i = 0; i < HANDLES; i++) {
        numbers[i] = varve_stream_number(i & 1, 0x10000 + 16 * (uint64_t)i);
    }
    return NULL;
}

TEST(test_threads_agree)
{
    pthread_t threads[THREADS];
    static unsigned char is_taken[65536];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, number_all, seen[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (unsigned i = 0; i < HANDLES; i++) {
        assert_true(seen[0][i] > 0 && seen[0][i] < 65535);
        assert_int_equal(is_taken[seen[0][i]]++, 0);
        for (int thread = 1; thread < THREADS; thread++) {
            assert_int_equal(seen[thread][i], seen[0][i]);
        }
    }
    /* more than there is room for: one number for the rest, and those that were given stay */
    for (unsigned i = 0; i < 8192; i++) {
        varve_stream_number(2, 0x9000000 + 16 * (uint64_t)i);
    }
    assert_int_equal(varve_stream_number(2, 0x8000000), 65535);
    assert_int_equal(varve_stream_number(0, 0x10000), seen[0][0]);
}
