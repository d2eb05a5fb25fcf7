/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cuda device on a real GPU: the rules of all devices, and what only a real one has: memory that keeps
 * what is written to it, access that comes with set_access, work on streams that takes its time, contexts of
 * the threads that call, many threads at once, and captures that go on as if nothing had been called.
 * Costs: 1 s
 */
#include "gpu/device_cuda_support.h"
#include "support/cuda/device_rules.h"

#include <pthread.h>

#define MANY 3000U

static struct device_kind kind;

static int kind_open(const struct device_case *one, struct varve_device **device_out)
{
    (void)one;
    const struct varve_cuda_options options = {.index = RULES_INDEX, .limit_bytes = RULES_CAPACITY};
    return varve_cuda_open(&options, device_out, NULL);
}

TEST(test_segment_memory)
{
    struct varve_device *device = cuda_open(0);
    const struct varve_device_ops *ops = device->ops;
    uint64_t first = 0, second = 0, small = 0, free_bytes = 0, total = 0, total_limited = 0;
    assert_int_equal(ops->segment_alloc(device, 4 * MIB, 0, &first), 0);
    assert_int_equal(ops->segment_alloc(device, 4 * MIB, 0, &second), 0);
    assert_int_equal(ops->segment_alloc(device, 100, 0, &small), 0);
    gpu_fill(first, 4 * MIB, 0x11, 0);
    gpu_fill(second, 4 * MIB, 0x22, 0);
    gpu_fill(small, 100, 0x33, 0);
    assert_int_equal(gpu_first_other(first, 4 * MIB, 0x11), 4 * MIB);
    assert_int_equal(gpu_first_other(second, 4 * MIB, 0x22), 4 * MIB);
    assert_int_equal(gpu_first_other(small, 100, 0x33), 100);
    assert_int_equal(ops->segment_free(device, first, 4 * MIB), 0);
    assert_int_equal(gpu_first_other(second, 4 * MIB, 0x22), 4 * MIB);
    assert_int_equal(ops->memory_info(device, &free_bytes, &total), 0);
    assert_true(free_bytes > 0 && free_bytes < total);
    assert_int_equal(ops->segment_alloc(device, 2 * total, 0, &first), VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(cuda_reason(device), "cuMemAlloc"));
    assert_non_null(strstr(cuda_reason(device), "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_int_equal(ops->vmm_create(device, 2 * total / UNIT * UNIT, &first), VARVE_ERROR_NO_MEMORY);
    assert_non_null(strstr(cuda_reason(device), "cuMemCreate"));
    assert_int_equal(gpu_first_other(second, 4 * MIB, 0x22), 4 * MIB); /* the context has survived that */
    cuda_close_checked(device);                                        /* with segments out */
    device = cuda_open(64 * MIB);
    assert_int_equal(device->ops->memory_info(device, &free_bytes, &total_limited), 0);
    assert_true(total_limited == 64 * MIB && free_bytes == 64 * MIB);
    cuda_close_checked(device);
}

/* What CUDA device 0 may do at `addr`: 0 nothing, 3 read and write; -1: nothing is mapped there. */
static int access_at(uint64_t addr)
{
    const struct cuda_location location = {.type = CUDA_LOCATION_DEVICE, .id = 0};
    unsigned long long flags = 0;
    return gpu.access_get(&flags, &location, addr) == 0 ? (int)flags : -1;
}

static void look_at_vmm(struct varve_device *device)
{
    const struct varve_device_ops *ops = device->ops;
    uint64_t base = 0, handles[2];
    assert_non_null(ops->vmm_reserve);
    assert_int_equal(ops->vmm_reserve(device, 100 * UNIT, NULL, &base), 0);
    assert_int_equal(access_at(base), -1);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ops->vmm_create(device, UNIT, &handles[i]), 0);
        assert_int_equal(ops->vmm_map(device, base + i * UNIT, UNIT, handles[i]), 0);
    }
    assert_int_equal(access_at(base), 0);
    assert_int_equal(ops->vmm_set_access(device, base, 2 * UNIT, 0), 0);
    assert_int_equal(access_at(base), 3);
    assert_int_equal(access_at(base + UNIT), 3);
    gpu_fill(base, 2 * UNIT, 0x33, 0);
    assert_int_equal(ops->vmm_map(device, base + 50 * UNIT, UNIT, handles[1]), 0);
    assert_int_equal(ops->vmm_set_access(device, base + 50 * UNIT, UNIT, 0), 0);
    assert_int_equal(gpu_first_other(base + 50 * UNIT, UNIT, 0x33), UNIT);
    gpu_fill(base + 50 * UNIT, UNIT, 0x44, 0); /* one memory at two addresses */
    assert_int_equal(gpu_first_other(base + UNIT, UNIT, 0x44), UNIT);
    assert_int_equal(gpu_first_other(base, UNIT, 0x33), UNIT);
    assert_int_equal(ops->vmm_unmap(device, base, 2 * UNIT), 0);
    assert_int_equal(access_at(base), -1);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handles[0]), 0);
    assert_int_equal(access_at(base), 0); /* a new mapping has no access again */
    assert_int_equal(ops->vmm_release(device, handles[0], UNIT), 0);
    assert_int_equal(ops->vmm_release(device, handles[1], UNIT), 0);
    assert_int_equal(gpu_first_other(base + 50 * UNIT, UNIT, 0x44), UNIT); /* stays while it is mapped */
    cuda_close_checked(device);
}

TEST(test_vmm_memory)
{
    struct varve_cuda_options options = {.limit_bytes = 8 * UNIT};
    for (int i = 0; i < 2; i++) {
        struct varve_device *device = NULL;
        options.shares = i == 1; /* it makes no difference to what is seen from here */
        assert_int_equal(varve_cuda_open(&options, &device, NULL), 0);
        look_at_vmm(device);
    }
}

TEST_CUDA(test_sizes, 8 * UNIT)
{
    uint64_t out = 0;
    assert_string_equal(cuda_reason(device), "");
    assert_int_equal(ops->vmm_reserve(device, 100, NULL, &out), VARVE_ERROR_INVALID);
    assert_non_null(strstr(cuda_reason(device), "100"));
    assert_int_equal(ops->vmm_create(device, 100, &out), VARVE_ERROR_INVALID);
    assert_int_equal(ops->vmm_reserve(device, UINT64_MAX - (UNIT - 1), NULL, &out), VARVE_ERROR_NO_MEMORY);
    int error = ops->vmm_reserve(device, (uint64_t)1 << 56, NULL, &out); /* more than any address space */
    assert_true(error == VARVE_ERROR_NO_MEMORY || error == VARVE_ERROR_INVALID);
    printf("2^56 bytes of addresses: %s\n", cuda_reason(device));
}

/* More segments and handles than anybody else has; what fits into a quarter of the memory. */
TEST_CUDA(test_many, 0)
{
    static uint64_t segments[MANY], handles[MANY];
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(ops->memory_info(device, &free_bytes, &total), 0);
    uint64_t count = free_bytes / 8 / UNIT < MANY ? free_bytes / 8 / UNIT : MANY;
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(ops->segment_alloc(device, UNIT, 0, &segments[i]), 0);
        assert_int_equal(ops->vmm_create(device, UNIT, &handles[i]), 0);
        gpu_fill(segments[i] + i, 1, (unsigned char)i, 0);
    }
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(gpu_first_other(segments[i] + i, 1, (unsigned char)i), 1);
        assert_int_equal(ops->segment_free(device, segments[i], UNIT), 0);
        assert_int_equal(ops->vmm_release(device, handles[i], UNIT), 0);
    }
}

/* ---- streams ---- */

struct waiter {
    struct varve_device *device;
    uint64_t event, stream;
    int results[2];
    uint32_t done; /* atomic */
};

/* A thread without a context. */
static void *wait_for_both(void *context)
{
    struct waiter *waiter = context;
    waiter->results[0] = waiter->device->ops->event_synchronize(waiter->device, waiter->event);
    waiter->results[1] = waiter->device->ops->stream_synchronize(waiter->device, waiter->stream);
    __atomic_store_n(&waiter->done, 1, __ATOMIC_RELEASE);
    return NULL;
}

TEST_CUDA(test_streams, 0)
{
    struct waiter waiter = {.device = device, .stream = gpu_stream(), .results = {1, 1}};
    uint64_t before = 0, other = 0, again = 0, other_stream = gpu_stream();
    assert_int_equal(ops->event_create(device, &waiter.event), 0);
    assert_int_equal(ops->event_create(device, &before), 0);
    assert_int_equal(ops->event_create(device, &other), 0);
    assert_int_equal(ops->event_record(device, before, waiter.stream), 0);
    assert_int_equal(ops->event_synchronize(device, before), 0);
    struct gpu_gate gate;
    gpu_gate_shut(&gate, waiter.stream);
    assert_int_equal(ops->event_record(device, waiter.event, waiter.stream), 0);
    assert_int_equal(ops->event_record(device, other, other_stream), 0);
    assert_int_equal(ops->event_synchronize(device, other), 0);
    assert_int_equal(ops->event_query(device, waiter.event), 0);
    assert_int_equal(ops->event_query(device, before), 1);
    assert_int_equal(ops->event_query(device, other), 1);
    assert_int_equal(ops->stream_synchronize(device, other_stream), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_both, &waiter), 0);
    for (int i = 0; i < 20; i++) { /* meanwhile the device serves others */
        assert_int_equal(ops->event_query(device, waiter.event), 0);
        assert_int_equal(__atomic_load_n(&waiter.done, __ATOMIC_ACQUIRE), 0);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(ops->event_destroy(device, waiter.event), 0); /* while it is waited for */
    assert_int_equal(ops->event_create(device, &again), 0);
    assert_int_equal(ops->event_query(device, again), 1); /* never recorded, whatever it was before */
    gpu_gate_open(&gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(waiter.results[0] == 0 && waiter.results[1] == 0);
    GPU_OK(gpu.stream_destroy(gpu_stream_of(waiter.stream)));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(other_stream)));
}

/* ---- threads: they have no context while they call the device ---- */

static unsigned has_context(void)
{
    cuda_context context = gpu.context;
    return gpu.context_get(&context) != 0 || context != NULL;
}

/* ---- captures ---- */

/* Everything is called in the middle of a capture in the strictest mode; the capture goes on, and its graph
 * is what was captured. */
TEST_CUDA(test_capture, 0)
{
    uint64_t stream = gpu_stream(), other = gpu_stream();
    uint64_t addr = 0, base = 0, handle = 0, event = 0, done = 0, free_bytes, total;
    gpu_graph graph = NULL;
    gpu_graph_exec exec = NULL;
    assert_int_equal(ops->event_create(device, &event), 0);
    assert_int_equal(ops->event_create(device, &done), 0);
    assert_int_equal(ops->event_record(device, done, other), 0);
    GPU_OK(gpu.capture_begin(gpu_stream_of(stream), CUDA_CAPTURE_MODE_GLOBAL));
    assert_int_equal(ops->segment_alloc(device, UNIT, stream, &addr), 0);
    gpu_fill(addr, UNIT, 0x51, stream);
    assert_int_equal(ops->event_record(device, event, stream), VARVE_ERROR_BUSY);
    assert_int_equal(ops->stream_synchronize(device, stream), VARVE_ERROR_BUSY);
    assert_non_null(strstr(cuda_reason(device), "captured"));
    assert_int_equal(ops->event_query(device, event), 1);
    assert_true(ops->event_query(device, done) >= 0);
    assert_int_equal(ops->event_synchronize(device, done), 0);
    assert_int_equal(ops->event_record(device, event, other), 0);
    assert_int_equal(ops->stream_synchronize(device, other), 0);
    assert_int_equal(ops->memory_info(device, &free_bytes, &total), 0);
    assert_int_equal(ops->vmm_reserve(device, 4 * UNIT, NULL, &base), 0);
    assert_int_equal(ops->vmm_create(device, UNIT, &handle), 0);
    assert_int_equal(ops->vmm_map(device, base, UNIT, handle), 0);
    assert_int_equal(ops->vmm_set_access(device, base, UNIT, 0), 0);
    GPU_OK(gpu.copy(base, addr, UNIT, gpu_stream_of(stream)));
    GPU_OK(gpu.capture_end(gpu_stream_of(stream), &graph));
    assert_non_null(graph);
    GPU_OK(gpu.graph_make(&exec, graph, 0));
    for (unsigned char i = 0; i < 3; i++) {
        gpu_fill(addr, UNIT, i, stream);
        gpu_fill(base, UNIT, i, stream);
        GPU_OK(gpu.graph_launch(exec, gpu_stream_of(stream)));
        assert_int_equal(ops->stream_synchronize(device, stream), 0);
        assert_int_equal(gpu_first_other(base, UNIT, 0x51), UNIT);
    }
    GPU_OK(gpu.graph_exec_destroy(exec));
    GPU_OK(gpu.graph_destroy(graph));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(stream)));
    GPU_OK(gpu.stream_destroy(gpu_stream_of(other)));
}

TEST(test_open_refuses)
{
    const struct varve_cuda_options none = {.ordinal = gpu.count};
    struct varve_message message = {""};
    struct varve_device *device = NULL;
    assert_int_equal(varve_cuda_open(&none, &device, &message), VARVE_ERROR_NOT_FOUND);
    assert_true(strlen(message.text) > 20);
    assert_null(device);
}

static int start(void **state)
{
    cuda_stream stream = NULL;
    int failed = gpu_start(state);
    if (failed == 0) {
        failed = gpu.stream_create(&stream, GPU_STREAM_NON_BLOCKING) != 0;
        kind = (struct device_kind){.name = "cuda",
                                    .open = kind_open,
                                    .check = varve_cuda_check,
                                    .stream = (uint64_t)(uintptr_t)stream,
                                    .has_bytes = true,
                                    .look_at_thread = has_context};
    }
    return failed;
}

static const struct CMUnitTest rules[] = {RULES_TESTS(&kind), RULES_TEST(threads, &kind)};

TEST_CASES(rules)
TEST_FILE(start, NULL)
