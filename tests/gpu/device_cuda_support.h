/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * For tests on a real GPU: the part of the CUDA driver that puts work on it (filling and copying memory will
 * do, so no kernel has to be compiled), a thread's context as a program on the run-time API would have it,
 * and skipping where there is no GPU. With VARVE_TESTS_STRICT=1 a missing GPU is a failure.
 */
#ifndef VARVE_TESTS_GPU_DEVICE_CUDA_SUPPORT_H
#define VARVE_TESTS_GPU_DEVICE_CUDA_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "alloc/alloc.h"
#include "alloc/device/cuda_driver.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define UNIT (2 * MIB)
#define GPU_STREAM_NON_BLOCKING 1

typedef struct gpu_graph_opaque *gpu_graph;
typedef struct gpu_graph_exec_opaque *gpu_graph_exec;

/* X(field, exported, parameters) */
/* clang-format off */
#define GPU_LIST(X)                                                                                     \
    X(fill, cuMemsetD8Async, (cuda_address addr, unsigned char value, size_t bytes, cuda_stream stream)) \
    X(copy, cuMemcpyAsync, (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream))      \
    X(copy_to_host, cuMemcpyDtoH_v2, (void *to, cuda_address from, size_t bytes))                       \
    X(copy_from_host, cuMemcpyHtoD_v2, (cuda_address to, const void *from, size_t bytes))               \
    X(access_get, cuMemGetAccess,                                                                       \
      (unsigned long long *flags_out, const struct cuda_location *location, cuda_address addr))         \
    X(stream_create, cuStreamCreate, (cuda_stream *stream_out, unsigned flags))                         \
    X(stream_destroy, cuStreamDestroy_v2, (cuda_stream stream))                                         \
    X(stream_synchronize, cuStreamSynchronize, (cuda_stream stream))                                    \
    X(stream_wait_event, cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned flags))         \
    X(event_create, cuEventCreate, (cuda_event *event_out, unsigned flags))                             \
    X(event_destroy, cuEventDestroy_v2, (cuda_event event))                                             \
    X(event_record, cuEventRecord, (cuda_event event, cuda_stream stream))                              \
    X(event_query, cuEventQuery, (cuda_event event))                                                    \
    X(host_function, cuLaunchHostFunc, (cuda_stream stream, void (*function)(void *), void *context))   \
    X(capture_begin, cuStreamBeginCapture_v2, (cuda_stream stream, enum cuda_capture_mode mode))        \
    X(capture_end, cuStreamEndCapture, (cuda_stream stream, gpu_graph *graph_out))                      \
    X(graph_make, cuGraphInstantiateWithFlags,                                                          \
      (gpu_graph_exec *exec_out, gpu_graph graph, unsigned long long flags))                            \
    X(graph_launch, cuGraphLaunch, (gpu_graph_exec exec, cuda_stream stream))                           \
    X(graph_exec_destroy, cuGraphExecDestroy, (gpu_graph_exec exec))                                    \
    X(graph_destroy, cuGraphDestroy, (gpu_graph graph))                                                 \
    X(context_synchronize, cuCtxSynchronize, (void))                                                    \
    X(context_get, cuCtxGetCurrent, (cuda_context *context_out))                                        \
    X(context_set, cuCtxSetCurrent, (cuda_context context))                                             \
    X(primary_retain, cuDevicePrimaryCtxRetain, (cuda_context *context_out, cuda_ordinal device))       \
    X(primary_reset, cuDevicePrimaryCtxReset_v2, (cuda_ordinal device))                                 \
    X(primary_release, cuDevicePrimaryCtxRelease_v2, (cuda_ordinal device))                             \
    X(device_count, cuDeviceGetCount, (int *count_out))
/* clang-format on */

static struct gpu {
#define GPU_FIELD(field, exported, parameters) cuda_result(*field) parameters;
    GPU_LIST(GPU_FIELD)
#undef GPU_FIELD
    cuda_context context; /* primary one of CUDA device 0 */
    int count;            /* of devices */
} gpu;

/// Before the first case of a file: skips it without a GPU, else its primary context is the thread's.
static inline int gpu_start(void **state)
{
    const char *strict = getenv("VARVE_TESTS_STRICT");
    struct varve_message message = {""};
    struct varve_device *device = NULL;
    void *library;
    (void)state;
    if (varve_cuda_open(&(struct varve_cuda_options){0}, &device, &message) != VARVE_OK) {
        if (strict == NULL || strcmp(strict, "1") != 0) {
            skip_file("%s", message.text);
        }
        printf("FAILED: %s\n", message.text);
        return 1;
    }
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        abort();
    }
#define GPU_FIND(field, exported, parameters)      \
    {                                              \
        void *found = dlsym(library, #exported);   \
        memcpy(&gpu.field, &found, sizeof(found)); \
        if (!found) {                              \
            printf("FAILED: no " #exported "\n");  \
            return 1;                              \
        }                                          \
    }
    GPU_LIST(GPU_FIND)
#undef GPU_FIND
    if (gpu.primary_retain(&gpu.context, 0) != 0 || gpu.context_set(gpu.context) != 0 ||
        gpu.device_count(&gpu.count) != 0) {
        abort();
    }
    device->ops->close(device);
    return 0;
}

#define GPU_OK(call) assert_int_equal((call), 0)

static inline uint64_t gpu_stream(void)
{
    cuda_stream stream = NULL;
    GPU_OK(gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING));
    return (uint64_t)(uintptr_t)stream;
}

static inline cuda_stream gpu_stream_of(uint64_t stream)
{
    return (cuda_stream)(uintptr_t)stream;
}

/// The first byte of [addr, addr + bytes) that is not `value`, as an offset; `bytes` if all are. UINT64_MAX
/// if it can't be read.
static inline uint64_t gpu_first_other(uint64_t addr, uint64_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    uint64_t at = 0;
    if (!copy || gpu.copy_to_host(copy, addr, bytes) != 0) {
        free(copy);
        return UINT64_MAX;
    }
    while (at < bytes && copy[at] == value) {
        at++;
    }
    free(copy);
    return at;
}

static inline void gpu_fill(uint64_t addr, uint64_t bytes, unsigned char value, uint64_t stream)
{
    GPU_OK(gpu.fill(addr, value, bytes, gpu_stream_of(stream)));
}

static inline struct varve_device *cuda_open(uint64_t limit)
{
    const struct varve_cuda_options options = {.limit_bytes = limit};
    struct varve_device *device = NULL;
    struct varve_message message = {""};
    if (varve_cuda_open(&options, &device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return device;
}

static inline void cuda_close_checked(struct varve_device *device)
{
    struct varve_message message = {""};
    if (varve_cuda_check(device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    device->ops->close(device);
}

/// An allocator with default settings, or with `config`; NULL if there is none.
static inline struct varve_alloc *alloc_open(struct varve_device *device, const struct varve_alloc_config *config)
{
    struct varve_alloc_options options;
    struct varve_alloc *alloc = NULL;
    varve_alloc_options_init(&options);
    options.device = device;
    if (config) {
        options.config = *config;
    }
    return varve_alloc_open(&options, &alloc, NULL) == VARVE_OK ? alloc : NULL;
}

static inline const char *cuda_reason(const struct varve_device *device)
{
    static struct varve_message message;
    device->ops->reason(device, &message);
    return message.text;
}

/* A case with a device of that limit, which is closed at its end. */
#define TEST_CUDA(name, limit)                                                                \
    static void name##_with(struct varve_device *device, const struct varve_device_ops *ops); \
    TEST(name)                                                                                \
    {                                                                                         \
        struct varve_device *opened = cuda_open(limit);                                       \
        name##_with(opened, opened->ops);                                                     \
        cuda_close_checked(opened);                                                           \
    }                                                                                         \
    static void name##_with(struct varve_device *device, __attribute__((unused)) const struct varve_device_ops *ops)

/* ---- an allocator: what it is asked for must work ---- */

static inline uint64_t block(struct varve_alloc *alloc, uint64_t bytes, uint64_t stream)
{
    struct varve_message message = {""};
    uint64_t addr = 0;
    if (varve_alloc_raw_alloc_with_stream(alloc, bytes, stream, &addr, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return addr;
}

static inline void give(struct varve_alloc *alloc, uint64_t addr)
{
    struct varve_message message = {""};
    if (varve_alloc_raw_delete(alloc, addr, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

/* Ways to serve requests that tests go through. */
enum way { WAY_SEGMENTS, WAY_EXPANDABLE, WAY_ASYNC, WAYS };

static inline struct varve_alloc *must_open_as(struct varve_device *device, enum way way)
{
    struct varve_alloc_options options;
    struct varve_alloc *alloc = NULL;
    struct varve_message message = {""};
    varve_alloc_options_init(&options);
    options.device = device;
    options.policy = way == WAY_ASYNC ? "cuda-async" : "pytorch";
    options.config.expandable_segments = way == WAY_EXPANDABLE;
    if (varve_alloc_open(&options, &alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    return alloc;
}

static inline struct varve_alloc *must_open(struct varve_device *device, bool is_expandable)
{
    return must_open_as(device, is_expandable ? WAY_EXPANDABLE : WAY_SEGMENTS);
}

static inline void close_both(struct varve_alloc *alloc, struct varve_device *device)
{
    struct varve_message message = {""};
    if (varve_alloc_check(alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    varve_alloc_close(alloc);
    cuda_close_checked(device);
}

/* A case with an allocator on a device of that limit, for each of the first ways to serve requests. */
#define TEST_CUDA_WAYS(name, ways, limit)                                            \
    static void name##_with(struct varve_alloc *alloc, struct varve_device *device); \
    TEST(name)                                                                       \
    {                                                                                \
        for (int way = 0; way < (ways); way++) {                                     \
            struct varve_device *opened = cuda_open(limit);                          \
            struct varve_alloc *with = must_open_as(opened, (enum way)way);          \
            name##_with(with, opened);                                               \
            close_both(with, opened);                                                \
        }                                                                            \
    }                                                                                \
    static void name##_with(struct varve_alloc *alloc, __attribute__((unused)) struct varve_device *device)

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* ---- holding a stream back: a host function on it that waits ---- */

struct gpu_gate {
    uint32_t is_open; /* atomic */
};

static inline void gpu_gate_wait(void *context)
{
    struct gpu_gate *gate = context;
    while (!__atomic_load_n(&gate->is_open, __ATOMIC_ACQUIRE)) {
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
}

static inline void gpu_gate_shut(struct gpu_gate *gate, uint64_t stream)
{
    gate->is_open = 0;
    GPU_OK(gpu.host_function(gpu_stream_of(stream), gpu_gate_wait, gate));
}

static inline void gpu_gate_open(struct gpu_gate *gate)
{
    __atomic_store_n(&gate->is_open, 1, __ATOMIC_RELEASE);
}

#endif
