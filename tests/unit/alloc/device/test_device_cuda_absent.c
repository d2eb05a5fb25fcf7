/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device where there is no driver, no GPU or no right to it: opening one ends with an error and one
 * line that says why, from whatever thread or process, as often as it is tried. On a machine with a GPU there
 * is nothing to see here, and the test is skipped.
 * Costs: 1 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/alloc.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_refused(struct varve_message *message)
{
    const struct varve_cuda_options options = {.index = 3};
    struct varve_device *device = NULL;
    int error = varve_cuda_open(&options, &device, message);
    return (error == VARVE_ERROR_UNSUPPORTED || error == VARVE_ERROR_PERMISSION) && !device;
}

static void *refuse(void *context)
{
    *(bool *)context = is_refused(NULL);
    return NULL;
}

TEST(test_refused)
{
    struct varve_message first = {""}, second = {""};
    pthread_t threads[8];
    bool results[8] = {false};
    int status = -1;
    assert_true(is_refused(&first));
    assert_int_equal(strncmp(first.text, "cuda: ", 6), 0);
    assert_true(strlen(first.text) > 12);
    assert_null(strchr(first.text, '\n'));
    assert_true(is_refused(&second));
    assert_string_equal(first.text, second.text);
    assert_true(is_refused(NULL));
    printf("%s\n", first.text);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(is_refused(NULL) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, refuse, &results[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(results[i]);
    }
}

/* Arguments come first, so that a mistake shows on every machine. */
TEST(test_arguments)
{
    const struct varve_cuda_options wrong[] = {{.index = -1}, {.index = 256}, {.ordinal = -1}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct varve_message message = {""};
        struct varve_device *device = NULL;
        assert_int_equal(varve_cuda_open(&wrong[i], &device, &message), VARVE_ERROR_INVALID);
        assert_true(strlen(message.text) > 10);
        assert_null(device);
    }
}

/* Asked for in a process of its own, so that the driver is still to be loaded in this one. */
static bool has_gpu(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct varve_device *device = NULL;
        _exit(varve_cuda_open(&(struct varve_cuda_options){0}, &device, NULL) == VARVE_OK ? 1 : 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status != 0;
}

static int without_gpu(void **state)
{
    (void)state;
    if (has_gpu()) {
        skip_file("there is a GPU here");
    }
    return 0;
}

TEST_FILE(without_gpu, NULL)
