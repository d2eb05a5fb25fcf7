/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve-torch.so as PyTorch finds it: opened late, called from C++. What is thrown for want of memory is
 * PyTorch's own error class where it is in the process and the standard library's where it is not, and
 * filters of pools live as long as they are called.
 * Costs: 1 s
 */
#include "alloc/frontend/torch.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TEXT 2048
#define LIBRARY VARVE_BUILD_DIR "/libvarve-torch.so"

static struct {
    void *handle, *caller;
    void *(*alloc)(void *function, size_t bytes, int device, uint64_t stream, char *text, size_t size);
} torch;

static void set_function(void *field, void *library, const char *symbol)
{
    void *found = dlsym(library, symbol);
    if (found == NULL) {
        fail_msg("no %s: %s", symbol, dlerror());
    }
    memcpy(field, &found, sizeof(found));
}

static void *entry(const char *symbol)
{
    void *found;
    set_function(&found, torch.handle, symbol);
    return found;
}

static void *open_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        print_message("%s\n", dlerror());
    }
    return library;
}

static int prepare(void **state)
{
    (void)state;
    if (access(LIBRARY, F_OK) != 0) {
        skip_file("there is no libvarve-torch.so: it needs a C++ compiler");
    }
    setenv("VARVE_TORCH_DEVICE", "host", 1);
    setenv("VARVE_TORCH_LIMIT", "268435456", 1);
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    torch.handle = open_library(LIBRARY);
    torch.caller = open_library(VARVE_BUILD_DIR "/programs/lib_torch_caller.so");
    if (torch.handle == NULL || torch.caller == NULL) {
        return -1;
    }
    set_function(&torch.alloc, torch.caller, "caller_alloc");
    return 0;
}

static void *take(size_t bytes, uint64_t stream, char text[TEXT])
{
    return torch.alloc(entry("varve_torch_alloc"), bytes, 0, stream, text, TEXT);
}

static void give(void *addr)
{
    void (*give_back)(void *addr, size_t bytes, int device, void *stream);
    set_function(&give_back, torch.handle, "varve_torch_free");
    give_back(addr, 1, 0, NULL);
}

/* The memory is real: what is written is there. */
TEST(test_serves)
{
    char text[TEXT];
    char *addr = take(1000, 0, text);
    assert_string_equal(text, "");
    assert_non_null(addr);
    memset(addr, 7, 1000);
    assert_int_equal(addr[999], 7);
    give(addr);
    assert_ptr_equal(take(1000, 0, text), addr);
    give(addr);
    assert_null(take(0, 0, text));
    assert_string_equal(text, "");
}

TEST(test_without_pytorch)
{
    char text[TEXT];
    assert_null(take((size_t)1 << 40, 0, text));
    assert_non_null(strstr(text, "St13runtime_error: CUDA out of memory. Tried to allocate 1.00 TiB on GPU 0."));
    assert_null(torch.alloc(entry("varve_torch_alloc"), 512, 64, 0, text, TEXT));
    assert_non_null(strstr(text, "St13runtime_error: CUDA memory of device 64"));
}

/* A library of PyTorch's name at some place, seen by nobody: as Python loads it. */
TEST(test_with_pytorch)
{
    char folder[] = "/tmp/varve-unit-XXXXXX", path[64], command[256], text[TEXT];
    int (*alive)(void);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/libc10.so", folder);
    snprintf(command, sizeof(command), "cp '%s/programs/lib_torch_c10.so' '%s'", VARVE_BUILD_DIR, path);
    assert_int_equal(system(command), 0);
    void *c10 = open_library(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_non_null(c10);
    set_function(&alive, c10, "c10_alive");
    for (int i = 0; i < 100; i++) {
        assert_null(take((size_t)1 << 40, 0, text));
        assert_non_null(strstr(text, "N3c1016OutOfMemoryErrorE: varve_torch_alloc: CUDA out of memory. "));
        assert_int_equal(alive(), 0);
    }
    /* nothing is out of memory here */
    assert_null(torch.alloc(entry("varve_torch_alloc"), 512, 64, 0, text, TEXT));
    assert_non_null(strstr(text, "St13runtime_error"));
    give(take(512, 0, text));
    assert_string_equal(text, "");
    dlclose(c10);
}

/* ---- pools ---- */

#define STREAMS 6

TEST(test_filters)
{
    int (*capture)(void *begin, void *end, void *alloc, uint64_t pool, unsigned count, void **addrs,
                   unsigned *asked_out, char *text, size_t size);
    void (*release)(void *function, uint64_t pool);
    int (*use_count)(int device, uint64_t pool_capture, uint64_t pool_user);
    int (*snapshot)(int device, struct varve_torch_snapshot *snapshot_out);
    void (*snapshot_free)(struct varve_torch_snapshot * snapshot);
    unsigned asked = 0;
    uint64_t pooled = 0;
    set_function(&capture, torch.caller, "caller_capture");
    set_function(&release, torch.caller, "caller_release");
    set_function(&use_count, torch.handle, "varve_torch_pool_use_count");
    set_function(&snapshot, torch.handle, "varve_torch_take_snapshot");
    set_function(&snapshot_free, torch.handle, "varve_torch_snapshot_free");
    void *addrs[STREAMS];
    char text[TEXT];
    if (capture(entry("varve_torch_begin_allocate_to_pool"), entry("varve_torch_end_allocate_to_pool"),
                entry("varve_torch_alloc"), 31, STREAMS, addrs, &asked, text, TEXT) != 0) {
        fail_msg("%s", text);
    }
    assert_int_equal(asked, STREAMS);
    give(take(512, 1, text)); /* the filter is gone */
    assert_int_equal(asked, STREAMS);
    assert_int_equal(use_count(0, 31, 0), 1);
    struct varve_torch_snapshot all;
    assert_int_equal(snapshot(0, &all), 0);
    for (uint64_t i = 0; i < all.segment_count; i++) {
        if (all.segments[i].pool_capture == 31) {
            assert_int_equal(all.segments[i].stream % 2, 1);
            pooled++;
        }
    }
    assert_int_equal(pooled, STREAMS / 2);
    snapshot_free(&all);
    for (int i = 0; i < STREAMS; i++) {
        give(addrs[i]);
    }
    release(entry("varve_torch_release_pool"), 31);
    assert_int_equal(use_count(0, 31, 0), 0);
}

TEST(test_begin_twice)
{
    int (*begin_twice)(void *begin, void *end, uint64_t pool, char *text, size_t size);
    char text[TEXT] = "";
    set_function(&begin_twice, torch.caller, "caller_begin_twice");
    assert_int_equal(begin_twice(entry("varve_torch_begin_allocate_to_pool"), entry("varve_torch_end_allocate_to_pool"),
                                 32, text, TEXT),
                     2);
    assert_non_null(strstr(text, "pool (32, 0)"));
}

TEST_FILE(prepare, NULL)
