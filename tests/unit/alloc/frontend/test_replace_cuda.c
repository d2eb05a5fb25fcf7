/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve-replace.so as the preload library finds it, on a device without a GPU: cudaMalloc's rules for what
 * it is asked, which addresses it calls its own, and a reset. Its interface is the one that trace/ declares.
 * Costs: 1 s
 */
#include "trace/replacement.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static const struct varve_replacement *replacement;

static int prepare(void **state)
{
    (void)state;
    setenv("VARVE_REPLACE_DEVICE", "host", 1);
    setenv("VARVE_REPLACE_LIMIT", "268435456", 1);
    void *library = dlopen(VARVE_BUILD_DIR "/libvarve-replace.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        print_message("%s\n", dlerror());
        return -1;
    }
    replacement = dlsym(library, VARVE_REPLACEMENT_SYMBOL);
    return replacement != NULL && replacement->version == VARVE_REPLACEMENT_VERSION ? 0 : -1;
}

static uint64_t take(uint64_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(replacement->alloc(0, bytes, 0, &addr), 0);
    assert_true(addr != 0);
    return addr;
}

/* The memory is real. */
static void fill(char *block, size_t bytes)
{
    for (size_t i = 0; block != NULL && i < bytes; i += 4096) {
        block[i] = 1;
    }
}

TEST(test_serves)
{
    uint64_t addr = 1;
    assert_int_equal(replacement->free(0x1000), -1); /* before anything was allocated */
    uint64_t a = take(1000);
    uint64_t b = take(3 * MIB);
    fill((void *)(uintptr_t)b, 3 * MIB);
    assert_int_equal(a % 256, 0);
    assert_int_equal(replacement->alloc(0, 0, 0, &addr), 1); /* CUDA_ERROR_INVALID_VALUE */
    assert_int_equal(addr, 0);
    assert_int_equal(replacement->alloc(0, UINT64_C(1) << 40, 0, &addr), 2); /* CUDA_ERROR_OUT_OF_MEMORY */
    assert_int_equal(addr, 0);
    assert_int_equal(replacement->alloc(0, UINT64_C(1) << 61, 0, &addr), 1);
    assert_int_equal(replacement->alloc(-1, 512, 0, &addr), 999); /* there is no driver here to ask */
    assert_int_equal(replacement->free(a), 0);
    assert_int_equal(replacement->free(a), -1);
    assert_int_equal(replacement->free(b + 512), -1);
    assert_int_equal(replacement->free(0), -1);
    assert_int_equal(take(1000), a);
    assert_int_equal(replacement->free(a), 0);
    assert_int_equal(replacement->free(b), 0);
}

TEST(test_ranges)
{
    uint64_t a = take(1000), b = take(30 * MIB), base = 0, bytes = 0;
    assert_int_equal(replacement->range(a, &base, &bytes), 1);
    assert_int_equal(base, a);
    assert_int_equal(bytes, 1000);
    assert_int_equal(replacement->range(b + 30 * MIB - 1, &base, &bytes), 1);
    assert_int_equal(base, b);
    assert_int_equal(bytes, 30 * MIB);
    assert_int_equal(replacement->range(a + 1000, &base, &bytes), 0);
    assert_int_equal(replacement->range(0, &base, &bytes), 0);
    assert_int_equal(replacement->free(a), 0);
    assert_int_equal(replacement->range(a, &base, &bytes), 0);
    assert_int_equal(replacement->free(b), 0);
}

/* Whatever was there is nobody's; a new beginning. */
TEST(test_reset)
{
    uint64_t a = take(1000), base, bytes;
    replacement->forget(0);
    replacement->forget(0);
    replacement->forget(-1);
    assert_int_equal(replacement->free(a), -1);
    assert_int_equal(replacement->range(a, &base, &bytes), 0);
    a = take(1000);
    assert_int_equal(replacement->free(a), 0);
}

TEST(test_fork)
{
    uint64_t a = take(1000), addr;
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(replacement->alloc(0, 512, 0, &addr) == 3 && replacement->free(a) == -1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(replacement->free(a), 0);
}

TEST_FILE(prepare, NULL)
